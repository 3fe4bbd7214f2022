/** The family against a formulation of its own in f64: plain, flash, decode, chunked, grouped, bidirectional. */
import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import {
  denseTruth,
  largestDifference,
  randomTensor,
  roundingBound,
  truth,
  type WeightedKey,
} from '../../test/dense-truth.js';
import { KvStore } from '../core/kv-store.js';
import { rowsOf } from '../core/rows.js';
import { parsePolicy } from '../policy/policy-text.js';
import type { SubquadraticPolicy } from '../policy/policy-types.js';
import { CandidateSet } from './candidates.js';
import { SubquadraticAttention } from './subquadratic.js';

const policyOf = (text: string): SubquadraticPolicy => parsePolicy(`subquadratic:${text}`) as SubquadraticPolicy;

interface Setup {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
}

function setup(seqLen: number, numHeads: number, numKvHeads: number, headDim = 16): Setup {
  return {
    q: randomTensor(1, seqLen, numHeads, headDim),
    k: randomTensor(2, seqLen, numKvHeads, headDim),
    v: randomTensor(3, seqLen, numKvHeads, headDim),
  };
}

function forward({ q, k, v }: Setup, policy: SubquadraticPolicy, causal = true, flashTile?: number): Tensor3 {
  const kv = { keys: rowsOf(k), values: rowsOf(v), length: k.seqLen };
  const family = new SubquadraticAttention({ kv, numHeads: q.numHeads, policy, causal, flashTile });
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  family.attend(q, 0, out);
  return out;
}

/** Candidates from the enumeration (tested elsewhere), everything else by definition: means in f64 and one softmax. */
function byDefinition({ q, k, v }: Setup, policy: SubquadraticPolicy, causal = true): Tensor3 {
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  const set = new CandidateSet({ policy, causal });
  for (let i = 0; i < q.seqLen; i++) {
    set.enumerate(i, q.seqLen);
    for (let h = 0; h < q.numHeads; h++) {
      const kvHead = Math.floor((h * k.numHeads) / q.numHeads);
      const keys: WeightedKey[] = [];
      for (const j of set.tokens.subarray(0, set.numTokens))
        keys.push({ key: k.row(j, kvHead), value: v.row(j, kvHead) });
      for (const b of set.blocks.subarray(0, set.numBlocks)) {
        const begin = b * policy.blockSize;
        const end = Math.min(q.seqLen, begin + policy.blockSize);
        const mean = (tensor: Tensor3): number[] =>
          Array.from({ length: tensor.headDim }, (_, d) => {
            let sum = 0;
            for (let j = begin; j < end; j++) sum += tensor.row(j, kvHead)[d];
            return sum / (end - begin);
          });
        keys.push({
          key: mean(k),
          value: mean(v),
          bias: policy.landmarkBias === 'log-count' ? Math.log(end - begin) : 0,
        });
      }
      out.row(i, h).set(truth(q.row(i, h), keys, 1 / Math.sqrt(q.headDim)));
    }
  }
  return out;
}

/**
 * Means are rounded to f32 once: a logit of a landmark moves by at most |q| |k| 2^-24 / sqrt(d) <= sqrt(d) qmax kmax
 * 2^-24, a weight by twice that, an output by the sum of |v| over weights; values of landmarks move by half an ulp.
 */
function landmarkBound({ q, k, v }: Setup): number {
  const max = ({ data }: Tensor3): number => data.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const logit = Math.sqrt(q.headDim) * max(q) * max(k) * 2 ** -24;
  return roundingBound(v) * 2 + 2 * logit * 2 * max(v);
}

describe('forward', () => {
  const policies = [
    'window=8,block=4,globals=0+5,landmarks=compat,bias=none',
    'window=8,block=4,landmarks=compat,bias=log-count',
    'window=13,block=4,globals=none,landmarks=outside-window,bias=none',
    'window=0,block=1,landmarks=off',
    'window=5,block=16,logstride=false,landmarks=compat,bias=none,sort=true',
  ];
  for (const [numHeads, numKvHeads, kind] of [
    [3, 3, 'as many KV heads'],
    [6, 2, 'grouped'],
    [4, 1, 'one KV head'],
  ] as const) {
    it.each(policies)(`${kind}: %s`, (text) => {
      const data = setup(77, numHeads, numKvHeads);
      const policy = policyOf(text);
      for (const causal of [true, false]) {
        const expected = byDefinition(data, policy, causal);
        const bound = landmarkBound(data);
        expect(largestDifference(forward(data, policy, causal), expected)).toBeLessThan(bound);
        for (const tile of [1, 7, 16, 100]) {
          expect(largestDifference(forward(data, policy, causal, tile), expected)).toBeLessThan(bound);
        }
      }
    });
  }

  it('is dense when the window holds everything and landmarks add nothing', () => {
    const data = setup(50, 4, 2);
    for (const text of ['window=50,landmarks=off', 'window=50,block=4,landmarks=outside-window,bias=none']) {
      for (const causal of [true, false]) {
        const expected = denseTruth(data.q, data.k, data.v, causal);
        for (const tile of [undefined, 8]) {
          const actual = forward(data, policyOf(text), causal, tile);
          expect(largestDifference(actual, expected)).toBeLessThan(roundingBound(data.v));
        }
      }
    }
  });

  it('the flash form needs memory for the tile, whatever the length', () => {
    const scratch = (seqLen: number): number => {
      const { k, v } = setup(seqLen, 2, 2);
      const kv = { keys: rowsOf(k), values: rowsOf(v), length: seqLen };
      const family = new SubquadraticAttention({ kv, numHeads: 2, policy: policyOf('window=32'), flashTile: 16 });
      family.attend(setup(seqLen, 2, 2).q, 0, Tensor3.create(seqLen, 2, 16));
      return family.scratchBytes;
    };
    expect(scratch(400)).toBe(scratch(40));
  });
});

describe('over a cache', () => {
  const policy = policyOf('window=8,block=4,globals=0+5,landmarks=compat,bias=log-count');
  const data = setup(90, 6, 2, 32);
  const expected = forward(data, policy);
  const build = (options: Partial<ConstructorParameters<typeof KvStore>[0]> = {}): [KvStore, SubquadraticAttention] => {
    const kv = new KvStore({ capacity: 90, numKvHeads: 2, headDim: 32, ...options });
    return [kv, new SubquadraticAttention({ kv, numHeads: 6, policy })];
  };

  it('decodes row by row what forward computes, bit for bit', () => {
    const [kv, family] = build();
    const out = Tensor3.create(1, 6, 32);
    for (let i = 0; i < 90; i++) {
      kv.append(data.k, data.v, i, i + 1);
      family.appended();
      family.attend(data.q.slice(i, i + 1), i, out);
      expect(out.data).toEqual(expected.slice(i, i + 1).data);
    }
  });

  it('chunks of a prompt against what the cache holds give the same', () => {
    for (const chunk of [1, 7, 32, 90]) {
      const [kv, family] = build();
      for (let begin = 0; begin < 90; begin += chunk) {
        const end = Math.min(90, begin + chunk);
        kv.append(data.k, data.v, begin, end);
        family.appended();
        const out = Tensor3.create(end - begin, 6, 32);
        family.attend(data.q.slice(begin, end), begin, out);
        expect(out.data).toEqual(expected.slice(begin, end).data);
      }
    }
  });

  it('drafts are decoded in one call and truncated without a trace', () => {
    const [kv, family] = build();
    const step = (tensors: Setup, begin: number, end: number, at: number): Tensor3 => {
      kv.append(tensors.k, tensors.v, begin, end);
      family.appended();
      const out = Tensor3.create(end - begin, 6, 32);
      family.attend(tensors.q.slice(begin, end), at, out);
      return out;
    };
    step(data, 0, 30, 0);
    for (let i = 30; i < 80; i += 5) {
      const rejected = {
        q: randomTensor(i, 6, 6, 32),
        k: randomTensor(i + 1, 6, 2, 32),
        v: randomTensor(i + 2, 6, 2, 32),
      };
      step(rejected, 0, 6, i);
      kv.truncate(i);
      family.truncated(i);
      expect(step(data, i, i + 5, i).data).toEqual(expected.slice(i, i + 5).data);
    }
  });

  it('returns mass that sums to one per query head, and partial states', () => {
    const [kv, family] = build();
    kv.append(data.k, data.v);
    family.appended();
    const mass = new Float32Array(2 * 90);
    const blockMass = new Float32Array(2 * 23);
    const states = { m: new Float32Array(6), l: new Float32Array(6), o: new Float32Array(6 * 32) };
    const out = Tensor3.create(1, 6, 32);
    family.attend(data.q.slice(89, 90), 89, out, { mass, blockMass, states });
    for (const kvHead of [0, 1]) {
      const tokens = mass.subarray(kvHead * 90, (kvHead + 1) * 90);
      const total = [...tokens, ...blockMass.subarray(kvHead * 23, (kvHead + 1) * 23)].reduce((a, b) => a + b, 0);
      expect(total).toBeCloseTo(3, 5); // three query heads per KV head
      expect(tokens[5]).toBeGreaterThan(0);
      expect(tokens[6]).toBe(0);
    }
    for (let i = 0; i < 6 * 32; i++) expect(states.o[i] / states.l[Math.floor(i / 32)]).toBeCloseTo(out.data[i], 5);
  });

  it.each(['f16', 'q8_0'] as const)('reads %s rows as they are stored', (dtype) => {
    const [kv, family] = build({ keyDType: dtype, valueDType: dtype });
    kv.append(data.k, data.v);
    family.appended();
    const stored = { q: data.q, k: Tensor3.create(90, 2, 32), v: Tensor3.create(90, 2, 32) };
    for (let j = 0; j < 90; j++) {
      for (const head of [0, 1]) {
        const key = kv.keys.locate(j, head);
        stored.k.row(j, head).set(kv.keys.buffer.subarray(key, key + 32));
        const value = kv.values.locate(j, head);
        stored.v.row(j, head).set(kv.values.buffer.subarray(value, value + 32));
      }
    }
    const out = Tensor3.create(90, 6, 32);
    family.attend(data.q, 0, out);
    expect(out.data).toEqual(forward(stored, policy).data);
    const step = dtype === 'f16' ? 2 ** -11 : 1 / 254; // of the largest value of a block
    expect(largestDifference(stored.k, data.k)).toBeLessThan(step * 5 * 1.01);
  });

  it('refuses positions that are not there and shapes that do not fit', () => {
    const [kv, family] = build();
    kv.append(data.k, data.v, 0, 10);
    family.appended();
    expect(() => family.attend(data.q.slice(9, 11), 9, Tensor3.create(2, 6, 32))).toThrow('within the 10 tokens');
    expect(() => family.attend(data.q.slice(9, 10), 9, Tensor3.create(1, 5, 32))).toThrow('[1, 6, 32]');
    expect(() => new SubquadraticAttention({ kv, numHeads: 5, policy })).toThrow('a multiple of 2 KV heads');
  });
});
