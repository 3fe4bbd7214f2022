/** Defects in evaluation, adapters, the server and the command line. */
import type { Mutant } from '../mutant.ts';

export const applicationsMutants: readonly Mutant[] = [
  {
    file: 'packages/evaluation/src/logits/statistics.ts',
    find: 'if (sorted.length === 0) return 0;',
    replace: '',
    tests: ['src/logits/divergence.test.ts', 'src/logits/forced-decoding.test.ts', 'test/evaluate.test.ts'],
  },
  {
    file: 'apps/cli/src/chat/commands.ts',
    find: "if (argument === '') throw new UsageError(`${command}: expected a file name, got none`);",
    replace: '',
    tests: ['test/chat.test.ts', 'test/sessions.test.ts'],
  },
  {
    file: 'packages/inference-backend/src/create-inference-backend.ts',
    find: "if (state !== 'new') return;",
    replace: '',
    tests: ['test/engine.test.ts', 'test/faults.test.ts'],
  },
  {
    file: 'packages/ai-sdk/src/language-model.ts',
    find: "if (textId !== undefined) yield { type: 'text-end', id: textId };",
    replace: '',
    tests: ['test/ai.test.ts'],
  },
];
