/** Decides whether programs run on workers or on the calling thread. */
import { BackendError } from '@winnow/tensor';
import type { WasmHost } from '../host/host.js';
import { canShareMemory } from '../host/web-assembly.js';
import { maxThreads } from '../kernels/layout.generated.js';
import { checkChoice, checkInteger } from './check-options.js';

export interface ThreadOptions {
  readonly numThreads?: number | undefined;
  readonly sharedMemory?: 'auto' | boolean;
}

export interface Threads {
  /** Whether workers share the memory; otherwise everything runs on the calling thread. */
  readonly isShared: boolean;
  readonly numThreads: number;
  /** Why there are fewer threads than requested. */
  readonly notices: readonly string[];
}

/**
 * @throws {ArgumentError} for invalid options
 * @throws {BackendError} when shared memory is required and not available
 */
export async function resolveThreads(options: ThreadOptions, host: WasmHost): Promise<Threads> {
  const sharedMemory = checkChoice('sharedMemory', options.sharedMemory ?? 'auto', ['auto', true, false]);
  const numThreads = options.numThreads ?? Math.min(maxThreads, host.availableParallelism);
  checkInteger('numThreads', numThreads, 1, maxThreads);
  const alone = { isShared: false, numThreads: 1 };
  if (sharedMemory === false) return { ...alone, notices: [] };
  const refusal = await refusalOf(host);
  if (refusal === undefined) return { isShared: true, numThreads, notices: [] };
  if (sharedMemory === true) throw new BackendError({ backend: 'wasm', message: `shared memory: ${refusal}` });
  return { ...alone, notices: numThreads === 1 ? [] : [`one thread instead of ${numThreads}: ${refusal}`] };
}

async function refusalOf(host: WasmHost): Promise<string | undefined> {
  if (canShareMemory()) return host.workerRefusal?.();
  const headers = 'Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp';
  return `memory cannot be shared with workers (a page needs the headers ${headers})`;
}
