import { createReferenceBackend, type Backend } from '@winnow/ops';

/** A separate backend for auxiliary computations. The caller disposes of it. */
export async function openCalculator(flags: {
  readonly backend?: 'wasm' | 'reference';
  readonly threads?: number;
}): Promise<Backend> {
  if (flags.backend === 'reference') return createReferenceBackend();
  const { createWasmBackend } = await import('@winnow/backend-wasm');
  return createWasmBackend(flags.threads === undefined ? {} : { numThreads: flags.threads });
}

/** Runs work on a separate backend and disposes of it. */
export async function withCalculator<Result>(
  flags: Parameters<typeof openCalculator>[0],
  work: (backend: Backend) => Promise<Result>,
): Promise<Result> {
  const backend = await openCalculator(flags);
  try {
    return await work(backend);
  } finally {
    await backend.dispose();
  }
}
