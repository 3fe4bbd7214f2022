/**
 * The tests of native kernels for a processor that is emulated, without the processes and threads of a test runner: conformance
 * cases of the ops that WINNOW_TEST_OPS names, and the tests of 8-bit activations. scripts/check.mjs of @winnow/native bundles and
 * runs it.
 */
import { checkKernelCase, float32Arithmetic, kernelCases, type KernelCase } from '@winnow/conformance';
import { sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';
import { nativeHost, usableLevels } from './native-host.js';
import './int8/experts.test.js';
import './int8/feed-forward.test.js';
import './int8/matmul.test.js';
import './int8/sparse.test.js';

const nativeOps = (process.env['WINNOW_TEST_OPS'] ?? '').split(' ');

/** One of so many cases is run: emulation is slow. */
const every = 24;

for (const native of await usableLevels()) {
  const options = { host: nativeHost, native, activations: 'f32', minSharedWork: 0, maxMemoryBytes: 2 ** 28 } as const;
  describe(`native kernels: ${native}`, () => {
    test.each(nativeOps)('%s', async (op) => {
      const backend = await createWasmBackend({ ...options, numThreads: 2 });
      const failures: string[] = [];
      for (const kernelCase of sampled(kernelCases[op] as readonly KernelCase[], every)) {
        failures.push(...(await checkKernelCase(backend, kernelCase, { arithmetic: float32Arithmetic(true) })));
      }
      expect(failures).toEqual([]);
      expect(backend.numNativeRecords).toBeGreaterThan(0);
      await backend.dispose();
    });
  });
}
