/** Remapping of positions against StreamingLLM's own way: keys rotated anew at their places in the cache. */
import { ropeFrequencies } from '@winnow/ops';
import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { largestDifference, randomTensor, truth } from '../../test/dense-truth.js';
import { AttentionLayer } from '../attention-layer.js';
import type { Rotate } from './streaming.js';

const headDim = 16;
const { frequencies } = ropeFrequencies({ base: 10000, rotaryDim: headDim });
const rotate: Rotate = (source, offset, position, out, outOffset) => {
  for (let i = 0; i < headDim / 2; i++) {
    const angle = position * frequencies[i];
    const [x, y] = [source[offset + i], source[offset + i + headDim / 2]];
    out[outOffset + i] = x * Math.cos(angle) - y * Math.sin(angle);
    out[outOffset + i + headDim / 2] = x * Math.sin(angle) + y * Math.cos(angle);
  }
};

const numTokens = 60;
const q = randomTensor(1, numTokens, 4, headDim);
const k = randomTensor(2, numTokens, 2, headDim);
const v = randomTensor(3, numTokens, 2, headDim);
const rotatedKeys = Tensor3.create(numTokens, 2, headDim);
for (let j = 0; j < numTokens; j++) for (const h of [0, 1]) rotate(k.row(j, h), 0, j, rotatedKeys.row(j, h), 0);

/** Positions within the cache: sinks, then the window, as if nothing had been between. */
function byDefinition(sinks: number, window: number): Tensor3 {
  const out = Tensor3.create(numTokens, 4, headDim);
  for (let i = 0; i < numTokens; i++) {
    const kept = Array.from({ length: i + 1 }, (_, j) => j).filter((j) => j < sinks || j > i - window);
    for (let h = 0; h < 4; h++) {
      const kvHead = h >> 1;
      const query = new Float32Array(headDim);
      rotate(q.row(i, h), 0, kept.length - 1, query, 0);
      const keys = kept.map((j, place) => {
        const key = new Float32Array(headDim);
        rotate(k.row(j, kvHead), 0, place, key, 0);
        return { key, value: v.row(j, kvHead) };
      });
      out.row(i, h).set(truth(query, keys, 1 / Math.sqrt(headDim)));
    }
  }
  return out;
}

/**
 * Every rotated component is rounded to f32, by at most 2^-24 |k|max each: logits differ by about 4 roundings of |q||k|
 * <= 16 x 5 x 5 / 4, outputs by twice that times |v|.
 */
const bound = 2 * 4 * 100 * 2 ** -24 * 5;

describe.each([
  [2, 9],
  [0, 5],
  [7, 1],
  [40, 40],
])('%i sinks, window of %i', (sinks, window) => {
  const policy = `streaming:window=${window},sinks=${sinks}`;
  const expected = byDefinition(sinks, window);

  it('a ring of constant size gives what keys rotated anew give, in prefill and decode', () => {
    const layer = new AttentionLayer({ prefill: policy, decode: policy, numHeads: 4, numKvHeads: 2, headDim, rotate });
    expect(layer.store.capacity).toBe(sinks + window);
    const start = layer.prefill(q.slice(0, 25), rotatedKeys.slice(0, 25), v.slice(0, 25));
    expect(largestDifference(start, expected.slice(0, 25))).toBeLessThan(bound);
    for (let i = 25; i < numTokens; i++) {
      const out = layer.decode(q.slice(i, i + 1), rotatedKeys.slice(i, i + 1), v.slice(i, i + 1));
      expect(largestDifference(out, expected.slice(i, i + 1))).toBeLessThan(bound);
    }
  });

  it('a full cache gives the same as the ring', () => {
    const options = { decode: policy, numHeads: 4, numKvHeads: 2, headDim, rotate, keyDType: 'f16' } as const;
    const ring = new AttentionLayer({ ...options, prefill: policy });
    const full = new AttentionLayer({ ...options, capacity: numTokens });
    const a = ring.prefill(q, rotatedKeys, v);
    expect(a.data).toEqual(full.decode(q, rotatedKeys, v).data);
  });
});

it('a ring refuses to go back to tokens it has forgotten', () => {
  const layer = new AttentionLayer({
    prefill: 'streaming:window=8',
    decode: 'streaming:window=8',
    numHeads: 4,
    numKvHeads: 2,
    headDim,
  });
  layer.prefill(q, k, v);
  expect(() => layer.truncate(30)).toThrow('the ring has forgotten older tokens');
});
