/** Runs a program record by record on host memory. */
import { ArgumentError, BackendError, ReleasedError } from '@winnow/tensor';
import type { Executable, RecordProfile, RunOptions } from '../backend/backend.js';
import { scalarBufferIndex, type Program } from '../program/program.js';
import { checkScalars } from '../program/scalars.js';
import type { TensorView } from '../spec/op-spec.js';
import { bindRecord, TensorViews, type BoundRecord } from './bind-record.js';

export interface ReferenceExecution {
  readonly now: () => number;
  readonly yieldToHost: () => Promise<void>;
  readonly profile: boolean;
  /** Throws when a bound buffer was freed. */
  readonly checkMemory: () => void;
  readonly onDispose: () => void;
}

interface RecordTotals {
  numRuns: number;
  timeMs: number;
  flops: number;
  bytes: number;
}

/** How long ops may run before yielding to the host's event loop. */
const maxBusyMs = 8;

/** @param memory the bytes of each program buffer */
export function createReferenceExecutable(
  program: Program,
  memory: readonly Uint8Array[],
  execution: ReferenceExecution,
): Executable {
  const runner = new ReferenceRunner(program, memory, execution);
  return {
    program,
    fallbacks: [],
    run: (scalars, options = {}) => runner.run(scalars, options),
    read: (output, target) => runner.read(output, target),
    profile: () => runner.profile(),
    dispose: async () => runner.dispose(),
  };
}

class ReferenceRunner {
  readonly #program: Program;
  readonly #execution: ReferenceExecution;
  readonly #tensors: TensorViews;
  #records: readonly BoundRecord[];
  #outputs: ReadonlyMap<string, TensorView>;
  readonly #words: Int32Array;
  readonly #totals: readonly RecordTotals[];
  #isRunning = false;
  #isDisposed = false;
  /** Kept across runs, so that many short runs do not starve the host. */
  #lastYield: number;

  constructor(program: Program, memory: readonly Uint8Array[], execution: ReferenceExecution) {
    this.#program = program;
    this.#execution = execution;
    this.#tensors = new TensorViews(program, ({ buffer, byteOffset }, sizeBytes) =>
      memory[buffer].subarray(byteOffset, byteOffset + sizeBytes),
    );
    this.#records = program.records.map((record) => bindRecord(record, this.#tensors));
    this.#outputs = new Map([...program.outputs].map(([name, tensor]) => [name, this.#tensors.view(tensor)]));
    const { buffer, byteOffset } = memory[scalarBufferIndex];
    this.#words = new Int32Array(buffer, byteOffset, program.scalars.numWords);
    const newTotals = (): RecordTotals => ({ numRuns: 0, timeMs: 0, flops: 0, bytes: 0 });
    this.#totals = execution.profile ? program.records.map(newTotals) : [];
    this.#lastYield = execution.now();
  }

  async run(scalars: Int32Array, { signal, onBoundary }: RunOptions): Promise<void> {
    const { scalars: layout, symbols, segments } = this.#program;
    if (this.#isDisposed) throw new ReleasedError('executable');
    if (this.#isRunning) throw new BackendError({ backend: 'reference', message: 'the executable is already running' });
    checkScalars(scalars, layout, symbols);
    this.#execution.checkMemory();
    signal?.throwIfAborted();
    this.#isRunning = true;
    try {
      this.#words.set(scalars);
      this.#tensors.resize(this.#words);
      for (const { begin, end, boundary } of segments) {
        await this.#runSegment(begin, end, signal);
        if (boundary === undefined) continue;
        await onBoundary?.(boundary);
        this.#checkAlive();
      }
    } finally {
      this.#isRunning = false;
    }
  }

  async read(output: string, target: Float32Array | Int32Array): Promise<void> {
    if (this.#isDisposed) throw new ReleasedError('executable');
    const data = this.#outputs.get(output)?.data;
    if (data === undefined || data.constructor !== target.constructor || data.length < target.length) {
      const known = [...this.#outputs].map(([name, view]) => `${name} (${view.dtype}, at most ${view.data.length})`);
      throw new ArgumentError({
        argument: 'read',
        expected: `one of ${known.join(', ')}`,
        actual: `${output}, ${target.length} elements of ${target.constructor.name}`,
      });
    }
    target.set(data.subarray(0, target.length));
  }

  profile(): RecordProfile[] {
    return this.#totals.map((totals, index) => {
      const { op, layer } = this.#program.records[index];
      return { op, layer, ...totals };
    });
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#records = [];
    this.#outputs = new Map();
    this.#execution.onDispose();
  }

  async #runSegment(begin: number, end: number, signal: AbortSignal | undefined): Promise<void> {
    const { now, yieldToHost } = this.#execution;
    for (let index = begin; index < end; index++) {
      signal?.throwIfAborted();
      const start = this.#totals.length === 0 ? 0 : now();
      this.#records[index].run();
      if (this.#totals.length > 0) this.#count(index, now() - start);
      if (now() - this.#lastYield > maxBusyMs) {
        await yieldToHost();
        this.#checkAlive();
        this.#lastYield = now();
      }
    }
  }

  #count(index: number, timeMs: number): void {
    const totals = this.#totals[index];
    const { flops, bytes } = this.#records[index].work();
    totals.numRuns++;
    totals.timeMs += timeMs;
    totals.flops += flops;
    totals.bytes += bytes;
  }

  #checkAlive(): void {
    if (this.#isDisposed) throw new ReleasedError('executable');
    this.#execution.checkMemory();
  }
}
