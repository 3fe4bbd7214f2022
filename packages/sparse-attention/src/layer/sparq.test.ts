import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { denseTruth, largestDifference, randomTensor, roundingBound, wasmBound } from '../../test/dense-truth.js';
import { sparqTransfers } from '../policy/costs.js';
import { parsePolicy } from '../policy/text.js';
import type { SparqPolicy } from '../policy/kinds.js';
import { attend } from './attend.js';
import { AttentionLayer } from './attention-layer.js';

const policyOf = (text: string): SparqPolicy => parsePolicy(`sparq:${text}`) as SparqPolicy;
const length = 150;
const q = randomTensor(1, 1, 6, 32, 2);
const k = randomTensor(2, length, 2, 32);
const v = randomTensor(3, length, 2, 32);

const softmax = (logits: number[]): number[] => {
  const max = Math.max(...logits);
  const weights = logits.map((s) => Math.exp(s - max));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / sum);
};

const dot = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a).reduce((sum, x, i) => sum + x * (b[i] as number), 0);

const best = (scores: readonly number[], count: number): number[] =>
  scores
    .map((s, i) => ({ s, i }))
    .toSorted((a, b) => b.s - a.s)
    .slice(0, count)
    .map(({ i }) => i);

/** Steps 1 and 2 of the paper for one head: the selected tokens and their approximate weights. */
function choose(policy: SparqPolicy, h: number): { chosen: number[]; alpha: number } {
  const { rank, topK, local, temperature, grouped } = policy;
  const kvHead = Math.floor(h / 3);
  const group = grouped ? [0, 1, 2].map((i) => kvHead * 3 + i) : [h];
  const size = Array.from({ length: 32 }, (_, i) => group.reduce((sum, g) => sum + Math.abs(q.row(0, g)[i]), 0));
  const components = best(size, rank);
  const scores = group.map((g) => {
    const row = q.row(0, g);
    const norm = (indices: readonly number[]): number => indices.reduce((sum, i) => sum + Math.abs(row[i]), 0);
    const tau = Math.sqrt(temperature ? (32 * norm(components)) / norm(size.map((_, i) => i)) : 32);
    const logits = Array.from({ length }, (_, j) =>
      components.reduce((sum, i) => sum + row[i] * k.row(j, kvHead)[i], 0),
    );
    return softmax(logits.map((s) => s / tau));
  });
  const total = Array.from({ length: length - local }, (_, j) => scores.reduce((sum, s) => sum + s[j], 0));
  const recent = Array.from({ length: local }, (_, i) => length - 1 - i);
  const chosen = [...best(total, topK - local), ...recent];
  return { chosen, alpha: chosen.reduce((sum, j) => sum + scores[group.indexOf(h)][j], 0) };
}

/** The three steps of the paper, with plain sorts and sums. */
function byDefinition(policy: SparqPolicy): Tensor3 {
  const out = Tensor3.create(1, 6, 32);
  for (let h = 0; h < 6; h++) {
    const kvHead = Math.floor(h / 3);
    const { chosen, alpha } = choose(policy, h);
    const exact = softmax(chosen.map((j) => dot(k.row(j, kvHead), q.row(0, h)) / Math.sqrt(32)));
    const share = policy.meanValue ? alpha : 1;
    for (let d = 0; d < 32; d++) {
      const y = chosen.reduce((sum, j, i) => sum + exact[i] * v.row(j, kvHead)[d], 0);
      const mean = Array.from({ length }, (_, j) => v.row(j, kvHead)[d]).reduce((a, b) => a + b, 0) / length;
      out.row(0, h)[d] = share * y + (1 - share) * mean;
    }
  }
  return out;
}

describeBackends('SparQ', (backend, isReference) => {
  // Mixing rounds only y, the means and the result: a few times the bound of one average.
  const bound = isReference ? 4 * roundingBound(v) : 2 * wasmBound({ q, k, v });

  it.each([
    'rank=8,topk=16',
    'rank=8,topk=16,local=0',
    'rank=8,topk=16,local=16',
    'rank=8,topk=16,mean=false',
    'rank=8,topk=16,temperature=false',
    'rank=8,topk=16,grouped=false',
    'rank=32,topk=1,local=0',
    'rank=1,topk=40',
  ])('%s matches the paper', async (text) => {
    const expected = byDefinition(policyOf(text));
    for (const layout of ['row', 'both']) {
      const { out, alpha } = await attend(`sparq:${text},layout=${layout}`, q, k, v, { backend });
      expect(largestDifference(out, expected)).toBeLessThan(bound);
      for (let h = 0; h < 6; h++) expect(alpha?.[h]).toBeCloseTo(choose(policyOf(text), h).alpha, 4);
    }
  });
});

describeBackends('SparQ compared with dense attention', (backend, isReference) => {
  const bound = isReference ? 4 * roundingBound(v) : 2 * wasmBound({ q, k, v });

  it('k >= S and r = d equals dense with alpha = 1, and so does S < k with any rank', async () => {
    const expected = denseTruth(q, k, v);
    for (const text of ['rank=32,topk=150', 'rank=2,topk=200']) {
      const { out, alpha } = await attend(`sparq:${text}`, q, k, v, { backend });
      expect(largestDifference(out, expected)).toBeLessThan(bound);
      expect([...(alpha ?? [])]).toEqual([1, 1, 1, 1, 1, 1]);
    }
  });

  it('approximate and exact mass stay within 1; at full rank alpha is the exact mass', async () => {
    for (const rank of [1, 4, 16, 32]) {
      const chosen: number[][] = [];
      const policy = `sparq:rank=${rank},topk=20,grouped=false`;
      const { alpha = [] } = await attend(policy, q, k, v, {
        backend,
        onVisit: ({ firstHead, tokens }) => (chosen[firstHead] = [...tokens]),
      });
      expect(alpha).toHaveLength(6);
      for (const [h, mass] of alpha.entries()) {
        expect(mass).toBeGreaterThan(0);
        expect(mass).toBeLessThanOrEqual(1);
        if (rank < 32) continue;
        const weights = softmax(
          Array.from({ length }, (_, j) => dot(q.row(0, h), k.row(j, Math.floor(h / 3))) / Math.sqrt(32)),
        );
        expect(mass).toBeCloseTo(chosen[h]?.reduce((sum, j) => sum + weights[j], 0) ?? NaN, 5);
      }
    }
  });

  it('equal keys give no NaN, and ties go to the lower position', async () => {
    const equal = Tensor3.from(new Float32Array(length * 64).fill(1), length, 2, 32);
    const { out } = await attend('sparq:rank=4,topk=8,local=2', q, equal, v, { backend });
    expect(out.data.every(Number.isFinite)).toBe(true);
    const zeros = Tensor3.create(length, 2, 32);
    const tokens: number[][] = [];
    await attend('sparq:rank=4,topk=8,local=2', Tensor3.create(1, 2, 32), zeros, v, {
      backend,
      onVisit: (visit) => tokens.push([...visit.tokens]),
    });
    expect(tokens).toEqual([
      [0, 1, 2, 3, 4, 5, 148, 149],
      [0, 1, 2, 3, 4, 5, 148, 149],
    ]);
  });
});

describeBackends('SparQ over caches', (backend) => {
  const bound = 2 * wasmBound({ q, k, v });

  it.each(['f16', 'q8_0'] as const)('reads %s, in both layouts', async (dtype) => {
    const outs: Tensor3[] = [];
    for (const layout of ['row', 'both']) {
      await using layer = new AttentionLayer({
        ...{ backend, numHeads: 6, numKvHeads: 2, headDim: 32, capacity: length, dtype },
        decode: `sparq:rank=8,topk=16,layout=${layout}`,
      });
      await layer.append(k.slice(0, length - 1), v.slice(0, length - 1));
      outs.push((await layer.decode(q, k.slice(length - 1, length), v.slice(length - 1, length))).out);
    }
    // Columns in f16 hold f16 keys exactly; of q8_0, alpha moves by at most 2 |q||k| 2^-11, and the mix by that times
    // |v|.
    const between = dtype === 'f16' ? bound : 2 * 32 * 8 * 5 * 2 ** -11 * 5;
    expect(largestDifference(outs[0] as Tensor3, outs[1] as Tensor3)).toBeLessThan(between);
    const { out } = await attend('sparq:rank=8,topk=16', q, k, v, { backend });
    expect(largestDifference(outs[0] as Tensor3, out)).toBeLessThan(0.5); // stored keys are off by up to 1/254
  });
});

describe('transfers', () => {
  it('are S r + 2 k d + 4 d elements per KV head, compared with 2 S d', () => {
    const { formula, dense, possibleSpeedup } = sparqTransfers(policyOf('rank=8,topk=16'), length, 32);
    expect(formula).toBe(150 * 8 + 2 * 16 * 32 + 4 * 32);
    expect(dense).toBe(2 * 150 * 32);
    expect(possibleSpeedup).toBeCloseTo(dense / formula, 12);
  });
});
