import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomTensor, truth } from '../../test/dense-truth.js';
import { attendKeys } from '../layer/attend-keys.js';
import { subquadraticKeys } from '../lowering/subquadratic.js';
import { FastGrnnGate, type FastGrnnWeights } from './salience-gate.js';
import { parsePolicy } from './text.js';
import type { SubquadraticPolicy } from './kinds.js';

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
  it('is causal: later tokens do not change decisions', () => {
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

  it('applies to log-stride tokens only', () => {
    const gate = new FastGrnnGate(weights(3), 1.1); // keeps nothing
    for (let j = 0; j < 64; j++) gate.append(new Float32Array(6));
    const policy = parsePolicy('subquadratic:window=4,block=8,globals=0+8') as SubquadraticPolicy;
    const { tokens } = subquadraticKeys(policy, 40, 64, { keepStride: gate.keeps });
    expect([...tokens]).toEqual([0, 8, 36, 37, 38, 39, 40]);
    expect(gate.length).toBe(64);
    expect(() => new FastGrnnGate({ ...weights(1), hiddenDim: 5 })).toThrow('FastGrnnGate');
  });

  it('selects the keys that queries attend to', async () => {
    const [q, k, v] = [randomTensor(1, 64, 2, 6), randomTensor(2, 64, 1, 6), randomTensor(3, 64, 1, 6)];
    const probe = new FastGrnnGate(weights(3));
    const saliences = Array.from({ length: 64 }, (_, j) => probe.append(k.data, j * 6));
    const gate = new FastGrnnGate(weights(3), saliences.toSorted((x, y) => x - y)[32]);
    for (let j = 0; j < 64; j++) gate.append(k.data, j * 6);
    const policy = parsePolicy('subquadratic:window=4,landmarks=off') as SubquadraticPolicy;
    const keysOf = (i: number): Int32Array => subquadraticKeys(policy, i, 64, { keepStride: gate.keeps }).tokens;
    const { out } = await attendKeys(q, k, v, keysOf);
    const keys = Array.from(keysOf(63), (j) => ({ key: k.row(j, 0), value: v.row(j, 0) }));
    expect(keys.length).toBeLessThan(subquadraticKeys(policy, 63, 64).tokens.length);
    const expected = truth(q.row(63, 1), keys, 1 / Math.sqrt(6));
    expected.forEach((value, d) => expect(out.row(63, 1)[d]).toBeCloseTo(value, 5));
  });
});
