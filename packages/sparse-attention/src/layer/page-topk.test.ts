import { createRng, Tensor3 } from '@winnow/tensor';
import type { Backend } from '@winnow/ops';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { randomTensor } from '../../test/dense-truth.js';
import { parsePolicy } from '../policy/text.js';
import type { PageTopKPolicy } from '../policy/kinds.js';
import { exactWeights } from '../quality/metrics.js';
import { attend, type OneShotResult } from './attend.js';

const policyOf = (text: string): PageTopKPolicy => parsePolicy(`page-topk:${text}`) as PageTopKPolicy;

interface Outcome {
  readonly result: OneShotResult;
  /** Visited positions per KV head. */
  readonly visited: number[][];
}

async function run(backend: Backend, policy: PageTopKPolicy, q: Tensor3, k: Tensor3, v: Tensor3): Promise<Outcome> {
  const visited: number[][] = [];
  const onVisit = ({ tokens }: { tokens: Int32Array }): number => visited.push([...tokens]);
  return { result: await attend(policy, q, k, v, { backend, onVisit }), visited };
}

/** Keys that drift slowly, so that pages differ. */
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

const setting = fc.record({
  seed: fc.nat(1e6),
  seqLen: fc.integer({ min: 1, max: 400 }),
  size: fc.constantFrom(0.1, 1, 5, 40),
  budget: fc.oneof(fc.nat(12), fc.constant('all' as const)),
  epsilon: fc.constantFrom(0, 0.001, 0.02, 0.3),
  sinks: fc.nat(9),
  window: fc.integer({ min: 1, max: 30 }),
  pageSize: fc.integer({ min: 1, max: 12 }),
});

/** The certificates of one query against the exact weights of its heads. @param slack for sums in f32 */
function checkCertificates({ result, visited }: Outcome, q: Tensor3, k: Tensor3, v: Tensor3, slack: number): void {
  const { certificate = [], errorBound = [], out } = result;
  expect(certificate).toHaveLength(4);
  for (const [head, bound] of certificate.entries()) {
    const weights = exactWeights(q.row(0, head), k, head >> 1, k.seqLen);
    const kept = new Set(visited[head >> 1]);
    expect(kept.size).toBe(visited[head >> 1]?.length); // no token is visited twice
    const missing = weights.reduce((sum, weight, j) => (kept.has(j) ? sum : sum + weight), 0);
    expect(missing).toBeLessThanOrEqual(bound * (1 + slack) + slack);
    expect(bound).toBeLessThanOrEqual(1);
    const error = out
      .row(0, head)
      .map((y, d) => weights.reduce((sum, w, j) => sum + w * v.row(j, head >> 1)[d], 0) - y);
    expect(Math.hypot(...error)).toBeLessThanOrEqual((errorBound[head] ?? NaN) * (1 + slack) + 1e-5 + 8 * slack);
  }
}

/** Pages that hold a sink or a token of the window of the last query, and the last one where it is not full. */
function numFixedPages({ sinks, window, pageSize }: PageTopKPolicy, seqLen: number): number {
  return Array.from({ length: Math.ceil(seqLen / pageSize) }, (_, page) => page).filter((page) => {
    const end = (page + 1) * pageSize;
    return page * pageSize < sinks || end > seqLen - window || end > seqLen;
  }).length;
}

describeBackends('page-topk', (backend, isReference) => {
  // Queries of scale 40 give logits up to 1000, whose f32 error is up to 1e-4, and so is that of weights.
  const slack = isReference ? 1e-6 : 5e-4;

  it('the certificate bounds the missing mass, and its error bound the error of the output', async () => {
    let numCertified = 0;
    await fc.assert(
      fc.asyncProperty(setting, async ({ seed, seqLen, size, ...rest }) => {
        const q = randomTensor(seed, 1, 4, 8, size);
        const k = drifting(seed + 1, seqLen, 1);
        const v = randomTensor(seed + 2, seqLen, 2, 8);
        const policy: PageTopKPolicy = { kind: 'page-topk', ...rest };
        const outcome = await run(backend, policy, q, k, v);
        checkCertificates(outcome, q, k, v, slack);
        const { pages = [], certificate = [] } = outcome.result;
        for (const [head, bound] of certificate.entries()) {
          const numChosen = (pages[head >> 1] ?? NaN) - numFixedPages(policy, seqLen);
          const hasBudgetLeft = rest.budget === 'all' || numChosen < rest.budget;
          if (!hasBudgetLeft) continue;
          expect(bound).toBeLessThanOrEqual(rest.epsilon * (1 + slack));
          numCertified++;
        }
      }),
      { numRuns: isReference ? 60 : 150 },
    );
    expect(numCertified).toBeGreaterThan(50);
  });

  it('a fixed budget visits that many pages and bounds the mass that they miss', async () => {
    const q = randomTensor(5, 1, 4, 8);
    const [k, v] = [drifting(6, 400, 1), randomTensor(7, 400, 2, 8)];
    const { result, visited } = await run(backend, policyOf('budget=5,page=8,window=16,sinks=4'), q, k, v);
    // one page of sinks, two of the window, five selected by their bounds
    expect([...(result.pages ?? [])]).toEqual([8, 8]);
    for (const tokens of visited) expect(tokens).toHaveLength(8 * 8);
    expect(result.pairs).toBe(4 * 64);
    expect(result.density).toBeCloseTo(64 / 400, 12);
  });

  it('finds the page of a planted needle', async () => {
    const k = drifting(1, 1000, 0.3);
    const q = randomTensor(2, 1, 4, 8);
    for (const head of [0, 1]) k.row(517, head).set(Array.from(q.row(0, 2 * head), (x) => 9 * x));
    const v = randomTensor(3, 1000, 2, 8);
    const { visited } = await run(backend, policyOf('budget=1,page=16,window=32'), q, k, v);
    for (const tokens of visited) expect(tokens).toContain(517);
  });

  it('handles logits far beyond the range of exp', async () => {
    const q = randomTensor(1, 1, 4, 8, 1e4);
    const v = randomTensor(3, 200, 2, 8);
    const { result } = await run(backend, policyOf('budget=2,page=4,window=1'), q, drifting(2, 200, 10), v);
    expect([...(result.certificate ?? [NaN])].every((c) => c >= 0 && c <= 1)).toBe(true);
    expect(result.out.data.every(Number.isFinite)).toBe(true);
  });
});
