/** The backends for tests of layers. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { describe } from 'vitest';

/** For all suites of all files, since workers take long to start; they do not keep the process alive. */
const backends = {
  reference: createReferenceBackend(),
  wasm: await createTestWasm(testCoverage === 'full' ? 2 : 1),
};

/** Runs a suite on the reference and on WebAssembly; with `pnpm test:full` two threads share ops of every size. */
export function describeBackends(name: string, suite: (backend: Backend, isReference: boolean) => void): void {
  describe.each(['reference', 'wasm'] as const)(`${name} on %s`, (kind) => {
    suite(backends[kind], kind === 'reference');
  });
}

export function createTestWasm(numThreads: number): Promise<Backend> {
  return createWasmBackend({ numThreads, maxMemoryBytes: 2 ** 27, minSharedWork: 0 });
}
