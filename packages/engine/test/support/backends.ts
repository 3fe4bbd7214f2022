/** Backends that all tests of a file share. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { afterAll, beforeAll } from 'vitest';

/** WebAssembly and the reference, from the first test of the file to its last, on one thread: the models are too small for more. */
export function useBackends(): Readonly<Record<string, Backend>> {
  const backends: Record<string, Backend> = {};
  beforeAll(async () => {
    backends['WebAssembly'] = await createWasmBackend({ numThreads: 1 });
    backends['reference'] = createReferenceBackend();
  });
  afterAll(async () => {
    for (const backend of Object.values(backends)) await backend.dispose();
  });
  return backends;
}
