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
    file: 'packages/evaluation/src/logits/correlation.ts',
    find: 'for (let begin = 0; begin < order.length;) {',
    replace: 'for (let begin = 1; begin < order.length;) {',
    tests: ['src/tasks/sts.test.ts'],
  },
  {
    file: 'packages/evaluation/src/configuration.ts',
    find: "attention.layers.some((layer) => layer.phase === phase || layer.phase === 'both');",
    replace: 'attention.layers.some((layer) => layer.phase === phase);',
    tests: ['src/configuration.test.ts', 'test/evaluate.test.ts'],
  },
  {
    file: 'apps/server/src/create-server.ts',
    find: 'if (apiKeys.length > 0) requireApiKey(app, apiKeys);',
    replace: 'if (apiKeys.length > 1) requireApiKey(app, apiKeys);',
    tests: ['test/access.test.ts'],
  },
  {
    file: 'apps/server/src/requests/request-scope.ts',
    find: "shutdown.removeEventListener('abort', onShutdown);",
    replace: '',
    tests: ['test/soak.test.ts'],
  },
  {
    file: 'apps/server/src/routes/embeddings.ts',
    find: 'const numTokens = embedded.reduce((total, text) => total + text.numTokens, 0);',
    replace: 'const numTokens = embedded.reduce((total) => total + 1, 0);',
    tests: ['test/openai-client.test.ts'],
  },
  {
    file: 'apps/server/src/http/error-mapping.ts',
    find: "const failures = validation.filter(({ keyword }) => keyword !== 'anyOf');",
    replace: "const failures = validation.filter(({ keyword }) => keyword === 'anyOf');",
    tests: ['test/errors.test.ts'],
  },
  {
    file: 'apps/server/src/requests/chat-response.ts',
    find: 'yield event(opened({}), [], finishReasonOf(value.finishReason, numToolCalls > 0));',
    replace: 'yield event(opened({}), [], finishReasonOf(value.finishReason, false));',
    tests: ['test/openai-client.test.ts', 'test/constrained.test.ts'],
  },
  {
    file: 'apps/server/src/requests/chat-request.ts',
    find: 'if (tools.length === 0) return undefined;',
    replace: 'if (tools.length <= 1) return undefined;',
    tests: ['test/constrained.test.ts'],
  },
  {
    file: 'apps/server/src/requests/sampling.ts',
    find: '{ ...options, seed: seed + index }',
    replace: '{ ...options, seed }',
    tests: ['test/openai-scoring.test.ts'],
  },
  {
    file: 'apps/server/src/requests/completion-response.ts',
    find: 'ignoreEos: echo && logprobs !== undefined && maxTokens === 1 ? true : undefined,',
    replace: '',
    tests: ['test/openai-scoring.test.ts'],
  },
  {
    file: 'apps/server/src/requests/logprobs.ts',
    find: 'if (!top.has(text)) top.set(text, entry.logprob);',
    replace: 'top.set(text, entry.logprob);',
    tests: ['test/logprobs.test.ts'],
  },
  {
    file: 'apps/cli/src/commands/chat.ts',
    find: "if (line.startsWith('/') && !line.startsWith('//')) {",
    replace: "if (line.startsWith('/')) {",
    tests: ['test/chat.test.ts'],
  },
  {
    file: 'apps/cli/src/commands/run.ts',
    find: "if (out.isTerminal && !endsLine(streamed.text)) await out.write('\\n');",
    replace: "if (!endsLine(streamed.text)) await out.write('\\n');",
    tests: ['test/run.test.ts', 'test/demo-model.test.ts'],
  },
  {
    file: 'apps/cli/src/commands/serve.ts',
    find: 'seconds === undefined ? undefined : Math.max(1, Math.round(seconds * 1000));',
    replace: 'seconds === undefined ? undefined : Math.max(1, Math.round(seconds));',
    tests: ['test/serve.test.ts'],
  },
  {
    file: 'apps/cli/src/commands/calibrate.ts',
    find: 'if (flags.targetRecall !== undefined && flags.targetSparsity !== undefined) {',
    replace: 'if (flags.targetRecall !== undefined && flags.targetSparsity === undefined) {',
    tests: ['test/calibrate.test.ts'],
  },
  {
    file: 'apps/cli/src/terminal/profile-table.ts',
    find: '.sort(([, a], [, b]) => b.timeMs - a.timeMs)',
    replace: '.sort(([, a], [, b]) => a.timeMs - b.timeMs)',
    tests: ['src/terminal/profile-table.test.ts'],
  },
  {
    file: 'apps/cli/src/chat/commands.ts',
    find: "if (argument === '') throw new UsageError(`${command}: expected a file name, got none`);",
    replace: '',
    tests: ['test/chat.test.ts', 'test/sessions.test.ts'],
  },
  {
    file: 'apps/cli/src/flags/engine-options.ts',
    find: 'firstTokens: flags.kvEvictionFirstTokens,',
    replace: 'firstTokens: flags.kvEvictionRecentTokens,',
    tests: ['test/eviction.test.ts'],
  },
  {
    file: 'apps/cli/src/flags/engine-options.ts',
    find: 'group<KvOffloadOptions>({ memory: flags.kvOffloadMemory, folder: flags.kvOffloadFolder })',
    replace: 'group<KvOffloadOptions>({ memory: flags.kvOffloadMemory })',
    tests: ['test/kv-tiers.test.ts'],
  },
  {
    file: 'packages/langchain/src/chat-winnow.ts',
    find: "for await (const { text } of generation) if (text !== '') yield* reader.push(text);",
    replace: "for await (const { text } of generation) if (text === '') yield* reader.push(text);",
    tests: ['test/chat-winnow.test.ts'],
  },
  {
    file: 'packages/embedding-provider/src/checks.ts',
    find: 'if (vector.length !== dimensions) {',
    replace: 'if (vector.length < dimensions) {',
    tests: ['test/provider.test.ts', 'test/stores.test.ts'],
  },
  {
    file: 'packages/inference-backend/src/checks.ts',
    find: 'const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);',
    replace: 'const total = logits.reduce((sum, logit) => Math.max(sum, Math.exp(logit)), 0);',
    tests: ['test/faults.test.ts', 'test/engine.test.ts'],
  },
];
