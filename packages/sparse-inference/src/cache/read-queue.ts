/**
 * A queue of reads, a limited number at a time, each into its own reusable buffer. Reads that an `ensure` waits for
 * precede prefetches. Memory: the buffers, allocated on first use.
 */
import type { ByteSource } from '@winnow/bytes';
import { allocateBytes } from './allocate-bytes.js';

export interface ReadJob {
  readonly source: ByteSource;
  readonly byteOffset: number;
  readonly sizeBytes: number;
  /** Whether an `ensure` waits for it. */
  isWanted: boolean;
  /** Called before the read starts: whether anything in it is still needed. If not, `onEnd` is called immediately. */
  isAlive(): boolean;
  /** `bytes` is valid until the result settles. */
  onBytes(bytes: Uint8Array): void | Promise<void>;
  onError(error: unknown): void;
  /** Always called, last. */
  onEnd(): void;
}

export interface ReadStatistics {
  readonly numReads: number;
  readonly bytesRead: number;
  readonly failedReads: number;
  readonly bufferBytes: number;
}

export class ReadQueue {
  /** Called after each read, successful or not. */
  onRead: (() => void) | undefined;
  readonly #maxReads: number;
  readonly #bufferBytes: number;
  readonly #wanted: ReadJob[] = [];
  readonly #ahead: ReadJob[] = [];
  readonly #waiting = new Set<ReadJob>();
  readonly #running = new Map<ReadJob, AbortController>();
  readonly #buffers: Uint8Array[] = [];
  readonly #idlers: (() => void)[] = [];
  #numBuffers = 0;
  #numReads = 0;
  #bytesRead = 0;
  #failedReads = 0;

  constructor(maxReads: number, bufferBytes: number) {
    this.#maxReads = maxReads;
    this.#bufferBytes = bufferBytes;
  }

  submit(job: ReadJob): void {
    this.#waiting.add(job);
    (job.isWanted ? this.#wanted : this.#ahead).push(job);
    this.#pump();
  }

  isQueued(job: ReadJob): boolean {
    return this.#waiting.has(job);
  }

  /** Gives a job priority, since an `ensure` now waits for it. */
  raise(job: ReadJob): void {
    if (job.isWanted) return;
    job.isWanted = true;
    if (this.#waiting.has(job)) this.#wanted.push(job);
  }

  /** Drops a job: it never starts, or its read is aborted. */
  cancel(job: ReadJob): void {
    if (this.#waiting.delete(job)) job.onEnd();
    else this.#running.get(job)?.abort();
  }

  statistics(): ReadStatistics {
    return {
      numReads: this.#numReads,
      bytesRead: this.#bytesRead,
      failedReads: this.#failedReads,
      bufferBytes: this.#numBuffers * this.#bufferBytes,
    };
  }

  /** Waits until no read is pending. */
  async idle(): Promise<void> {
    if (this.#running.size > 0) await new Promise<void>((resolve) => this.#idlers.push(resolve));
  }

  /** Frees the buffers. */
  drop(): void {
    this.#buffers.length = 0;
  }

  #pump(): void {
    while (this.#running.size < this.#maxReads) {
      const job = this.#next(this.#wanted) ?? this.#next(this.#ahead);
      if (job === undefined) break;
      void this.#run(job);
    }
  }

  /** Takes the first job that still waits; skips dropped ones and those that moved to the other list. */
  #next(list: ReadJob[]): ReadJob | undefined {
    for (let job = list.shift(); job !== undefined; job = list.shift()) {
      if (!this.#waiting.delete(job)) continue;
      if (job.isAlive()) return job;
      job.onEnd();
    }
    return undefined;
  }

  async #run(job: ReadJob): Promise<void> {
    const controller = new AbortController();
    this.#running.set(job, controller);
    let buffer: Uint8Array | undefined;
    try {
      await undefined; // a job fails or ends after `submit` has returned, never within
      this.#numReads++;
      buffer = this.#buffers.pop() ?? this.#makeBuffer();
      const bytes = buffer.subarray(0, job.sizeBytes);
      await job.source.read(job.byteOffset, bytes, { signal: controller.signal });
      this.#bytesRead += job.sizeBytes;
      await job.onBytes(bytes);
    } catch (error) {
      if (!controller.signal.aborted) this.#failedReads++;
      job.onError(error);
    } finally {
      if (buffer !== undefined) this.#buffers.push(buffer);
      this.#running.delete(job);
      job.onEnd();
      this.onRead?.();
      this.#pump();
      if (this.#running.size === 0) for (const resolve of this.#idlers.splice(0)) resolve();
    }
  }

  #makeBuffer(): Uint8Array {
    const buffer = allocateBytes('neuron cache: reads', this.#bufferBytes);
    this.#numBuffers++;
    return buffer;
  }
}
