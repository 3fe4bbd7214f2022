/** Models without attention layers: their memory plan, and the options that they refuse. */
import { createReferenceBackend } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { inspectModel, loadModel, type LoadOptions } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';

const path = archPath('mamba', 'model.gguf') as string;

test('the plan has states, and no keys and values, whatever their dtype', async () => {
  const { plan, config } = await inspectModel(path, { context: 64, maxSessions: 2, kvCache: { dtype: 'q8_0' } });
  expect(config).toMatchObject({ numHeads: 0, numKvHeads: 0, headDim: 0, ffnDim: 0, recurrentLayers: [true, true] });
  // the position of each slot
  expect(plan.kvBytesPerToken).toBe(4);
  // two layers of 64 channels, each with 3 taps and a state of 8; rows for sessions, steps and snapshots
  const stateBytes = 2 * 64 * (3 + 8) * 4;
  const numSlots = 64 + 64;
  expect(plan.kvBytes).toBe((2 + 2 + 3) * stateBytes + 4 * numSlots);
});

test.each<[LoadOptions, RegExp]>([
  [{ attention: 'decode=page-topk:budget=4' }, /attention: expected dense for a model without attention layers/],
  [{ kvCache: { rotation: 'hadamard' } }, /kvCache\.rotation: expected none for a model without attention layers/],
  [{ kvCache: { eviction: 'least-attended' } }, /kvCache\.eviction: expected oldest .*, got "?least-attended/],
  [{ kvCache: { budget: 2 ** 20 } }, /kvCache\.budget: expected none .*, got "?1048576/],
  [{ kvCache: { offload: { memory: 2 ** 20 } } }, /kvCache\.offload: expected none/],
  [{ trace: { attention: true } }, /trace\.attention: expected none/],
  [{ trace: { visitedKeys: true } }, /trace\.visitedKeys: expected none/],
])('%o is refused', async (options, message) => {
  const backend = createReferenceBackend();
  const loaded = loadModel(path, { context: 64, maxSessions: 1, backend, ...options });
  await expect(loaded).rejects.toThrow(ArgumentError);
  await expect(loaded).rejects.toThrow(message);
  await backend.dispose();
});
