/** The native kernels of this machine in tests. */
import { createWasmBackend, type CreateWasmBackendOptions } from '@winnow/backend-wasm';

const allLevels = ['amx', 'avx512', 'avxvnni', 'avx2', 'i8mm', 'neon'] as const;
export type Level = (typeof allLevels)[number];

/** Whether a level can be used, by default any: the addon has been built, and the machine has it. */
export async function hasNative(native: CreateWasmBackendOptions['native'] = true): Promise<boolean> {
  const backend = await createWasmBackend({ numThreads: 1, native }).catch(() => undefined);
  await backend?.dispose();
  return backend !== undefined;
}

/** Levels of this machine, best first. */
export async function usableLevels(): Promise<readonly Level[]> {
  const found: Level[] = [];
  for (const level of allLevels) if (await hasNative(level)) found.push(level);
  return found;
}
