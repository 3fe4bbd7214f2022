/**
 * The backends for tests of caches that attend. They have no fallback, so that kernels are tested. All test files share them, and
 * they do not keep the process alive.
 */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';

export interface TestBackend {
  readonly name: 'reference' | 'wasm';
  readonly backend: Backend;
}

const wasm = await createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 });

export const testBackends: readonly TestBackend[] = [
  { name: 'reference', backend: createReferenceBackend() },
  {
    name: 'wasm',
    backend: { ...wasm, prepare: (program, options) => wasm.prepare(program, { ...options, onUnsupported: 'error' }) },
  },
];
