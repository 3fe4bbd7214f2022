/** With int8 activations, too, neurons computed in several passes are bit-identical to one pass. */
import { contractChecks, type ContractCheck } from '@winnow/conformance';
import { expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';

const check = contractChecks['several passes over neurons are bit-identical to one'] as ContractCheck;

test.each([
  { relaxedSimd: true, numThreads: 1 },
  { relaxedSimd: true, numThreads: 3 },
  { relaxedSimd: false, numThreads: 2 },
])('$numThreads threads, relaxed: $relaxedSimd', async (options) => {
  const create = () =>
    createWasmBackend({ maxMemoryBytes: 2 ** 26, minSharedWork: 0, activations: 'int8', ...options });
  expect(await check(create)).toEqual([]);
});
