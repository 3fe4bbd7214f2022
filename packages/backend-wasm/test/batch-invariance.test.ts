/** On native kernels, and with int8 activations, too, the bits of a token do not depend on the other tokens of its step. */
import { contractChecks, type ContractCheck } from '@winnow/conformance';
import { describe, expect, test } from 'vitest';
import { createWasmBackend, type CreateWasmBackendOptions } from '../src/index.js';
import { nativeHost, usableLevels } from './native-host.js';

const check = contractChecks['the bits of a token do not depend on the other tokens of its step'] as ContractCheck;

async function expectInvariant(options: CreateWasmBackendOptions): Promise<void> {
  const create = () => createWasmBackend({ maxMemoryBytes: 2 ** 26, minSharedWork: 0, ...options });
  expect(await check(create)).toEqual([]);
}

test.each([
  { relaxedSimd: true, numThreads: 1 },
  { relaxedSimd: false, numThreads: 3 },
])('WebAssembly, int8, relaxed: $relaxedSimd', (options) => expectInvariant({ ...options, activations: 'int8' }));

describe.each(await usableLevels())('native kernels: %s', (native) => {
  test.each(['f32', 'int8'] as const)('%s activations', (activations) =>
    expectInvariant({ host: nativeHost, native, numThreads: 2, activations }),
  );
});
