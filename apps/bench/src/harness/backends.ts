/** The backends that can be measured. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';

export const backendNames = ['wasm', 'reference'] as const;
export type BackendName = (typeof backendNames)[number];

interface Entry {
  /** Whether it uses more than one thread. */
  readonly hasThreads: boolean;
  create(numThreads: number): Promise<Backend>;
}

const backends: Readonly<Record<BackendName, Entry>> = {
  wasm: { hasThreads: true, create: (numThreads) => createWasmBackend({ numThreads }) },
  reference: { hasThreads: false, create: () => Promise.resolve(createReferenceBackend()) },
};

export function hasThreads(name: BackendName): boolean {
  return backends[name].hasThreads;
}

/** The reference uses one thread, whatever the number. */
export function createBackend(name: BackendName, numThreads: number): Promise<Backend> {
  return backends[name].create(numThreads);
}
