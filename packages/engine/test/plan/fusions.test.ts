/** Programs with fused ops give bit-identical results. */
import { createWasmBackend } from '@winnow/backend-wasm';
import {
  createReferenceBackend,
  fuseGatedMatmul,
  fuseNormMatmul,
  groupMatmuls,
  rewriteProgram,
  validateProgram,
  type Backend,
  type Program,
  type RewriteRule,
} from '@winnow/ops';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { archPath, goldenNames } from '../support/golden-files.js';
import { openSteps, type Part } from '../support/step-harness.js';

let wasm: Backend;
beforeAll(async () => {
  wasm = await createWasmBackend({ numThreads: 1 });
});
afterAll(() => wasm.dispose());

const tokens = Array.from({ length: 12 }, (_, i) => 3 + ((i * 29) % 190));
/** The prompt of one sequence, then one of its tokens together with the prompt of another sequence. */
const steps: readonly (readonly Part[])[] = [
  [{ tokens, begin: 0, firstBlock: 0, from: -1, to: 0 }],
  [
    { tokens: [7], begin: 12, firstBlock: 0, from: 0, to: 1 },
    { tokens: tokens.slice(3, 9), begin: 0, firstBlock: 16, from: -1, to: 2 },
  ],
  [{ tokens: [11], begin: 13, firstBlock: 0, from: 1, to: 0 }],
];

async function logprobsOf(path: string, backend: Backend, rewrite?: (program: Program) => Program): Promise<unknown[]> {
  const runner = await openSteps(path, backend, rewrite);
  const results: unknown[] = [];
  for (const parts of steps) results.push(await runner.run(parts));
  await runner.close();
  return results;
}

const countsOf = ({ records }: Program, op: string): number => records.filter((record) => record.op === op).length;
/** Counts matmuls that directly follow a matmul of the same activations. */
const countGrouped = ({ records }: Program): number =>
  records.filter(({ op, inputs }, index) => {
    const before = records[index - 1];
    return op === 'matmul' && before?.op === 'matmul' && before.inputs['x']?.name === inputs['x']?.name;
  }).length;

async function checkFusions(path: string): Promise<void> {
  const reference = createReferenceBackend();
  const seen: Program[] = [];
  const rewriteBy =
    (...rules: RewriteRule[]) =>
    (program: Program): Program => {
      const rewritten = rewriteProgram(program, rules);
      validateProgram(rewritten);
      seen.push(program, rewritten);
      return rewritten;
    };
  const expected = await logprobsOf(path, reference);
  const all = rewriteBy(groupMatmuls, fuseGatedMatmul, fuseNormMatmul);
  expect(await logprobsOf(path, reference, all)).toEqual(expected);
  const [before, after] = seen.splice(0) as [Program, Program];
  const numFused = countsOf(after, 'norm-matmul') + countsOf(after, 'gated-matmul');
  const numNorms = countsOf(before, 'rms-norm') + countsOf(before, 'glu');
  expect(countsOf(after, 'rms-norm') + countsOf(after, 'glu') < numNorms).toBe(numFused > 0);
  expect(await logprobsOf(path, wasm, rewriteBy(groupMatmuls))).toEqual(await logprobsOf(path, wasm));
  const [plain, grouped] = seen as [Program, Program];
  expect(countGrouped(grouped)).toBeGreaterThanOrEqual(countGrouped(plain));
  expect(grouped.records.length).toBe(plain.records.length);
}

for (const name of Object.values(goldenNames).flat()) {
  const path = archPath(name, 'model.gguf') ?? archPath(name, 'hf');
  const missing = path === undefined ? ' (needs ../shared/data/goldens)' : '';
  test.skipIf(path === undefined)(`${name}${missing}`, () => checkFusions(path as string));
}
