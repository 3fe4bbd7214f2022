/** The backends that can be measured. */
import { createWasmBackend } from '@winnow/backend-wasm';
import type { NativeChoice } from '@winnow/native';
import { createReferenceBackend, type Backend } from '@winnow/ops';

export const backendNames = ['wasm', 'reference'] as const;
export type BackendName = (typeof backendNames)[number];

/** How programs run: as for users, or on workers even when they are very short. */
export type Place = 'default' | 'workers';

interface Entry {
  /** Whether it uses more than one thread. */
  readonly hasThreads: boolean;
  create(numThreads: number, place: Place, native: NativeChoice): Promise<Backend>;
}

const backends: Readonly<Record<BackendName, Entry>> = {
  wasm: { hasThreads: true, create: createWasm },
  reference: { hasThreads: false, create: () => Promise.resolve(createReferenceBackend()) },
};

function createWasm(numThreads: number, place: Place, native: NativeChoice): Promise<Backend> {
  return createWasmBackend({ numThreads, native, ...(place === 'workers' ? { maxCallerMs: 0 } : {}) });
}

export function hasThreads(name: BackendName): boolean {
  return backends[name].hasThreads;
}

/** The reference uses one thread, whatever the number. */
export function createBackend(
  name: BackendName,
  numThreads: number,
  place: Place,
  native: NativeChoice,
): Promise<Backend> {
  return backends[name].create(numThreads, place, native);
}
