/** Whether the addon of native kernels has been built for this machine. */
import { createWasmBackend } from '@winnow/backend-wasm';

export async function hasNative(): Promise<boolean> {
  const backend = await createWasmBackend({ numThreads: 1, native: true }).catch(() => undefined);
  await backend?.dispose();
  return backend !== undefined;
}
