import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomTensor } from '../../test/dense-truth.js';
import { CandidateSet } from './candidates.js';
import { FastGrnnGate, type FastGrnnWeights } from './salience-gate.js';
import { parsePolicy } from '../policy/policy-text.js';
import type { SubquadraticPolicy } from '../policy/policy-types.js';

function weights(seed: number): FastGrnnWeights {
  const rng = createRng(seed);
  const values = (length: number): Float32Array => Float32Array.from({ length }, () => rng.nextGaussian());
  return {
    inputDim: 6,
    hiddenDim: 4,
    input: values(24),
    recurrent: values(16),
    gateBias: values(4),
    updateBias: values(4),
    readOut: values(4),
    readOutBias: 0,
    zeta: 0.9,
    nu: 0.05,
  };
}

describe('the salience gate', () => {
  it('is causal: what comes later changes no decision', () => {
    const keys = randomTensor(1, 60, 1, 6);
    const others = randomTensor(2, 60, 1, 6);
    const probe = new FastGrnnGate(weights(3));
    const saliences = Array.from({ length: 60 }, (_, j) => probe.append(keys.data, j * 6));
    const threshold = saliences.toSorted((x, y) => x - y)[30];
    const a = new FastGrnnGate(weights(3), threshold);
    const b = new FastGrnnGate(weights(3), threshold);
    const first: number[] = [];
    for (let j = 0; j < 60; j++) {
      first.push(a.append(keys.data, j * 6));
      expect(b.append(j < 30 ? keys.data : others.data, j * 6) === first[j]).toBe(j < 30);
    }
    for (let j = 0; j < 30; j++) expect(a.keeps(j)).toBe(b.keeps(j));
    expect(first.every((salience) => salience > 0 && salience < 1)).toBe(true);
    expect(first.filter((_, j) => a.keeps(j)).length).toBe(30);
  });

  it('decides about log-stride tokens only', () => {
    const gate = new FastGrnnGate(weights(3), 1.1); // keeps nothing
    for (let j = 0; j < 64; j++) gate.append(new Float32Array(6));
    const policy = parsePolicy('subquadratic:window=4,block=8,globals=0+8') as SubquadraticPolicy;
    const set = new CandidateSet({ policy, keepStride: gate.keeps });
    set.enumerate(40, 64);
    expect([...set.tokens.subarray(0, set.numTokens)]).toEqual([36, 37, 38, 39, 40, 0, 8]);
    expect(gate.length).toBe(64);
    expect(() => new FastGrnnGate({ ...weights(1), hiddenDim: 5 })).toThrow('FastGrnnGate');
  });
});
