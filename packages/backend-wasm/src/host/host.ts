/** The host interface of the backend. */
import type { WasmMemory, WasmModule } from './web-assembly.js';

/** The data that starts a worker. */
export interface WorkerStart {
  readonly module: WasmModule;
  readonly memory: WasmMemory;
  readonly thread: number;
  readonly numThreads: number;
  /** Whether the worker posts a message at the end of each job, for engines without `Atomics.waitAsync`. */
  readonly postsJobs: boolean;
}

export interface WorkerEvents {
  /** Called when the worker dies or fails to start without having been asked to end. */
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
  /** Number of hardware threads. */
  readonly availableParallelism: number;
  /** Memory of the machine, if known. */
  readonly totalMemoryBytes?: number;
  /** How often a thread polls before it sleeps, for engines whose polls are slow. Default 100,000. */
  readonly spins?: number;
  now(): number;
  /** Yields to the host's event loop. */
  yieldToHost(): Promise<void>;
  /** Why workers cannot start, if they cannot. Hosts without this method always start them. */
  workerRefusal?(): Promise<string | undefined>;
  startWorker(start: WorkerStart, events: WorkerEvents): WorkerHandle;
}

/** JavaScript of a worker, as the body of a function of `start` and `post`. */
export const workerBody = `
const imports = {
  env: { memory: start.memory },
  index: {
    now: () => performance.now(),
    jobDone: start.postsJobs ? () => post('done') : () => undefined,
    nativeKernel: () => undefined,
  },
};
new WebAssembly.Instance(start.module, imports).exports.serve(start.thread, start.numThreads);
`;
