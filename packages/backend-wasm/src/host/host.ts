/** The host interface of the backend. */
import type { NativeChoice, NativeKernels, NativeResult } from '@winnow/native';
import { controlWords } from '../kernels/layout.generated.js';
import type { WasmMemory, WasmModule } from './web-assembly.js';

/** The data that a worker starts with. */
export interface WorkerStart {
  readonly module: WasmModule;
  readonly memory: WasmMemory;
  readonly thread: number;
  readonly numThreads: number;
  /** Whether the worker posts a message at the end of each job, for engines without `Atomics.waitAsync`. */
  readonly postsJobs: boolean;
  /** Native kernels that the worker loads as well. */
  readonly native?: Pick<NativeKernels, 'path' | 'level'>;
}

export interface WorkerEvents {
  /** Called when the worker fails to start, or ends without having been terminated. */
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
  /**
   * Opens native kernels. `undefined` lets the host choose, as Node does by the environment variable `WINNOW_NATIVE`.
   * Hosts without this method have none.
   */
  openNative?(choice: NativeChoice | undefined): Promise<NativeResult>;
}

/**
 * JavaScript of a worker, as the body of a function with the parameters `start`, `post` and, in hosts with native kernels,
 * `loadAddon`. If a worker cannot load them, all threads use the kernels of the module.
 */
export const workerBody: string = `
let native;
const tryNative = (use) => {
  try {
    use();
  } catch {
    Atomics.store(new Int32Array(start.memory.buffer), ${controlWords.nativeOff / 4}, 1);
  }
};
tryNative(() => {
  native = start.native && loadAddon(start.native.path).attach(new Uint8Array(start.memory.buffer), start.native.level);
});
const imports = {
  env: { memory: start.memory },
  index: {
    now: () => performance.now(),
    jobDone: start.postsJobs ? () => post('done') : () => undefined,
    nativeKernel: native ? native.run : () => false,
  },
};
const instance = new WebAssembly.Instance(start.module, imports);
if (native) tryNative(() => native.connect(instance.exports.phaseBarrier));
instance.exports.serve(start.thread, start.numThreads);
`;
