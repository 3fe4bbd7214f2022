/** Runs jobs on workers that share the memory. The calling thread only awaits them, without blocking its event loop. */
import { BackendError, DeviceLostError } from '@winnow/tensor';
import type { WasmHost, WorkerHandle } from '../host/host.js';
import { failureOf, instantiate, type Kernels, type WasmExports, type WasmMemory } from '../host/web-assembly.js';
import { cancelJob, controlWords, heapBase, leave } from '../kernels/layout.generated.js';
import type { Job, Runner } from './runner.js';

type WaitAsync = (
  words: Int32Array,
  index: number,
  value: number,
) => { readonly async: false } | { readonly async: true; readonly value: Promise<unknown> };

const { waitAsync } = Atomics as unknown as { readonly waitAsync?: WaitAsync };
const generationAt = controlWords.generation / 4;
const doneAt = controlWords.done / 4;
const cancelAt = controlWords.cancel / 4;
const jobAt = controlWords.job / 4;

/** How long consecutive jobs may run without yielding to the host's event loop. */
const maxBusyMs = 8;

export interface WorkerOptions {
  readonly numThreads: number;
  /** Have workers post a message per job even where `Atomics.waitAsync` exists. */
  readonly usesMessages: boolean;
  /** Called once when a worker dies. */
  readonly onDeath: (failure: DeviceLostError) => void;
}

export class WorkerRunner implements Runner {
  readonly numThreads: number;
  readonly #kernels: Kernels;
  readonly #memory: WasmMemory;
  readonly #host: WasmHost;
  readonly #control: Int32Array;
  readonly #postsJobs: boolean;
  readonly #onDeath: (failure: DeviceLostError) => void;
  #workers: readonly WorkerHandle[] = [];
  #generation = 0;
  #pending: { resolve(): void; reject(error: Error): void } | undefined;
  #failure: Error | undefined;
  #terminated: Promise<void> | undefined;
  #alone: WasmExports | undefined;
  #lastYield: number;

  constructor(kernels: Kernels, memory: WasmMemory, host: WasmHost, options: WorkerOptions) {
    const { numThreads } = options;
    const postsJobs = options.usesMessages || waitAsync === undefined;
    this.numThreads = numThreads;
    this.#kernels = kernels;
    this.#memory = memory;
    this.#host = host;
    this.#control = new Int32Array(memory.buffer as SharedArrayBuffer, 0, heapBase / 4);
    this.#postsJobs = postsJobs;
    this.#onDeath = options.onDeath;
    this.#lastYield = host.now();
  }

  run({ address, begin, end, share }: Job): boolean | Promise<boolean> {
    if (this.#failure !== undefined) throw this.#failure;
    this.#control.set([address, begin, end, 0], jobAt);
    Atomics.store(this.#control, cancelAt, 0);
    const start = this.#host.now();
    if (!share.isShort) {
      return this.#runOnWorkers().then(() => {
        const time = this.#host.now();
        share.observe(time - start);
        return this.#finish(time - this.#lastYield > maxBusyMs);
      });
    }
    this.#runHere();
    const time = this.#host.now();
    share.observe(time - start);
    return time - this.#lastYield > maxBusyMs ? this.#finish(true) : true;
  }

  cancel(): void {
    Atomics.compareExchange(this.#control, cancelAt, 0, cancelJob);
  }

  fail(failure: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    void this.dispose();
    this.#pending?.reject(failure);
  }

  dispose(): Promise<void> {
    Atomics.store(this.#control, cancelAt, leave);
    Atomics.add(this.#control, generationAt, 1);
    Atomics.notify(this.#control, generationAt);
    this.#terminated ??= Promise.all(this.#workers.map((worker) => worker.terminate())).then(() => {
      const failure = this.#failure ?? new BackendError({ backend: 'wasm', message: 'disposed of during a run' });
      this.#pending?.reject(failure);
      Atomics.notify(this.#control, doneAt); // ends a wait that will never be answered
    });
    return this.#terminated;
  }

  #die(cause: unknown): void {
    if (this.#failure !== undefined) return;
    const death = new DeviceLostError({ backend: 'wasm', reason: 'a worker died' }, { cause });
    this.#lose(death);
  }

  #lose(loss: DeviceLostError): void {
    this.fail(loss);
    this.#onDeath(loss);
  }

  #endJob(): void {
    if (Atomics.load(this.#control, doneAt) === this.#generation) this.#pending?.resolve();
  }

  #jobEnd(before: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject };
      if (this.#postsJobs) return;
      const waiting = (waitAsync as WaitAsync)(this.#control, doneAt, before);
      if (waiting.async) void waiting.value.then(() => this.#endJob());
      else resolve();
    });
  }

  /** Runs a job on this thread, where it cannot be canceled. */
  #runHere(): void {
    this.#alone ??= instantiate(this.#kernels, this.#memory, this.#host.now);
    try {
      this.#alone.runAlone();
    } catch (cause) {
      const failure = failureOf(this.#kernels, cause);
      if (DeviceLostError.isInstance(failure)) this.#lose(failure);
      throw failure;
    }
  }

  /** Starts the workers for the first job that needs them: a model with only short programs never does. */
  #startWorkers(): readonly WorkerHandle[] {
    if (this.#workers.length > 0) return this.#workers;
    const events = { onFailure: (cause: unknown) => this.#die(cause), onJobDone: () => this.#endJob() };
    const { module, native } = this.#kernels;
    const loaded = native && { native: { path: native.path, level: native.level } };
    const start = { module, memory: this.#memory, numThreads: this.numThreads, postsJobs: this.#postsJobs, ...loaded };
    this.#workers = Array.from({ length: this.numThreads }, (_, thread) =>
      this.#host.startWorker({ ...start, thread }, events),
    );
    return this.#workers;
  }

  async #runOnWorkers(): Promise<void> {
    const [first] = this.#startWorkers();
    first.setBusy(true); // waiting on memory alone does not keep the process alive
    this.#generation = (this.#generation + 1) & 0x3fffffff;
    try {
      const ended = this.#jobEnd(Atomics.load(this.#control, doneAt));
      Atomics.store(this.#control, generationAt, this.#generation);
      if (Atomics.load(this.#control, controlWords.idlers / 4) > 0) Atomics.notify(this.#control, generationAt);
      await ended;
    } finally {
      this.#pending = undefined;
      first.setBusy(false);
    }
  }

  async #finish(isDue: boolean): Promise<boolean> {
    if (isDue) {
      await this.#host.yieldToHost();
      this.#lastYield = this.#host.now();
    }
    return this.#control[jobAt + 3] === 0;
  }
}
