/** Defects in what tests rely on: the formulations of conformance, the demo model, test-utils, the bench. */
import type { Mutant } from '../mutant.ts';

export const testSupportMutants: readonly Mutant[] = [
  {
    file: 'packages/conformance/src/cases/sparse-combine.ts',
    find: 'let sum = before?.[index] ?? 0;',
    replace: 'let sum = 0;',
    tests: ['test/reference.test.ts'],
    only: 'sparse-combine',
  },
  {
    file: 'packages/conformance/src/cases/rope.ts',
    find: 'if (dim >= rotaryDim) return [xs[index], 0];',
    replace: 'if (dim > rotaryDim) return [xs[index], 0];',
    tests: ['test/reference.test.ts'],
    only: 'rope',
  },
  {
    file: 'packages/conformance/src/compare.ts',
    find: 'ratio = Number.isNaN(expected) === Number.isNaN(found) ? 0 : Infinity;',
    replace: 'ratio = 0;',
    tests: ['test/canaries.test.ts'],
  },
  {
    file: 'packages/conformance/src/guarded-memory.ts',
    find: 'for (let at = 4 * word; at < a.length; at++) if (a[at] !== b[at]) return at;',
    replace: 'for (let at = 4 * word; at < 0; at++) if (a[at] !== b[at]) return at;',
    tests: ['test/canaries.test.ts'],
  },
  {
    file: 'packages/conformance/src/suite/coverage.ts',
    find: 'return new Set([...values, ...types, ...pairs]);',
    replace: 'return new Set([...values, ...types]);',
    tests: ['test/coverage.test.ts'],
  },
  {
    file: 'packages/conformance/src/suite/support-table.ts',
    find: 'return [dtype, answer.supported ? true : answer.reason];',
    replace: 'return [dtype, true];',
    tests: ['test/canaries.test.ts', 'test/ops-table.test.ts'],
  },
  {
    file: 'packages/demo-model/src/demo-model.ts',
    find: "new URL('./model/model.safetensors', import.meta.url)",
    replace: "new URL('./model/', import.meta.url)",
    tests: ['src/demo-model.test.ts'],
  },
  {
    file: 'packages/test-utils/src/shared-data.ts',
    find: 'return existsSync(path) ? path : undefined;',
    replace: 'return path;',
    tests: ['src/shared-data.test.ts'],
  },
  {
    file: 'packages/test-utils/src/serve-bytes.ts',
    find: "const body = request.method === 'HEAD' ? undefined : file.subarray(first, last + 1);",
    replace: "const body = request.method === 'HEAD' ? undefined : file.subarray(first, last);",
    tests: ['packages/bytes/src/sources.test.ts'],
  },
  {
    file: 'packages/test-utils/setup.mjs',
    find: 'if (violations.length > 0) throw',
    replace: 'if (violations.length > 1) throw',
    tests: ['tools/gates/test/history-gates.test.ts'],
    only: 'writes to the console',
  },
  {
    file: 'apps/bench/src/harness/measure.ts',
    find: 'round % 2 === 0 ? entries : entries.toReversed()',
    replace: 'entries',
    tests: ['src/harness/measure.test.ts'],
  },
  {
    file: 'apps/bench/src/harness/measure.ts',
    find: 'if (round >= 0) samples',
    replace: 'samples',
    tests: ['src/harness/measure.test.ts'],
  },
  {
    file: 'apps/bench/src/models/random-weights.ts',
    find: 'const key = `${dtype} ${deviation} ${seed}`;',
    replace: 'const key = `${dtype} ${deviation}`;',
    tests: ['src/models/synthetic-model.test.ts'],
  },
  {
    file: 'apps/bench/src/results/parse-text.ts',
    find: 'value: Number(value), best: Number(best), unit',
    replace: 'value: Number(best), best: Number(best), unit',
    tests: ['src/results/parse-text.test.ts'],
  },
  {
    file: 'apps/bench/src/docs/readme-tables.ts',
    find: 'return `${text.slice(0, from + begin.length)}',
    replace: 'return `${text.slice(0, from)}',
    tests: ['test/docs.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/language-model.ts',
    find: 'noCache: promptTokens - cachedTokens,',
    replace: 'noCache: promptTokens,',
    tests: ['test/ai.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/language-model.ts',
    find: "if (hasCalls) return { unified: 'tool-calls', raw };",
    replace: '',
    tests: ['test/ai.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/language-model.ts',
    find: "if (textId !== undefined) yield { type: 'text-end', id: textId };",
    replace: '',
    tests: ['test/ai.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/call.ts',
    find: 'stop: call.stopSequences,',
    replace: '',
    tests: ['test/ai.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/messages.ts',
    find: "return output.reason ?? 'The call was not allowed.';",
    replace: "return 'The call was not allowed.';",
    tests: ['src/messages.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/embedding-model.ts',
    find: 'embeddings.reduce((sum, { numTokens }) => sum + numTokens, 0)',
    replace: 'embeddings.length',
    tests: ['test/ai.test.ts'],
  },
];
