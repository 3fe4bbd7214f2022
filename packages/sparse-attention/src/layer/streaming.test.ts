/** Remapped positions against the original StreamingLLM: keys re-rotated at their positions in the cache. */
import { ropeFrequencies } from '@winnow/ops';
import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { largestDifference, randomTensor, truth } from '../../test/dense-truth.js';
import type { Rotate } from './call.js';
import { attend } from './attend.js';
import { AttentionLayer } from './attention-layer.js';

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

/** Positions within the cache: sinks, directly followed by the window. */
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

const part = (begin: number, end: number): [Tensor3, Tensor3, Tensor3] => [
  q.slice(begin, end),
  rotatedKeys.slice(begin, end),
  v.slice(begin, end),
];

describeBackends('streaming', (backend) => {
  describe.each([
    [2, 9],
    [0, 5],
    [7, 1],
    [40, 40],
  ])('%i sinks, window of %i', (sinks, window) => {
    const policy = `streaming:window=${window},sinks=${sinks}`;
    const expected = byDefinition(sinks, window);
    const sizes = { backend, numHeads: 4, numKvHeads: 2, headDim, rotate };

    it('a ring of constant size gives the results of re-rotated keys, in prefill and decode', async () => {
      await using layer = new AttentionLayer({ ...sizes, prefill: policy, decode: policy });
      const numSlots = Math.ceil((sinks + 2 * window - 1) / 64) * 64;
      expect(layer.report().cacheBytes).toBe(numSlots * 2 * 2 * headDim * 4);
      const start = await layer.prefill(...part(0, 25));
      expect(largestDifference(start.out, expected.slice(0, 25))).toBeLessThan(bound);
      for (let i = 25; i < numTokens; i++) {
        const { out } = await layer.decode(...part(i, i + 1));
        expect(largestDifference(out, expected.slice(i, i + 1))).toBeLessThan(bound);
      }
    });

    it('a full cache gives the same as the ring, including mass', async () => {
      const options = { ...sizes, decode: policy, dtype: { keys: 'f16', values: 'f32' } } as const;
      await using ring = new AttentionLayer({ ...options, prefill: policy });
      await using full = new AttentionLayer({ ...options, capacity: numTokens });
      const masses = [0, 1].map(() => new Float32Array(2 * numTokens));
      const a = await ring.prefill(q, rotatedKeys, v, { mass: masses[0] });
      const b = await full.decode(q, rotatedKeys, v, { mass: masses[1] });
      expect(largestDifference(a.out, b.out)).toBeLessThan(bound);
      const [ofRing, ofFull] = masses as [Float32Array, Float32Array];
      ofRing.forEach((value, i) => expect(value).toBeCloseTo(ofFull[i] ?? NaN, 3));
    });
  });

  it('drafts in a ring can be truncated, tokens that it has overwritten cannot', async () => {
    const streaming = 'streaming:window=8';
    await using layer = new AttentionLayer({
      ...{ backend, numHeads: 4, numKvHeads: 2, headDim, prefill: streaming, decode: streaming },
    });
    await layer.prefill(...part(0, 40));
    await expect(layer.truncate(30)).rejects.toThrow('the ring has overwritten older tokens');
    await expect(layer.attend('decode', q.slice(20, 21), 20)).rejects.toThrow(
      'a query whose window the ring still holds',
    );
    await layer.decode(...part(50, 54));
    await layer.truncate(40);
    const { out } = await layer.decode(...part(40, 43));
    const expected = await attend(streaming, ...part(0, 43), { backend });
    expect(largestDifference(out, expected.out.slice(40, 43))).toBeLessThan(bound);
  });
});

describeBackends('streaming with two windows', (backend) => {
  it.each([
    [16, 5],
    [5, 16],
  ])('a ring fits the wider of the windows: %i in prefill, %i in decode', async (prefill, decode) => {
    const [first, then] = [prefill, decode].map((window) => `streaming:window=${window},sinks=2`);
    await using layer = new AttentionLayer({
      ...{ backend, numHeads: 4, numKvHeads: 2, headDim, rotate, prefill: first, decode: then },
    });
    const start = await layer.prefill(...part(0, 40));
    expect(largestDifference(start.out, byDefinition(2, prefill).slice(0, 40))).toBeLessThan(bound);
    for (let i = 40; i < numTokens; i++) {
      const { out } = await layer.decode(...part(i, i + 1));
      expect(largestDifference(out, byDefinition(2, decode).slice(i, i + 1))).toBeLessThan(bound);
    }
  });
});
