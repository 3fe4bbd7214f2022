/** A program some of whose records run on the host, at boundaries of the backend's executable. */
import { BackendError, ReleasedError } from '@winnow/tensor';
import type {
  BufferHandle,
  Executable,
  Fallback,
  PrepareOptions,
  RecordProfile,
  RunOptions,
} from '../backend/backend.js';
import type { Program } from '../program/program.js';
import { checkScalars } from '../program/scalars.js';
import type { KernelBackend } from './dispatch.js';
import { HostRecord } from './host-record.js';
import type { SplitProgram } from './without-fallbacks.js';

export interface FallbackExecution {
  readonly backend: KernelBackend;
  /** The whole program. */
  readonly program: Program;
  readonly split: SplitProgram;
  /** The part that the backend runs. */
  readonly kernels: Executable;
  /** All buffers by name. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** Buffers that the executable owns. */
  readonly shared: ReadonlyMap<string, BufferHandle>;
  readonly fallbacks: readonly Fallback[];
  readonly options: PrepareOptions;
}

export function createFallbackExecutable(execution: FallbackExecution): Executable {
  const runner = new FallbackRunner(execution);
  const { program, fallbacks, kernels } = execution;
  return {
    program,
    fallbacks,
    run: (scalars, options = {}) => runner.run(scalars, options),
    read: (output, target) => kernels.read(output, target),
    profile: () => runner.profile(),
    dispose: () => runner.dispose(),
  };
}

interface HostWork {
  readonly record: HostRecord;
  numRuns: number;
  timeMs: number;
  flops: number;
  bytes: number;
}

class FallbackRunner {
  readonly #execution: FallbackExecution;
  readonly #words: Int32Array;
  readonly #work = new Map<number, HostWork>();
  #isRunning = false;
  #isDisposed = false;

  constructor(execution: FallbackExecution) {
    this.#execution = execution;
    const { backend, split, buffers, program } = execution;
    this.#words = new Int32Array(program.scalars.numWords);
    const handles = new Map<number, BufferHandle>();
    for (const [index, { name }] of split.program.buffers.entries()) {
      const handle = buffers.get(name);
      if (handle !== undefined) handles.set(index, handle);
    }
    const options = { backend, program: split.program, handles, words: this.#words };
    for (const index of [...split.hostRecords.values()].flat()) {
      const record = new HostRecord(split.records[index], options);
      this.#work.set(index, { record, numRuns: 0, timeMs: 0, flops: 0, bytes: 0 });
    }
  }

  async run(scalars: Int32Array, { signal, onBoundary }: RunOptions): Promise<void> {
    const { kernels, split, program, backend } = this.#execution;
    if (this.#isDisposed) throw new ReleasedError('executable');
    if (this.#isRunning)
      throw new BackendError({ backend: backend.name, message: 'the executable is already running' });
    checkScalars(scalars, program.scalars, program.symbols);
    this.#words.set(scalars);
    this.#isRunning = true;
    try {
      await kernels.run(scalars, {
        ...(signal === undefined ? {} : { signal }),
        onBoundary: async (name) => {
          const records = split.hostRecords.get(name);
          if (records === undefined) return onBoundary?.(name);
          for (const index of records) {
            signal?.throwIfAborted();
            await this.#runOnHost(index);
          }
        },
      });
    } finally {
      this.#isRunning = false;
    }
  }

  profile(): RecordProfile[] {
    if (this.#isDisposed) return [];
    const { kernels, program, split } = this.#execution;
    const measured = kernels.profile();
    if (measured.length === 0 && this.#execution.options.profile !== true) return [];
    const onBackend = new Map(split.recordIndices.map((index, position) => [index, measured[position]]));
    return program.records.map(({ op, layer }, index): RecordProfile => {
      const profile = onBackend.get(index);
      if (profile !== undefined) return profile;
      const { numRuns, timeMs, flops, bytes } = this.#work.get(index) as HostWork;
      return { op, layer, numRuns, timeMs, flops, bytes };
    });
  }

  async dispose(): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    const { backend, kernels, shared } = this.#execution;
    await kernels.dispose();
    for (const handle of shared.values()) {
      try {
        backend.free(handle);
      } catch (error) {
        if (!ReleasedError.isInstance(error)) throw error; // the backend was disposed of and freed everything
      }
    }
  }

  async #runOnHost(index: number): Promise<void> {
    const { backend, options } = this.#execution;
    const work = this.#work.get(index) as HostWork;
    const start = backend.now();
    await work.record.run();
    if (options.profile !== true) return;
    const { flops, bytes } = work.record.work();
    work.numRuns++;
    work.timeMs += backend.now() - start;
    work.flops += flops;
    work.bytes += bytes;
  }
}
