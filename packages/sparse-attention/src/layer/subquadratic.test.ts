/** The policy against a separate f64 formulation: decode, chunked, grouped, bidirectional. */
import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import {
  denseTruth,
  largestDifference,
  randomTensor,
  roundingBound,
  truth,
  wasmBound,
  type WeightedKey,
} from '../../test/dense-truth.js';
import { countPairs, subquadraticKeys } from '../lowering/subquadratic.js';
import { parsePolicy } from '../policy/text.js';
import type { SubquadraticPolicy } from '../policy/kinds.js';
import { attend } from './attend.js';
import { AttentionLayer } from './attention-layer.js';

const policyOf = (text: string): SubquadraticPolicy => parsePolicy(`subquadratic:${text}`) as SubquadraticPolicy;

interface Tensors {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
}

function setup(seqLen: number, numHeads: number, numKvHeads: number, headDim = 16): Tensors {
  return {
    q: randomTensor(1, seqLen, numHeads, headDim),
    k: randomTensor(2, seqLen, numKvHeads, headDim),
    v: randomTensor(3, seqLen, numKvHeads, headDim),
  };
}

/** Mean of the rows of a block. */
function meanOf(tensor: Tensor3, kvHead: number, begin: number, end: number): number[] {
  return Array.from({ length: tensor.headDim }, (_, d) => {
    let sum = 0;
    for (let j = begin; j < end; j++) sum += tensor.row(j, kvHead)[d];
    return sum / (end - begin);
  });
}

/** Keys from the enumeration (tested elsewhere), means in f64 and one softmax by definition. */
function byDefinition({ q, k, v }: Tensors, policy: SubquadraticPolicy, causal = true): Tensor3 {
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  for (let i = 0; i < q.seqLen; i++) {
    const { tokens, blocks } = subquadraticKeys(policy, i, q.seqLen, { causal });
    for (let h = 0; h < q.numHeads; h++) {
      const kvHead = Math.floor((h * k.numHeads) / q.numHeads);
      const keys: WeightedKey[] = Array.from(tokens, (j) => ({ key: k.row(j, kvHead), value: v.row(j, kvHead) }));
      for (const block of blocks) {
        const [begin, end] = [block * policy.blockSize, Math.min(q.seqLen, (block + 1) * policy.blockSize)];
        const bias = policy.landmarkBias === 'log-count' ? Math.log(end - begin) : 0;
        keys.push({ key: meanOf(k, kvHead, begin, end), value: meanOf(v, kvHead, begin, end), bias });
      }
      out.row(i, h).set(truth(q.row(i, h), keys, 1 / Math.sqrt(q.headDim)));
    }
  }
  return out;
}

/**
 * Means are rounded to f32 after each token, up to 16 times: a logit of a landmark moves by at most 16 |q| |k| 2^-24 /
 * sqrt(d) <= 16 sqrt(d) qmax kmax 2^-24, a weight by twice that, an output by the sum of |v| over weights.
 */
function landmarkBound(data: Tensors): number {
  const max = ({ data: values }: Tensor3): number => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const logit = 16 * Math.sqrt(data.q.headDim) * max(data.q) * max(data.k) * 2 ** -24;
  return wasmBound(data) + (2 * logit + 16 * 2 ** -24) * max(data.v);
}

const policies = [
  'window=8,block=4,globals=0+5,landmarks=compat,bias=none',
  'window=8,block=4,landmarks=compat,bias=log-count',
  'window=13,block=4,globals=none,landmarks=outside-window,bias=none',
  'window=0,block=1,landmarks=off',
  'window=5,block=16,logstride=false,landmarks=compat,bias=none',
];

describeBackends('subquadratic over whole sequences', (backend, isReference) => {
  describe.each([
    [3, 3],
    [6, 2],
    [4, 1],
  ])('%i query heads, %i KV heads', (numHeads, numKvHeads) => {
    it.each(policies)('%s', async (text) => {
      const data = setup(77, numHeads, numKvHeads);
      const policy = policyOf(text);
      for (const causal of [true, false]) {
        const { out } = await attend(policy, data.q, data.k, data.v, { backend, causal });
        expect(largestDifference(out, byDefinition(data, policy, causal))).toBeLessThan(landmarkBound(data));
      }
    });
  });

  it('is dense when the window covers every key and landmarks are off', async () => {
    const data = setup(50, 4, 2);
    const bound = isReference ? roundingBound(data.v) : wasmBound(data);
    for (const text of ['window=50,landmarks=off', 'window=50,block=4,landmarks=outside-window,bias=none']) {
      for (const causal of [true, false]) {
        const expected = denseTruth(data.q, data.k, data.v, causal);
        const { out } = await attend(policyOf(text), data.q, data.k, data.v, { backend, causal });
        expect(largestDifference(out, expected)).toBeLessThan(bound);
      }
    }
  });

  const counts: readonly (readonly [number, number])[] = [
    [512, 59_778],
    [1024, 129_858],
    [2048, 272_130],
    [8192, 1_146_498],
  ];
  it.each(isReference ? counts.slice(0, 3) : counts)(
    'the op counts %i tokens: %i pairs per head, W=128, B=64, g=[0]',
    async (seqLen, pairs) => {
      const data = setup(seqLen, 1, 1, 4);
      const result = await attend(policyOf('bias=none'), data.q, data.k, data.v, { backend });
      expect(result.pairs).toBe(pairs);
      expect(countPairs(policyOf('bias=none'), seqLen)).toBe(pairs);
    },
  );
});

describeBackends('subquadratic over a cache', (backend) => {
  const policy = policyOf('window=8,block=4,globals=0+5,landmarks=compat,bias=log-count');
  const data = setup(90, 6, 2, 32);
  const expected = byDefinition(data, policy);
  const bound = landmarkBound(data);
  const sizes = { backend, numHeads: 6, numKvHeads: 2, headDim: 32, capacity: 90, prefill: policy, decode: policy };
  const part = ({ q, k, v }: Tensors, begin: number, end: number): [Tensor3, Tensor3, Tensor3] => [
    q.slice(begin, end),
    k.slice(begin, end),
    v.slice(begin, end),
  ];

  it('prompt chunks over a cache give the same results, and so do single tokens', async () => {
    for (const chunk of [1, 7, 32, 90]) {
      await using layer = new AttentionLayer(sizes);
      for (let begin = 0; begin < 90; begin += chunk) {
        const end = Math.min(90, begin + chunk);
        const { out } = await layer.prefill(...part(data, begin, end));
        expect(largestDifference(out, expected.slice(begin, end))).toBeLessThan(bound);
      }
    }
  });

  it('drafts are decoded in one call and truncated without a trace', async () => {
    await using layer = new AttentionLayer(sizes);
    await layer.prefill(...part(data, 0, 30));
    for (let i = 30; i < 80; i += 5) {
      await layer.decode(randomTensor(i, 6, 6, 32), randomTensor(i + 1, 6, 2, 32), randomTensor(i + 2, 6, 2, 32));
      await layer.truncate(i);
      const { out } = await layer.decode(...part(data, i, i + 5));
      expect(largestDifference(out, expected.slice(i, i + 5))).toBeLessThan(bound);
    }
  });

  it('reports the mass of tokens without that of landmarks', async () => {
    const mass = new Float32Array(2 * 90);
    const { q, k, v } = data;
    await attend(policy, q.slice(89, 90), k, v, { backend, mass });
    for (const kvHead of [0, 1]) {
      const tokens = mass.subarray(kvHead * 90, (kvHead + 1) * 90);
      const total = tokens.reduce((a, b) => a + b, 0);
      expect(total).toBeGreaterThan(0);
      expect(total).toBeLessThan(3); // three query heads per KV head
      expect([tokens[5] === 0, tokens[6]]).toEqual([false, 0]);
    }
  });

  it.each(['f16', 'q8_0'] as const)('reads %s rows as they are stored', async (dtype) => {
    await using layer = new AttentionLayer({ ...sizes, dtype });
    const { out } = await layer.prefill(data.q, data.k, data.v);
    // keys of norm 6 with errors of one step of their largest value shift logits, and values shift outputs
    const step = dtype === 'f16' ? 2 ** -11 : 1 / 254;
    expect(largestDifference(out, expected)).toBeLessThan(step * 60);
    expect(largestDifference(out, expected)).toBeGreaterThan(0);
  });
});
