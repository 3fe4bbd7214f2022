import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomTensor } from '../../test/dense-truth.js';
import { describeBackends } from '../../test/backends.js';
import { attend } from '../layer/attend.js';
import { compareToDense } from './compare.js';
import { exactWeights, jaccard, massCaptured, outputErrors, recall, summarize } from './metrics.js';
import { createRotate, syntheticAttention, type HeadKind } from './synthetic.js';
import { VisitPicture } from './visit-picture.js';

describe('metrics', () => {
  it('summarize uses nearest-rank percentiles', () => {
    expect(summarize([3, 1, 2])).toEqual({ mean: 2, p99: 3, max: 3 });
    expect(summarize(Array.from({ length: 200 }, (_, i) => i + 1))).toEqual({ mean: 100.5, p99: 198, max: 200 });
    expect(summarize([])).toEqual({ mean: 0, p99: 0, max: 0 });
  });

  it('output errors are relative, per row', () => {
    const expected = Tensor3.from([3, 4, 0, 0, 0, 0], 3, 1, 2);
    const actual = Tensor3.from([3, 4.5, 0, 0, 1, 0], 3, 1, 2);
    expect([...outputErrors(expected, actual, 0)]).toEqual([0.1, 0, Infinity]);
    expect(() => outputErrors(expected, Tensor3.create(1, 1, 2), 0)).toThrow('[3, 1, 2]');
  });

  it('weights, mass and recall', () => {
    const k = Tensor3.from([0, Math.log(3), 0], 3, 1, 1);
    const weights = exactWeights(Float32Array.of(1), k, 0, 3);
    expect(weights[1]).toBeCloseTo(0.6, 6);
    expect(massCaptured(weights, [0, 2])).toBeCloseTo(0.4, 6);
    expect(recall([1, 2], [2, 5])).toBe(0.5);
    expect(recall([], [])).toBe(1);
  });
});

describe('synthetic attention', () => {
  /** Mean over the last 64 queries of the mass of the last 128 tokens, of the planted ones, and of the best 128. */
  const masses = (kind: HeadKind): { recent: number; planted: number; best: number } => {
    const { q, k, planted } = syntheticAttention({ kind, seqLen: 1024, seed: 3 });
    const sums = { recent: 0, planted: 0, best: 0 };
    for (let i = 960; i < 1024; i++) {
      const weights = exactWeights(q.row(i, 0), k, 0, i + 1);
      const sorted = weights.toSorted().reverse();
      for (let j = 0; j < 128; j++) {
        sums.recent += weights[i - j] / 64;
        sums.best += sorted[j] / 64;
      }
      for (const j of planted) if (j <= i) sums.planted += weights[j] / 64;
    }
    return sums;
  };

  it('has the requested kind of head', () => {
    expect(masses('local').recent).toBeGreaterThan(0.75);
    expect(masses('sinks').planted).toBeGreaterThan(0.5);
    const heavy = masses('heavy-hitters');
    expect(heavy.planted).toBeGreaterThan(0.4);
    expect(heavy.recent).toBeLessThan(0.5);
    const retrieval = masses('retrieval');
    expect(retrieval.best).toBeGreaterThan(retrieval.recent + 0.1);
    expect(masses('diffuse').best).toBeLessThan(0.4);
  });

  it('is reproducible from its seed, and applies RoPE', () => {
    const options = { kind: 'local', seqLen: 20, numHeads: 4, numKvHeads: 2, headDim: 8, seed: 5 } as const;
    const a = syntheticAttention(options);
    const b = syntheticAttention(options);
    expect(a.q.data).toEqual(b.q.data);
    expect(a.k.data).not.toEqual(syntheticAttention({ ...options, seed: 6 }).k.data);
    const row = new Float32Array(8);
    createRotate(8)(a.unrotatedQ.row(13, 2), 0, 13, row, 0);
    expect(row).toEqual(a.q.row(13, 2));
    expect(() => syntheticAttention({ ...options, headDim: 7 })).toThrow('an even head size');
  });
});

describeBackends('compareToDense', (backend) => {
  const sizes = { seqLen: 300, numHeads: 4, numKvHeads: 2, headDim: 16, seed: 2 } as const;
  const data = syntheticAttention({ kind: 'heavy-hitters', ...sizes });

  it('dense is perfect', async () => {
    for (const head of await compareToDense('dense', data, { backend })) {
      expect(head.error.max).toBe(0);
      expect(head.mass.mean).toBeCloseTo(1, 12);
      expect([head.recall, head.density]).toEqual([1, 1]);
    }
  });

  it('the oracle captures at least as much mass as any policy with the same budget', async () => {
    for (const policy of [
      'subquadratic:window=20,landmarks=off',
      'streaming:window=30,sinks=2',
      'sparq:rank=4,topk=24',
      'sparq:rank=4,topk=24,grouped=false',
      'page-topk:budget=2,page=8,window=8',
      'h2o:chunk=64,local=16,heavy=16',
    ]) {
      for (const head of await compareToDense(policy, data, { begin: 100, backend })) {
        expect(head.oracle.mass.mean).toBeGreaterThanOrEqual(head.mass.mean);
        expect(head.density).toBeLessThan(0.5);
        expect(head.minMass).toBeLessThanOrEqual(head.mass.mean);
      }
    }
    const [oracle] = await compareToDense('oracle-topk:k=24', data, { begin: 100, backend });
    expect(oracle?.mass.mean).toBeCloseTo(oracle?.oracle.mass.mean ?? NaN, 6);
    expect(oracle?.recall).toBeCloseTo(24 / 32, 3);
    expect(oracle?.error.mean).toBeCloseTo(oracle?.oracle.error.mean ?? NaN, 4);
  });

  it('streaming is compared with queries at remapped positions', async () => {
    const { unrotatedQ, rotate } = data;
    const options = { policyQueries: unrotatedQ, rotate, backend };
    const [head] = await compareToDense('streaming:window=300,sinks=0', data, options);
    expect(head?.error.max).toBeLessThan(1e-5);
  });
});

it('visit maps show the visited keys', async () => {
  const picture = new VisitPicture({ numTokens: 64, size: 8, head: 1 });
  const q = randomTensor(1, 64, 2, 4);
  await attend('streaming:window=8,sinks=8', q, q, q, { onVisit: picture.add });
  expect([picture.tokenPairs[0], picture.tokenPairs[10], picture.tokenPairs[63]]).toEqual([1, 11, 16]);
  const shares = picture.shares();
  expect(shares[7 * 8]).toBe(1); // sinks in the last rows
  expect(shares[7 * 8 + 3]).toBe(0);
  expect(shares[7 * 8 + 7]).toBeCloseTo(36 / 64, 6);
  expect(shares[7 * 8 + 6]).toBeCloseTo(28 / 64, 6);
  const blocks = new VisitPicture({ numTokens: 64 });
  await attend('subquadratic:window=4,block=8', q, q, q, { onVisit: blocks.add });
  expect(blocks.blockPairs[63]).toBe(4);
});

it('compares heavy sets by Jaccard similarity', () => {
  expect(jaccard([1, 2, 3, 9], [2, 3, 4])).toBe(2 / 5);
  expect(jaccard([], [])).toBe(1);
  expect(jaccard([1], [])).toBe(0);
});
