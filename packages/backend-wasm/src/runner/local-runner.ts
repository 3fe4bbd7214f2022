/** Runs jobs on the calling thread, record by record, yielding to the host's event loop in between. */
import { DeviceLostError } from '@winnow/tensor';
import type { WasmHost } from '../host/host.js';
import { failureOf, instantiate, type Kernels, type WasmExports, type WasmMemory } from '../host/web-assembly.js';
import { controlWords, heapBase } from '../kernels/layout.generated.js';
import type { Job, Runner } from './runner.js';

const jobAt = controlWords.job / 4;

/** How long records may run before yielding to the host's event loop. */
const maxBusyMs = 8;

export class LocalRunner implements Runner {
  readonly numThreads = 1;
  readonly #kernels: Kernels;
  readonly #host: WasmHost;
  readonly #onDeath: (failure: DeviceLostError) => void;
  readonly #exports: WasmExports;
  readonly #control: Int32Array;
  #lastYield: number;
  #isCanceled = false;
  #failure: Error | undefined;

  /** @param onDeath called once when a kernel fails while native kernels are attached */
  constructor(kernels: Kernels, memory: WasmMemory, host: WasmHost, onDeath: (failure: DeviceLostError) => void) {
    this.#kernels = kernels;
    this.#host = host;
    this.#onDeath = onDeath;
    this.#exports = instantiate(kernels, memory, host.now);
    this.#control = new Int32Array(memory.buffer, 0, heapBase / 4);
    this.#lastYield = host.now();
  }

  run(job: Job): Promise<boolean> | boolean {
    if (this.#failure !== undefined) throw this.#failure;
    this.#control[jobAt] = job.address;
    if (!job.share.isShort) return this.#runRecords(job);
    const start = this.#host.now();
    this.#run(job.begin, job.end);
    const time = this.#host.now();
    job.share.observe(time - start);
    return time - this.#lastYield > maxBusyMs ? this.#yieldToHost().then(() => true) : true;
  }

  cancel(): void {
    this.#isCanceled = true;
  }

  fail(failure: Error): void {
    this.#failure ??= failure;
  }

  async dispose(): Promise<void> {
    this.#isCanceled = true;
  }

  async #runRecords({ begin, end }: Job): Promise<boolean> {
    this.#isCanceled = false;
    for (let record = begin; record < end; record++) {
      this.#run(record, record + 1);
      if (this.#host.now() - this.#lastYield > maxBusyMs) await this.#yieldToHost();
      if (this.#isCanceled) return record + 1 === end;
    }
    return true;
  }

  #run(begin: number, end: number): void {
    this.#control[jobAt + 1] = begin;
    this.#control[jobAt + 2] = end;
    try {
      this.#exports.runAlone();
    } catch (cause) {
      const failure = failureOf(this.#kernels, cause);
      if (DeviceLostError.isInstance(failure)) this.#onDeath(failure);
      throw failure;
    }
  }

  async #yieldToHost(): Promise<void> {
    await this.#host.yieldToHost();
    this.#lastYield = this.#host.now();
  }
}
