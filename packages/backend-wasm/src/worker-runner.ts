/** Jobs on workers that share the memory. The calling thread only waits, without blocking its event loop. */
import { BackendError, DeviceLostError } from '@winnow/tensor';
import type { WasmHost, WorkerHandle } from './host.js';
import { cancelJob, controlWords, heapBase, leave } from './layout.generated.js';
import type { Job, Runner } from './runner.js';
import { instantiate, type WasmExports, type WasmMemory, type WasmModule } from './web-assembly.js';

type WaitAsync = (
  words: Int32Array,
  index: number,
  value: number,
) => { readonly async: false } | { readonly async: true; readonly value: Promise<unknown> };

/** How long jobs may follow one another without a turn of the host's event loop. */
const maxBusyMs = 8;

export interface WorkerOptions {
  readonly numThreads: number;
  /** Have workers post a message per job even where `Atomics.waitAsync` exists. */
  readonly usesMessages: boolean;
  /** Called once when a worker is gone without having been asked to leave. */
  readonly onDeath: (failure: DeviceLostError) => void;
}

export function createWorkerRunner(
  module: WasmModule,
  memory: WasmMemory,
  host: WasmHost,
  { numThreads, usesMessages, onDeath }: WorkerOptions,
): Runner {
  const control = new Int32Array(memory.buffer as SharedArrayBuffer, 0, heapBase / 4);
  const { waitAsync } = Atomics as unknown as { readonly waitAsync?: WaitAsync };
  const postsJobs = usesMessages || waitAsync === undefined;
  const generationAt = controlWords.generation / 4;
  const doneAt = controlWords.done / 4;
  const cancelAt = controlWords.cancel / 4;
  const jobAt = controlWords.job / 4;
  let generation = 0;
  let pending: { resolve(): void; reject(error: Error): void } | undefined;
  let failure: Error | undefined;
  let lastYield = host.now();

  const onFailure = (cause: unknown): void => {
    if (failure !== undefined) return;
    const death = new DeviceLostError({ backend: 'wasm', reason: 'a worker died' }, { cause });
    fail(death);
    onDeath(death);
  };
  function fail(cause: Error): void {
    if (failure !== undefined) return;
    failure = cause;
    void terminate();
    pending?.reject(failure);
  }
  const onJobDone = (): void => {
    if (Atomics.load(control, doneAt) === generation) pending?.resolve();
  };
  const workers: WorkerHandle[] = [];
  for (let thread = 0; thread < numThreads; thread++) {
    workers.push(host.startWorker({ module, memory, thread, numThreads, postsJobs }, { onFailure, onJobDone }));
  }
  let terminated: Promise<void> | undefined;

  function terminate(): Promise<void> {
    Atomics.store(control, cancelAt, leave);
    Atomics.add(control, generationAt, 1);
    Atomics.notify(control, generationAt);
    terminated ??= Promise.all(workers.map((worker) => worker.terminate())).then(() => {
      pending?.reject(failure ?? new BackendError({ backend: 'wasm', message: 'disposed during a run' }));
      Atomics.notify(control, doneAt); // lets a wait that nobody answers end
    });
    return terminated;
  }

  function jobEnd(before: number): Promise<void> {
    return new Promise((resolve, reject) => {
      pending = { resolve, reject };
      if (postsJobs) return;
      const waiting = (waitAsync as WaitAsync)(control, doneAt, before);
      if (waiting.async) void waiting.value.then(onJobDone);
      else resolve();
    });
  }

  let alone: WasmExports | undefined;

  /** Runs a job here, where nobody can cancel it. */
  function runHere(): void {
    alone ??= instantiate(module, memory, host.now);
    try {
      alone.runAlone();
    } catch (cause) {
      throw new BackendError({ backend: 'wasm', message: 'a kernel failed' }, { cause });
    }
  }

  async function runOnWorkers(): Promise<void> {
    const [first] = workers;
    first.setBusy(true); // a wait for the memory alone does not keep the process alive
    generation = (generation + 1) & 0x3fffffff;
    try {
      const ended = jobEnd(Atomics.load(control, doneAt));
      Atomics.store(control, generationAt, generation);
      if (Atomics.load(control, controlWords.idlers / 4) > 0) Atomics.notify(control, generationAt);
      await ended;
    } finally {
      pending = undefined;
      first.setBusy(false);
    }
  }

  async function finish(isDue: boolean): Promise<boolean> {
    if (isDue) {
      await host.yieldToHost();
      lastYield = host.now();
    }
    return control[jobAt + 3] === 0;
  }

  return {
    numThreads,
    run({ address, begin, end, share }: Job) {
      if (failure !== undefined) throw failure;
      control[jobAt] = address;
      control[jobAt + 1] = begin;
      control[jobAt + 2] = end;
      control[jobAt + 3] = 0;
      Atomics.store(control, cancelAt, 0);
      const start = host.now();
      if (!share.isShort) {
        return runOnWorkers().then(() => {
          const time = host.now();
          share.observe(time - start);
          return finish(time - lastYield > maxBusyMs);
        });
      }
      runHere();
      const time = host.now();
      share.observe(time - start);
      return time - lastYield > maxBusyMs ? finish(true) : true;
    },
    cancel() {
      Atomics.compareExchange(control, cancelAt, 0, cancelJob);
    },
    fail,
    dispose: terminate,
  };
}
