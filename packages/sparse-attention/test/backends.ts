/** The backends for tests of layers. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, describe } from 'vitest';

/** Runs a suite on the reference and on WebAssembly; with `pnpm test:full` two threads share ops of every size. */
export function describeBackends(name: string, suite: (backend: Backend, isReference: boolean) => void): void {
  describe.each(['reference', 'wasm'])(`${name} on %s`, async (kind) => {
    const backend =
      kind === 'reference' ? createReferenceBackend() : await createTestWasm(testCoverage === 'full' ? 2 : 1);
    afterAll(() => backend.dispose());
    suite(backend, kind === 'reference');
  });
}

export function createTestWasm(numThreads: number): Promise<Backend> {
  return createWasmBackend({ numThreads, maxMemoryBytes: 2 ** 27, minSharedWork: 0 });
}
