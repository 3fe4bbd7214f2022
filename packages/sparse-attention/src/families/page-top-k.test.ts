import { createRng, Tensor3 } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { randomTensor } from '../../test/dense-truth.js';
import { rowsOf } from '../core/rows.js';
import { parsePolicy } from '../policy/policy-text.js';
import type { PageTopKPolicy } from '../policy/policy-types.js';
import { PageTopKAttention } from './page-top-k.js';

const policyOf = (text: string): PageTopKPolicy => parsePolicy(`page-topk:${text}`) as PageTopKPolicy;

interface Outcome {
  readonly family: PageTopKAttention;
  readonly out: Tensor3;
  /** Visited positions per KV head, in the order of visiting. */
  readonly visited: number[][];
}

function run(policy: PageTopKPolicy, q: Tensor3, k: Tensor3, v: Tensor3, twoLevels?: boolean): Outcome {
  const kv = { keys: rowsOf(k), values: rowsOf(v), length: k.seqLen };
  const family = new PageTopKAttention({ kv, numHeads: q.numHeads, policy, twoLevels });
  const out = Tensor3.create(1, q.numHeads, v.headDim);
  const visited: number[][] = [];
  family.attend(q, k.seqLen - 1, out, {
    visits: { visit: (_query, _head, _count, tokens, n) => visited.push([...tokens.subarray(0, n)]) },
  });
  return { family, out, visited };
}

/** Softmax over everything in f64, per query head. */
function weights(q: Tensor3, k: Tensor3, head: number): Float64Array {
  const kvHead = Math.floor((head * k.numHeads) / q.numHeads);
  const logits = Float64Array.from({ length: k.seqLen }, (_, j) => {
    let sum = 0;
    for (let i = 0; i < q.headDim; i++) sum += q.row(0, head)[i] * k.row(j, kvHead)[i];
    return sum / Math.sqrt(q.headDim);
  });
  const max = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const exps = logits.map((s) => Math.exp(s - max));
  const sum = exps.reduce((a, b) => a + b, 0);
  return exps.map((x) => x / sum);
}

/** Keys that drift slowly, so that pages differ, at logit sizes from tiny to extreme. */
function drifting(seed: number, seqLen: number, size: number): Tensor3 {
  const rng = createRng(seed);
  const tensor = Tensor3.create(seqLen, 2, 8);
  for (let j = 0; j < seqLen; j++) {
    for (const head of [0, 1]) {
      for (let i = 0; i < 8; i++) {
        const before = j === 0 ? 0 : tensor.row(j - 1, head)[i];
        tensor.row(j, head)[i] = 0.95 * before + 0.3 * size * rng.nextGaussian();
      }
    }
  }
  return tensor;
}

describe('certificate', () => {
  const setting = fc.record({
    seed: fc.nat(1e6),
    seqLen: fc.integer({ min: 1, max: 400 }),
    size: fc.constantFrom(0.1, 1, 5, 40),
    budget: fc.oneof(fc.nat(12), fc.constant('all' as const)),
    epsilon: fc.constantFrom(0, 0.001, 0.02, 0.3),
    sinks: fc.nat(9),
    window: fc.integer({ min: 1, max: 30 }),
    pageSize: fc.integer({ min: 1, max: 12 }),
    twoLevels: fc.boolean(),
  });

  it('is never below the mass that is missing, nor its bound below the error of the output', () => {
    fc.assert(
      fc.property(setting, ({ seed, seqLen, size, twoLevels, ...rest }) => {
        const q = randomTensor(seed, 1, 4, 8, size);
        const k = drifting(seed + 1, seqLen, 1);
        const v = randomTensor(seed + 2, seqLen, 2, 8);
        const policy: PageTopKPolicy = { kind: 'page-topk', ...rest };
        const { family, out, visited } = run(policy, q, k, v, twoLevels);
        for (let head = 0; head < 4; head++) {
          const p = weights(q, k, head);
          const kept = new Set(visited[head >> 1]);
          expect(kept.size).toBe(visited[head >> 1].length); // no token twice
          let missing = 0;
          for (const [j, weight] of p.entries()) if (!kept.has(j)) missing += weight;
          const certificate = family.report.certificate[head];
          expect(missing).toBeLessThanOrEqual(certificate * (1 + 1e-9) + 1e-15);
          expect(certificate).toBeLessThanOrEqual(1);
          const isBudgetLeft = rest.budget === 'all' || family.report.pagesVisited[head >> 1] < rest.budget;
          if (isBudgetLeft && rest.epsilon > 0) expect(certificate).toBeLessThanOrEqual(rest.epsilon);
          let error = 0;
          for (let d = 0; d < 8; d++) {
            let exact = 0;
            for (const [j, weight] of p.entries()) exact += weight * v.row(j, head >> 1)[d];
            error += (exact - out.row(0, head)[d]) ** 2;
          }
          expect(Math.sqrt(error)).toBeLessThanOrEqual(family.report.errorBound[head] + 1e-5); // 1e-5: outputs are f32
        }
      }),
      { numRuns: 600 },
    );
  });

  it('boxes of 16 pages visit the same pages in the same order', () => {
    const q = randomTensor(5, 1, 4, 8, 3);
    const k = drifting(6, 3000, 1);
    const v = randomTensor(7, 3000, 2, 8);
    for (const text of [
      'budget=7,page=8',
      'epsilon=0.05,page=8',
      'budget=all,page=8',
      'budget=40,page=4,sinks=33,window=77',
    ]) {
      const one = run(policyOf(text), q, k, v, false);
      const two = run(policyOf(text), q, k, v, true);
      if (text.startsWith('epsilon')) {
        // Whole boxes bound worse than their pages: a few more pages may be visited before the same certificate.
        for (const [i, tokens] of one.visited.entries()) expect(two.visited[i].slice(0, tokens.length)).toEqual(tokens);
      } else {
        expect(two.visited).toEqual(one.visited);
      }
      for (let h = 0; h < 4; h++) expect(two.family.report.certificate[h]).toBeGreaterThanOrEqual(0);
    }
  });

  it('survives logits far beyond exp', () => {
    const { family, out } = run(
      policyOf('budget=2,page=4,window=1'),
      randomTensor(1, 1, 4, 8, 1e4),
      drifting(2, 200, 10),
      randomTensor(3, 200, 2, 8),
    );
    expect([...family.report.certificate].every((c) => c >= 0 && c <= 1)).toBe(true);
    expect(out.data.every(Number.isFinite)).toBe(true);
  });
});

it('a fixed budget visits that many pages and says what they may miss', () => {
  const q = randomTensor(5, 1, 4, 8);
  const { family, visited } = run(
    policyOf('budget=5,page=8,window=16,sinks=4'),
    q,
    drifting(6, 400, 1),
    randomTensor(7, 400, 2, 8),
  );
  expect([...family.report.pagesVisited]).toEqual([5, 5]);
  expect(family.report.numPages).toBe(48); // 400 tokens less 4 sinks and the window of 16, in pages of 8
  for (const tokens of visited) expect(tokens.length).toBeLessThanOrEqual(4 + 16 + 5 * 8);
  expect(family.report.density).toBeCloseTo((visited[0].length + visited[1].length) / 800, 12);
});

it('finds the page of a planted needle', () => {
  const k = drifting(1, 1000, 0.3);
  const q = randomTensor(2, 1, 4, 8);
  for (const head of [0, 1]) k.row(517, head).set(Array.from(q.row(0, 2 * head), (x) => 9 * x));
  const { visited } = run(policyOf('budget=1,page=16,window=32'), q, k, randomTensor(3, 1000, 2, 8));
  for (const tokens of visited) expect(tokens).toContain(517);
});
