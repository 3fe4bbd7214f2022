/** A search for a model with learned sinks: policies without them are left out, with the engine's reason. */
import { fileURLToPath } from 'node:url';
import { createWasmBackend } from '@winnow/backend-wasm';
import { loadModel } from '@winnow/engine';
import { expect, test } from 'vitest';
import { tuneAttention } from '../src/index.js';

const path = fileURLToPath(new URL('../../engine/test/fixtures/arch/gpt-oss/model.gguf', import.meta.url));
const windowOf = (step: number): Int32Array => Int32Array.from({ length: 64 }, (_, i) => 3 + ((i * step) % 100));

test('gpt-oss', async () => {
  const backend = await createWasmBackend({ numThreads: 1 });
  const report = await tuneAttention({
    open: ({ backend: _default, ...options }) => loadModel(path, { ...options, backend }),
    ...{ modelHash: 'xxh:1', machine: 'this', costs: 'pairs', budget: { kld: 0.5 }, numRounds: 1, numRows: 4 },
    ...{ seed: 1, search: { name: 'a', windows: [windowOf(7)] }, heldOut: { name: 'b', windows: [windowOf(11)] } },
    candidates: {
      prefill: ['streaming:window=16', 'streaming:window=16,delta=64', 'h2o:chunk=16,local=4,heavy=4'],
      decode: ['streaming:window=16', 'sparq:rank=2,topk=16'],
    },
    uniform: { prefill: [], decode: [] },
  });
  expect(report.candidates.map(({ policy, refusal }) => [policy, refusal?.includes('learned sinks')])).toEqual([
    ['dense', undefined],
    ['streaming:window=16', undefined],
    ['streaming:window=16,delta=64', true],
    ['h2o-prefill:chunk=16,local=4,heavy=4', true],
    ['dense', undefined],
    ['streaming:window=16', undefined],
    ['sparq:rank=2,topk=16', true],
  ]);
  expect(report.attention).toContain('streaming:window=16');
  await backend.dispose();
});
