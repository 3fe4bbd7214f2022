import { Tensor3 } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { denseTruth, largestDifference, randomTensor, roundingBound } from '../../test/dense-truth.js';
import { KvStore } from '../core/kv-store.js';
import { rowsOf } from '../core/rows.js';
import { parsePolicy } from '../policy/policy-text.js';
import type { SparqPolicy } from '../policy/policy-types.js';
import { SparqAttention, sparqTransfers } from './sparq.js';

const policyOf = (text: string): SparqPolicy => parsePolicy(`sparq:${text}`) as SparqPolicy;
const length = 150;
const q = randomTensor(1, 1, 6, 32, 2);
const k = randomTensor(2, length, 2, 32);
const v = randomTensor(3, length, 2, 32);

function run(text: string, keys: Tensor3 = k, query: Tensor3 = q): { family: SparqAttention; out: Tensor3 } {
  const kv = { keys: rowsOf(keys), values: rowsOf(v), length: keys.seqLen };
  const family = new SparqAttention({ kv, numHeads: query.numHeads, policy: policyOf(text) });
  const out = Tensor3.create(1, query.numHeads, 32);
  family.attend(query, keys.seqLen - 1, out);
  return { family, out };
}

/** The three steps as the paper has them, with sorts and sums in the open. */
function byDefinition({ rank, topK, local, meanValue, temperature, grouped }: SparqPolicy): Tensor3 {
  const out = Tensor3.create(1, 6, 32);
  const softmax = (logits: number[]): number[] => {
    const max = Math.max(...logits);
    const weights = logits.map((s) => Math.exp(s - max));
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map((w) => w / sum);
  };
  for (let h = 0; h < 6; h++) {
    const kvHead = Math.floor(h / 3);
    const group = grouped ? [0, 1, 2].map((i) => kvHead * 3 + i) : [h];
    const size = Array.from({ length: 32 }, (_, i) => group.reduce((sum, g) => sum + Math.abs(q.row(0, g)[i]), 0));
    const components = size
      .map((s, i) => ({ s, i }))
      .toSorted((a, b) => b.s - a.s)
      .slice(0, rank)
      .map(({ i }) => i);
    const scores = group.map((g) => {
      const row = q.row(0, g);
      const norm = (indices: number[]): number => indices.reduce((sum, i) => sum + Math.abs(row[i]), 0);
      const all = norm(Array.from({ length: 32 }, (_, i) => i));
      const tau = Math.sqrt(temperature ? (32 * norm(components)) / all : 32);
      return softmax(
        Array.from({ length }, (_, j) => components.reduce((sum, i) => sum + row[i] * k.row(j, kvHead)[i], 0) / tau),
      );
    });
    const total = Array.from({ length }, (_, j) => scores.reduce((sum, s) => sum + s[j], 0));
    const recent = Array.from({ length: local }, (_, i) => length - 1 - i);
    const best = total
      .map((s, j) => ({ s, j }))
      .filter(({ j }) => j < length - local)
      .toSorted((a, b) => b.s - a.s)
      .slice(0, topK - local)
      .map(({ j }) => j);
    const chosen = [...best, ...recent];
    const exact = softmax(
      chosen.map((j) => k.row(j, kvHead).reduce((sum, x, i) => sum + x * q.row(0, h)[i], 0) / Math.sqrt(32)),
    );
    const alpha = meanValue ? chosen.reduce((sum, j) => sum + scores[group.indexOf(h)][j], 0) : 1;
    for (let d = 0; d < 32; d++) {
      const y = chosen.reduce((sum, j, i) => sum + exact[i] * v.row(j, kvHead)[d], 0);
      const mean = Array.from({ length }, (_, j) => v.row(j, kvHead)[d]).reduce((a, b) => a + b, 0) / length;
      out.row(0, h)[d] = alpha * y + (1 - alpha) * mean;
    }
  }
  return out;
}

describe('SparQ', () => {
  it.each([
    'rank=8,topk=16',
    'rank=8,topk=16,local=0',
    'rank=8,topk=16,local=16',
    'rank=8,topk=16,mean=false',
    'rank=8,topk=16,temperature=false',
    'rank=8,topk=16,grouped=false',
    'rank=32,topk=1,local=0',
    'rank=1,topk=40',
  ])('%s is what the paper says', (text) => {
    const expected = byDefinition(policyOf(text));
    // Mixing rounds y, the result and nothing else: twice the bound of one average.
    for (const layout of ['row', 'both']) {
      const { out } = run(`${text},layout=${layout}`);
      expect(largestDifference(out, expected)).toBeLessThan(2 * roundingBound(v));
    }
  });

  it('k >= S and r = d equals dense with alpha = 1; so does S < k with any rank', () => {
    const expected = denseTruth(q, k, v);
    for (const text of ['rank=32,topk=150', 'rank=2,topk=200']) {
      const { out, family } = run(text);
      expect(largestDifference(out, expected)).toBeLessThan(roundingBound(v));
      expect([...family.alpha]).toEqual([1, 1, 1, 1, 1, 1]);
    }
  });

  it('approximate and exact mass stay within 1; at full rank alpha is the exact mass', () => {
    const kv = { keys: rowsOf(k), values: rowsOf(v), length };
    for (const rank of [1, 4, 16, 32]) {
      const { family } = run(`rank=${rank},topk=20,grouped=false`);
      for (const alpha of family.alpha) {
        expect(alpha).toBeGreaterThan(0);
        expect(alpha).toBeLessThanOrEqual(1);
      }
      if (rank < 32) continue;
      const chosen: number[][] = [];
      family.attend(q, length - 1, Tensor3.create(1, 6, 32), {
        visits: { visit: (_query, _head, _count, tokens, n) => chosen.push([...tokens.subarray(0, n)]) },
      });
      for (let h = 0; h < 6; h++) {
        const at = (j: number): number => {
          const offset = kv.keys.locate(j, Math.floor(h / 3));
          return Math.exp(q.row(0, h).reduce((s, x, i) => s + x * kv.keys.buffer[offset + i], 0) / Math.sqrt(32));
        };
        const all = Array.from({ length }, (_, j) => at(j)).reduce((a, b) => a + b, 0);
        expect(family.alpha[h]).toBeCloseTo(chosen[h].reduce((sum, j) => sum + at(j), 0) / all, 10);
      }
    }
  });

  it('all-equal keys give no NaN, and ties go to the lower position', () => {
    const { out } = run('rank=4,topk=8,local=2', Tensor3.from(new Float32Array(length * 64).fill(1), length, 2, 32));
    expect(out.data.every(Number.isFinite)).toBe(true);
    const tokens: number[] = [];
    const kv = { keys: rowsOf(Tensor3.create(length, 2, 32)), values: rowsOf(v), length };
    const family = new SparqAttention({ kv, numHeads: 2, policy: policyOf('rank=4,topk=8,local=2') });
    family.attend(Tensor3.create(1, 2, 32), length - 1, Tensor3.create(1, 2, 32), {
      visits: { visit: (_query, head, _count, chosen, n) => head === 0 && tokens.push(...chosen.subarray(0, n)) },
    });
    expect(tokens).toEqual([0, 1, 2, 3, 4, 5, 148, 149]);
  });

  it.each(['f16', 'q8_0'] as const)('reads %s, in both layouts', (dtype) => {
    const kv = new KvStore({ capacity: length, numKvHeads: 2, headDim: 32, keyDType: dtype, valueDType: dtype });
    kv.append(k, v);
    const outs = ['row', 'both'].map((layout) => {
      // Columns in f16 hold f16 keys exactly; what q8_0 keys lose moves no choice in this data.
      const policy = policyOf(`rank=8,topk=16,layout=${layout}`);
      const family = new SparqAttention({ kv, numHeads: 6, policy, halfColumns: true });
      const out = Tensor3.create(1, 6, 32);
      family.attend(q, length - 1, out);
      expect(family.columnBytes).toBe(layout === 'row' ? 0 : Math.ceil(length / 64) * 64 * 64 * 2);
      return out;
    });
    // q8_0: alpha moves by at most 2 |q||k| 2^-11 through the columns, and the mix by that times |v|.
    const bound = dtype === 'f16' ? 2 * roundingBound(v) : 2 * 32 * 8 * 5 * 2 ** -11 * 5;
    expect(largestDifference(outs[0], outs[1])).toBeLessThan(bound);
    const decoded = (rows: typeof kv.keys): Tensor3 => {
      const tensor = Tensor3.create(length, 2, 32);
      for (let j = 0; j < length; j++) {
        for (const head of [0, 1]) {
          const at = rows.locate(j, head);
          tensor.row(j, head).set(rows.buffer.subarray(at, at + 32));
        }
      }
      return tensor;
    };
    const plain = { keys: rowsOf(decoded(kv.keys)), values: rowsOf(decoded(kv.values)), length };
    const family = new SparqAttention({ kv: plain, numHeads: 6, policy: policyOf('rank=8,topk=16') });
    const out = Tensor3.create(1, 6, 32);
    family.attend(q, length - 1, out);
    expect(outs[0].data).toEqual(out.data);
  });

  it('moves S r + 2 k d + 4 d elements per KV head, counted where it happens', () => {
    const policy = policyOf('rank=8,topk=16');
    const { formula, dense, possibleSpeedup } = sparqTransfers(policy, length, 32);
    expect(formula).toBe(150 * 8 + 2 * 16 * 32 + 4 * 32);
    expect(dense).toBe(2 * 150 * 32);
    expect(possibleSpeedup).toBeCloseTo(dense / formula, 12);
    const kv = { keys: rowsOf(k), values: rowsOf(v), length };
    const single = new SparqAttention({ kv, numHeads: 2, policy });
    single.attend(Tensor3.from(q.data.subarray(0, 64), 1, 2, 32), length - 1, Tensor3.create(1, 2, 32));
    expect(single.transferredElements).toBe(2 * formula);
  });
});
