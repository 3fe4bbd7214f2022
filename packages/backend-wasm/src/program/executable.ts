/** A prepared program: one part per memory it uses, nearly always one. */
import {
  arenaBufferIndex,
  checkScalars,
  opSpec,
  shapeInStep,
  type Executable,
  type Program,
  type RecordProfile,
  type RunOptions,
  type TensorRef,
} from '@winnow/ops';
import { ArgumentError, BackendError, ReleasedError, tensorBytes } from '@winnow/tensor';
import { bytesOfRecord, dtypesOf, shapesOf } from '../kernels/record-shapes.js';
import { makeCurrent, type BufferPlace, type WasmBuffer } from '../memory/buffer-places.js';
import type { MemoryPool } from '../memory/memory-pool.js';
import type { MemoryShard } from '../memory/memory-shard.js';
import { repackableTensors } from '../memory/repacking.js';
import type { JobQueue } from '../runner/job-queue.js';
import type { PlacedJob } from '../runner/runner.js';
import type { PieceCopy } from './arena-pieces.js';
import { FirstRuns } from './first-runs.js';
import { PartBuffers } from './part-buffers.js';
import { loadPart, typedValues, type LoadedPart } from './program-part.js';
import type { ScratchMeter } from './scratch-meter.js';
import { splitProgram, type ProgramPart, type Stage } from './split-program.js';

/** The parts of a backend that an executable needs. */
export interface ExecutionContext {
  readonly pool: MemoryPool;
  readonly queue: JobQueue;
  /** Weights and caches by buffer. */
  readonly bound: ReadonlyMap<number, WasmBuffer>;
  /** Whether any buffer of the backend is in several memories. */
  readonly hasCopies: () => boolean;
  /** Weights up to this size are copied to the memories where they are needed. */
  readonly smallBytes: number;
  /** @throws {ReleasedError} when the backend or a buffer of the program was released */
  readonly checkMemory: () => void;
  readonly now: () => number;
  readonly onDispose: (executable: Executable) => void;
  /** Whether activations may be 8-bit integers, with interleaved weights. */
  readonly usesInt8: boolean;
  readonly isInvariant: boolean;
  /** Maximum time of a run on the calling thread. */
  readonly maxCallerMs: number;
  readonly profile: boolean;
  readonly scratchMeter: ScratchMeter;
  /** See `PartOptions`. */
  readonly onNativeShortage: () => void;
  /** See `NativeKernels`. */
  readonly enterNative: () => () => void;
  /** Buffers whose weights must not be repacked, because the host reads them. */
  readonly hostBuffers: ReadonlySet<string>;
}

/** Records that run in one job; empty between adjacent boundaries. */
interface Span {
  readonly job: PlacedJob | undefined;
  readonly isNative: boolean;
  /** The boundary after the span. */
  readonly boundary: string | undefined;
}

/** An output, as the host reads it from its current copy. */
interface Output {
  readonly values: Float32Array | Int32Array;
  readonly look: () => void;
}

interface Part extends LoadedPart {
  readonly buffers: PartBuffers;
}

/** @throws {CapacityError} when the activations do not fit */
export async function createExecutable(program: Program, context: ExecutionContext): Promise<Executable> {
  const run = new ProgramRun(program, context, () => context.onDispose(executable));
  const executable: Executable = {
    program,
    fallbacks: [],
    run: (scalars, options = {}) => run.run(scalars, options),
    read: (output, target) => run.read(output, target),
    profile: () => run.profile(),
    dispose: () => run.dispose(),
  };
  try {
    await run.makeReady();
  } catch (error) {
    await executable.dispose();
    throw error;
  }
  return executable;
}

/** Loads the parts of a program; frees loaded ones if one does not fit. */
function loadParts(program: Program, parts: readonly ProgramPart<MemoryShard>[], context: ExecutionContext): Part[] {
  const repackable = context.usesInt8 ? repackableTensors(program, context.hostBuffers) : new Map();
  const loaded: Part[] = [];
  try {
    for (const part of parts) {
      const buffers = new PartBuffers(part, context);
      const addressOf = (buffer: number): number => buffers.addressOf(buffer);
      loaded.push(Object.assign(loadPart(part, { ...context, addressOf, repackable }), { buffers }));
    }
  } catch (error) {
    freeParts(loaded, context);
    throw error;
  }
  return loaded;
}

function freeParts(parts: readonly Part[], { pool, queue }: ExecutionContext): void {
  for (const { memory, base } of parts) queue.whenIdle(() => pool.free(memory, base));
}

/** A loaded program: runs it, reads its outputs, and profiles it. */
class ProgramRun {
  readonly #program: Program;
  readonly #context: ExecutionContext;
  readonly #onDispose: () => void;
  readonly #parts: readonly Part[];
  readonly #scalars: Int32Array;
  readonly #spans: readonly Span[];
  readonly #copyOutputs: () => void;
  readonly #outputs: ReadonlyMap<string, Output>;
  readonly #firstRuns: FirstRuns;
  readonly #totals: { numRuns: number; flops: number; bytes: number }[];
  #isRunning = false;
  #isDisposed = false;

  constructor(program: Program, context: ExecutionContext, onDispose: () => void) {
    const { pool, bound, smallBytes } = context;
    const homeOf = (buffer: number): MemoryShard => homePlace(bound.get(buffer) as WasmBuffer).memory;
    const split = splitProgram(program, homeOf, pool.first, smallBytes);
    this.#program = program;
    this.#context = context;
    this.#onDispose = onDispose;
    this.#parts = loadParts(program, split.parts, context);
    this.#scalars = this.#parts[0].scalars;
    this.#firstRuns = new FirstRuns(program, this.#scalars, context.enterNative);
    this.#spans = split.stages.map((stage) => this.#spanOf(stage));
    this.#copyOutputs = this.#copierOf(split.lastCopies);
    this.#outputs = new Map(
      [...program.outputs].map(([name, tensor]) => [name, this.#outputOf(tensor, split.outputs.get(name))]),
    );
    this.#totals = context.profile ? program.records.map(() => ({ numRuns: 0, flops: 0, bytes: 0 })) : [];
  }

  async run(scalars: Int32Array, options: RunOptions): Promise<void> {
    if (this.#isDisposed) throw new ReleasedError('executable');
    if (this.#isRunning) throw new BackendError({ backend: 'wasm', message: 'the executable is already running' });
    checkScalars(scalars, this.#program.scalars, this.#program.symbols);
    this.#context.checkMemory();
    options.signal?.throwIfAborted();
    this.#isRunning = true;
    try {
      if (!this.#parts.every(({ buffers }) => buffers.isReady())) await this.makeReady();
      for (const part of this.#parts) part.scalars.set(scalars);
      await this.#runSpans(options);
      this.#copyOutputs();
      if (this.#context.profile) this.#count();
    } finally {
      this.#isRunning = false;
      if (this.#isDisposed) freeParts(this.#parts, this.#context);
    }
  }

  async read(output: string, target: Float32Array | Int32Array): Promise<void> {
    this.#checkAlive();
    const found = this.#outputs.get(output);
    if (found === undefined || found.values.constructor !== target.constructor || found.values.length < target.length) {
      const known = [...this.#outputs].map(
        ([name, { values }]) => `${name} (${values.constructor.name}, at most ${values.length})`,
      );
      throw new ArgumentError({
        argument: 'read',
        expected: `one of ${known.join(', ')}`,
        actual: `${output}, ${target.length} elements of ${target.constructor.name}`,
      });
    }
    found.look();
    target.set(found.values.subarray(0, target.length));
  }

  profile(): RecordProfile[] {
    if (this.#totals.length === 0 || this.#isDisposed) return [];
    const times = new Float64Array(this.#program.records.length);
    const int8Records = new Set<number>();
    for (const part of this.#parts) {
      const own = part.times();
      for (const [index, record] of part.records.entries()) {
        times[record] = own[index];
        if (part.isInt8(index)) int8Records.add(record);
      }
    }
    return this.#totals.map(({ numRuns, flops, bytes }, index) => {
      const { op, layer } = this.#program.records[index];
      return { op, layer, numRuns, timeMs: times[index], flops, bytes, isInt8: int8Records.has(index) };
    });
  }

  async dispose(): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#onDispose();
    if (!this.#isRunning) freeParts(this.#parts, this.#context);
    else for (const { address, memory } of this.#parts) this.#context.queue.cancel(address, memory.runner);
  }

  /** Copies all weights to the memories of their parts, interleaved for kernels that need it. */
  async makeReady(): Promise<void> {
    for (const part of this.#parts) {
      if (part.buffers.isReady()) continue;
      const refused = await part.buffers.makeReady(part.repacked, () => this.#checkAlive());
      if (refused.length > 0) part.refuse(refused);
    }
  }

  #checkAlive(): void {
    if (this.#isDisposed) throw new ReleasedError('executable');
    this.#context.checkMemory();
  }

  #spanOf(stage: Stage): Span {
    const { boundary, begin, end, copies } = stage;
    if (begin === end) return { job: undefined, isNative: false, boundary };
    const part = this.#parts[stage.part];
    const { address, share, memory, buffers } = part;
    const { before, after } = buffers.cachesOf(stage);
    const copy = this.#copierOf(copies);
    const prepareStage = copies.length === 0 ? before : (): void => (before(), copy());
    const job = { address, begin, end, share, runner: memory.runner, before: prepareStage, after };
    return { job, isNative: part.isNative(begin, end), boundary };
  }

  #copierOf(copies: readonly PieceCopy[]): () => void {
    return copierOf(this.#program, this.#parts, copies, this.#scalars);
  }

  /** @param part the part that computes the output, if it is an activation */
  #outputOf(tensor: TensorRef, part: number | undefined): Output {
    if (tensor.buffer === arenaBufferIndex && part !== undefined) {
      const loaded = this.#parts[part];
      const bytesOf: LoadedPart['bytesOf'] = (ref, length) => loaded.bytesOf(ref, length);
      return { values: typedValues(this.#program, tensor, bytesOf), look: () => undefined };
    }
    const buffer = this.#context.bound.get(tensor.buffer) as WasmBuffer;
    const home = homePlace(buffer);
    const bytesOf: LoadedPart['bytesOf'] = ({ byteOffset }, length) =>
      home.memory.heap.bytes(home.address + byteOffset, length);
    return { values: typedValues(this.#program, tensor, bytesOf), look: () => makeCurrent(buffer, home) };
  }

  async #runSpans(options: RunOptions): Promise<void> {
    for (const span of this.#spans) {
      options.signal?.throwIfAborted();
      const waiting = span.job && this.#compute(span.job, span.isNative, options.signal);
      if (waiting !== undefined) await waiting;
      if (span.boundary === undefined) continue;
      await options.onBoundary?.(span.boundary);
      this.#checkAlive();
    }
  }

  /** Runs a job; returns a promise unless it finishes synchronously. */
  #compute(job: PlacedJob, isNative: boolean, signal: AbortSignal | undefined): void | Promise<void> {
    const checkAlive = (): void => this.#checkAlive();
    const finish = (isComplete: boolean): void => {
      checkAlive();
      if (!isComplete) signal?.throwIfAborted();
      if (!isComplete) throw new ReleasedError('executable');
    };
    const run = (): boolean | Promise<boolean> => this.#context.queue.run(job, signal, checkAlive);
    const result = isNative ? this.#firstRuns.run(job, run) : run();
    return typeof result === 'boolean' ? finish(result) : result.then(finish);
  }

  #count(): void {
    for (const [index, total] of this.#totals.entries()) {
      const record = this.#program.records[index];
      const shapes = shapesOf(this.#program, record, this.#scalars);
      const spec = opSpec(record.op);
      total.numRuns++;
      total.flops += spec.flops(shapes, record.attributes);
      total.bytes +=
        spec.bytes?.(shapes, record.attributes, dtypesOf(record)) ??
        bytesOfRecord(this.#program, record, this.#scalars);
    }
  }
}

function homePlace({ places }: WasmBuffer): BufferPlace {
  return places[0];
}

/** Copies activations between memories, limited to the sizes of the step. */
function copierOf(
  program: Program,
  parts: readonly LoadedPart[],
  copies: readonly PieceCopy[],
  scalars: Int32Array,
): () => void {
  const moves = copies.map(({ from, to, begin, end, tensor }) => ({
    ...{ begin, end, tensor },
    source: parts[from].arenaBytes(begin, end),
    target: parts[to].arenaBytes(begin, end),
    isFixed: tensor.shape.every((dim) => typeof dim === 'number'),
  }));
  return () => {
    for (const { source, target, begin, end, tensor, isFixed } of moves) {
      const last = isFixed
        ? end
        : tensor.byteOffset + tensorBytes(tensor.dtype, shapeInStep(program, tensor.shape, scalars));
      if (last >= end) target.set(source);
      else if (last > begin) target.set(source.subarray(0, last - begin));
    }
  };
}
