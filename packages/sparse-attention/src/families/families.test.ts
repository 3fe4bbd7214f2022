/** What every family has to do: equal dense when everything is kept, and keep its books. */
import type { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { denseTruth, largestDifference, randomTensor, roundingBound } from '../../test/dense-truth.js';
import { attend, AttentionLayer } from '../attention-layer.js';

const seqLen = 70;
const data = (numHeads: number, numKvHeads: number, headDim = 32): { q: Tensor3; k: Tensor3; v: Tensor3 } => ({
  q: randomTensor(11, seqLen, numHeads, headDim),
  k: randomTensor(12, seqLen, numKvHeads, headDim),
  v: randomTensor(13, seqLen, numKvHeads, headDim),
});

const everything = [
  'dense',
  'oracle-topk:k=70',
  'subquadratic:window=70,landmarks=off',
  'subquadratic:window=70,block=8,landmarks=outside-window,bias=none',
  'streaming:window=70,sinks=0',
  'streaming:window=60,sinks=10',
];
const decodeOnly = [
  'sparq:rank=32,topk=70',
  'sparq:rank=32,topk=70,grouped=false,layout=both',
  'page-topk:budget=all,page=8,window=4,sinks=3',
  'page-topk:budget=20,page=4,window=1,sinks=0',
];

describe.each([
  [4, 4],
  [6, 2],
  [4, 1],
])('%i query heads, %i KV heads', (numHeads, numKvHeads) => {
  const { q, k, v } = data(numHeads, numKvHeads);
  const expected = denseTruth(q, k, v);
  const bound = roundingBound(v);

  it.each([...everything, ...decodeOnly])('%s equals dense in one call', (policy) => {
    const { out, pairs, densePairs, density } = attend(policy, q, k, v);
    expect(largestDifference(out, expected)).toBeLessThan(bound);
    expect(densePairs).toBe((numHeads * seqLen * (seqLen + 1)) / 2);
    expect(pairs).toBe(densePairs);
    expect(density).toBe(1);
  });

  it.each([...everything, ...decodeOnly])('%s equals dense token by token, after a dense prompt', (decode) => {
    const layer = new AttentionLayer({ decode, numHeads, numKvHeads, headDim: 32, capacity: seqLen });
    const start = layer.prefill(q.slice(0, 20), k.slice(0, 20), v.slice(0, 20));
    expect(largestDifference(start, expected.slice(0, 20))).toBeLessThan(bound);
    for (let i = 20; i < seqLen; i++) {
      const out = layer.decode(q.slice(i, i + 1), k.slice(i, i + 1), v.slice(i, i + 1));
      expect(largestDifference(out, expected.slice(i, i + 1))).toBeLessThan(bound);
    }
    expect(layer.report().density).toBe(1);
  });

  it('drafts that are rejected leave no trace', () => {
    for (const decode of [...everything, ...decodeOnly, 'sparq:rank=4,topk=9', 'page-topk:budget=2,page=4,window=3']) {
      const options = { decode, numHeads, numKvHeads, headDim: 32, capacity: seqLen };
      const once = new AttentionLayer(options);
      const drafted = new AttentionLayer(options);
      once.prefill(q.slice(0, 33), k.slice(0, 33), v.slice(0, 33));
      drafted.prefill(q.slice(0, 33), k.slice(0, 33), v.slice(0, 33));
      for (let i = 33; i < 63; i += 3) {
        const wrong = {
          q: randomTensor(i, 7, numHeads, 32),
          k: randomTensor(i, 7, numKvHeads, 32),
          v: randomTensor(i, 7, numKvHeads, 32),
        };
        drafted.decode(wrong.q, wrong.k, wrong.v);
        drafted.truncate(i);
        const a = once.decode(q.slice(i, i + 3), k.slice(i, i + 3), v.slice(i, i + 3));
        const b = drafted.decode(q.slice(i, i + 3), k.slice(i, i + 3), v.slice(i, i + 3));
        expect(largestDifference(a, b)).toBeLessThanOrEqual(bound); // f64 sums of values go back and forth
      }
    }
  });

  it.each([
    'dense',
    'oracle-topk:k=9',
    'streaming:window=9,sinks=2',
    'sparq:rank=8,topk=9',
    'page-topk:budget=2,page=4,window=3',
  ])('%s returns mass of one per query head, for the keys it says it visited', (policy) => {
    const mass = new Float32Array(numKvHeads * seqLen);
    const visited = new Set<number>();
    attend(policy, q.slice(69, 70), k, v, {
      mass,
      visits: {
        visit(query, firstHead, count, tokens, numTokens) {
          expect(query).toBe(69);
          for (let h = firstHead; h < firstHead + count; h++) {
            const kvHead = Math.floor((h * numKvHeads) / numHeads);
            for (const j of tokens.subarray(0, numTokens)) visited.add(kvHead * seqLen + j);
          }
        },
      },
    });
    expect(mass.reduce((a, b) => a + b, 0)).toBeCloseTo(numHeads, 4);
    for (const [i, value] of mass.entries()) expect(value > 0).toBe(visited.has(i));
  });
});

describe('refusals', () => {
  it('names what is wrong', () => {
    const { q, k, v } = data(4, 4);
    expect(() => attend('sparq', q, k, v, { causal: false })).toThrow(
      'bidirectional attention: expected dense | subquadratic',
    );
    expect(() => new AttentionLayer({ prefill: 'sparq', numHeads: 4, numKvHeads: 4, headDim: 8, capacity: 9 })).toThrow(
      'prefill: expected a policy that can prefill, got sparq',
    );
    expect(() => new AttentionLayer({ numHeads: 4, numKvHeads: 4, headDim: 8 })).toThrow('capacity');
    const layer = new AttentionLayer({ numHeads: 4, numKvHeads: 4, headDim: 32, capacity: 9 });
    expect(() => layer.prefill(q, k, v)).toThrow('KvStore: needed 70 tokens, available 9 tokens');
    expect(() => layer.truncate(1)).toThrow('expected 0 to 0, got 1');
  });
});
