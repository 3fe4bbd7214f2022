/** One memory with its threads. A backend usually has one; larger models are spread over several. */
import type { DeviceLostError } from '@winnow/tensor';
import type { WasmHost } from '../host/host.js';
import type { Kernels } from '../host/web-assembly.js';
import { controlWords, int8Dots } from '../kernels/layout.generated.js';
import { LocalRunner } from '../runner/local-runner.js';
import type { Runner } from '../runner/runner.js';
import { WorkerRunner } from '../runner/worker-runner.js';
import { Heap } from './heap.js';

export interface MemoryShard {
  readonly heap: Heap;
  readonly runner: Runner;
  /** Maximum size in bytes. */
  readonly maxBytes: number;
}

/** Options shared by all memories of a backend. */
export interface ShardOptions {
  readonly host: WasmHost;
  readonly isShared: boolean;
  readonly numThreads: number;
  readonly usesMessages: boolean;
  /** Value of the control word `minWork`. */
  readonly minWork: number;
  /** Which int8 dot product kernels use. */
  readonly int8Dot: keyof typeof int8Dots;
}

/**
 * How often a thread polls before it sleeps. Waking it takes tens of microseconds, so it spins for up to 0.1 ms, unless
 * it would occupy a core that another thread needs.
 */
const manySpins = 100_000;
const fewSpins = 1000;

/** @param onDeath called when a worker dies or a native kernel fails */
export function createShard(
  maxBytes: number,
  kernels: Kernels,
  options: ShardOptions,
  onDeath: (failure: DeviceLostError) => void,
): MemoryShard {
  const { host, isShared, numThreads, usesMessages, minWork, int8Dot } = options;
  const heap = new Heap(maxBytes, isShared);
  heap.words(controlWords.minWork, 1)[0] = minWork;
  heap.words(controlWords.int8Dot, 1)[0] = int8Dots[int8Dot];
  heap.words(controlWords.spins, 1)[0] = numThreads > host.availableParallelism ? fewSpins : (host.spins ?? manySpins);
  const runner = isShared
    ? new WorkerRunner(kernels, heap.memory, host, { numThreads, usesMessages, onDeath })
    : new LocalRunner(kernels, heap.memory, host, onDeath);
  return { heap, runner, maxBytes };
}
