import { parsePolicy, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import { createRng, Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { h2oMemorySets } from './h2o-memory-sets.js';
import { measureHeavySets } from './heavy-sets.js';
import { syntheticCaptures } from './synthetic.js';

const policyOf = (text: string): H2oPrefillPolicy => parsePolicy(text) as H2oPrefillPolicy;

describe('heavy sets', () => {
  it('planted tokens survive rounding, and each head keeps the tokens that it attends to', async () => {
    const rng = createRng(3);
    const random = (heads: number, factor: number) => {
      const tensor = Tensor3.create(64, heads, 32);
      tensor.data.forEach((_, i) => (tensor.data[i] = factor * rng.nextGaussian()));
      return tensor;
    };
    const [q, k, v] = [random(2, 0.05), random(2, 0.05), random(2, 1)];
    for (let t = 0; t < 64; t++) for (const head of [0, 1]) q.row(t, head).fill(1);
    for (const [head, positions] of [
      [1, 4, 9],
      [2, 4, 10],
    ].entries()) {
      for (const position of positions) k.row(position, head).fill(2);
    }
    const capture = { name: 'planted', layer: 2, q, unrotatedQ: q, k, v, scale: 0.2, rotate: undefined };
    const report = await measureHeavySets(policyOf('h2o:chunk=16,local=2,heavy=3'), capture);
    // one common token of five
    expect(report).toMatchObject({ name: 'planted', layer: 2, numSets: 6, betweenRuns: 1, leastBetweenRuns: 1 });
    expect(report.betweenHeads).toBeCloseTo(1 / 5, 12);
  });

  it('the similarity is between 0 and 1 for heads of every kind, and 1 for empty sets', async () => {
    for (const capture of syntheticCaptures(96, 1)) {
      const { betweenRuns, leastBetweenRuns, numSets } = await measureHeavySets(
        policyOf('h2o:chunk=32,local=8,heavy=8'),
        capture,
      );
      expect(numSets).toBe(2 * capture.k.numHeads);
      expect(leastBetweenRuns).toBeLessThanOrEqual(betweenRuns);
      expect(betweenRuns).toBeGreaterThan(0.5); // rounding to 8 bits swaps only tokens of nearly equal scores
      expect(betweenRuns).toBeLessThanOrEqual(1);
      const alone = await measureHeavySets(policyOf('h2o:chunk=96'), capture);
      expect([alone.numSets, alone.betweenRuns, alone.betweenHeads]).toEqual([0, 1, 1]);
    }
  });
});

it('heavy positions are neither sinks nor local tokens', async () => {
  const [capture] = syntheticCaptures(96, 1);
  const sets = await h2oMemorySets(policyOf('h2o:chunk=32,local=4,heavy=8,sinks=3'), capture!);
  expect(sets.map(({ end }) => end)).toEqual([32, 64]);
  for (const { end, cached, isHeavy } of sets) {
    for (const positions of cached) {
      const others = [...positions].filter((position) => !isHeavy(position));
      expect(others).toEqual([0, 1, 2, end - 4, end - 3, end - 2, end - 1]);
      expect(positions).toHaveLength(others.length + 8);
    }
  }
});
