/** What the backend needs of the place it runs in. */
import type { WasmMemory, WasmModule } from './web-assembly.js';

/** What a worker is started with. */
export interface WorkerStart {
  readonly module: WasmModule;
  readonly memory: WasmMemory;
  readonly thread: number;
  readonly numThreads: number;
  /** Whether the worker shall post a message at the end of each job, where `Atomics.waitAsync` is missing. */
  readonly postsJobs: boolean;
}

export interface WorkerEvents {
  /** The worker is gone, or never came, without having been asked to leave. */
  readonly onFailure: (cause: unknown) => void;
  readonly onJobDone: () => void;
}

export interface WorkerHandle {
  /** Whether the worker keeps the process alive. */
  setBusy(isBusy: boolean): void;
  /** Resolves when the worker is gone. */
  terminate(): Promise<void>;
}

export interface WasmHost {
  /** How many threads the machine can run at a time. */
  readonly availableParallelism: number;
  /** Memory of the machine, where that is known. */
  readonly totalMemoryBytes?: number;
  now(): number;
  /** Lets the host's event loop run. */
  yieldToHost(): Promise<void>;
  startWorker(start: WorkerStart, events: WorkerEvents): WorkerHandle;
}

/** JavaScript of a worker, as the body of a function of `start` and `post`. */
export const workerBody = `
const imports = {
  env: { memory: start.memory },
  index: { now: () => performance.now(), jobDone: start.postsJobs ? () => post('done') : () => undefined },
};
new WebAssembly.Instance(start.module, imports).exports.serve(start.thread, start.numThreads);
`;
