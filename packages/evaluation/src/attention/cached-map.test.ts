import { createRng, Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { drawCachedMaps } from '../plots/cached-drawing.js';
import { h2oPolicy } from '../suite/h2o-grid.js';
import type { AttentionCapture } from './capture.js';
import { createCachedMaps } from './cached-map.js';

/** 64 tokens of two KV heads, which attend to positions 5 and 9. */
function planted(): AttentionCapture {
  const rng = createRng(3);
  const random = (factor: number): Tensor3 => {
    const tensor = Tensor3.create(64, 2, 32);
    tensor.data.forEach((_, i) => (tensor.data[i] = factor * rng.nextGaussian()));
    return tensor;
  };
  const [q, k, v] = [random(0.05), random(0.05), random(1)];
  for (let t = 0; t < 64; t++) for (const head of [0, 1]) q.row(t, head).fill(1);
  k.row(5, 0).fill(2);
  k.row(9, 1).fill(2);
  return { name: 'planted', layer: 2, q, unrotatedQ: q, k, v, scale: 0.2, rotate: undefined };
}

describe('cached positions', () => {
  it('planted tokens are always cached, the last ones of each chunk once', async () => {
    const maps = await createCachedMaps(h2oPolicy(16, 2, 1, 0), planted());
    expect(maps.map(({ layer, head, tokensPerCell }) => [layer, head, tokensPerCell])).toEqual([
      [2, 0, 1],
      [2, 1, 1],
    ]);
    for (const [head, position] of [5, 9].entries()) {
      const { shares } = maps[head];
      expect(shares[position]).toBe(1); // all three sets
      expect(shares[15]).toBeCloseTo(1 / 3, 6); // local in the first set of three
      expect(shares[47]).toBe(1); // local in the only set that can contain it
      expect(shares[63]).toBeNaN(); // no set follows the last chunk
      // every set has L + H = 3 tokens
      const cached = shares.reduce((sum, share, t) => sum + (t < 48 ? share * (3 - Math.floor(t / 16)) : 0), 0);
      expect(cached).toBeCloseTo(9, 4);
    }
  });

  it('cells are means over their tokens', async () => {
    const fine = await createCachedMaps(h2oPolicy(16, 2, 1, 0), planted());
    const coarse = await createCachedMaps(h2oPolicy(16, 2, 1, 0), planted(), { maxCells: 16 });
    expect(coarse[0].tokensPerCell).toBe(4);
    for (let cell = 0; cell < 12; cell++) {
      const mean = fine[0].shares.subarray(4 * cell, 4 * cell + 4).reduce((sum, x) => sum + x / 4, 0);
      expect(coarse[0].shares[cell]).toBeCloseTo(mean, 6);
    }
  });

  it('are drawn: a row per head, dark where always cached', async () => {
    const svg = drawCachedMaps({ title: 'a < b', maps: await createCachedMaps(h2oPolicy(16, 2, 1, 0), planted()) });
    expect(svg).toContain('<title>a &lt; b</title>');
    expect(svg).toContain('layer 2, head 0');
    expect(svg.match(/head \d/g)).toHaveLength(2);
    expect(svg).toMatch(new RegExp(`fill="#08306b" d="M${96 + 5 * 12} 64h12v11`)); // position 5 of the first head
  });
});
