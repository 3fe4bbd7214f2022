/** The backends that can be measured. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';

export const backendNames = ['wasm', 'reference'] as const;
export type BackendName = (typeof backendNames)[number];

/** How programs run: as for users, or on workers even when they are very short. */
export type Place = 'default' | 'workers';

interface Entry {
  /** Whether it uses more than one thread. */
  readonly hasThreads: boolean;
  create(numThreads: number, place: Place): Promise<Backend>;
}

const backends: Readonly<Record<BackendName, Entry>> = {
  wasm: { hasThreads: true, create: createWasm },
  reference: { hasThreads: false, create: () => Promise.resolve(createReferenceBackend()) },
};

function createWasm(numThreads: number, place: Place): Promise<Backend> {
  return createWasmBackend(place === 'workers' ? { numThreads, maxCallerMs: 0 } : { numThreads });
}

export function hasThreads(name: BackendName): boolean {
  return backends[name].hasThreads;
}

/** The reference uses one thread, whatever the number. */
export function createBackend(name: BackendName, numThreads: number, place: Place): Promise<Backend> {
  return backends[name].create(numThreads, place);
}
