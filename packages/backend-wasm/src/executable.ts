/** A program ready to run: one part per memory it uses, nearly always one. */
import {
  arenaBufferIndex,
  checkScalars,
  opSpec,
  type Executable,
  type Program,
  type RecordProfile,
  type RunOptions,
} from '@winnow/ops';
import { ArgumentError, BackendError, ReleasedError, tensorBytes } from '@winnow/tensor';
import { makeCurrent, type BufferPlace, type WasmBuffer } from './buffer-places.js';
import type { JobQueue } from './job-queue.js';
import type { MemoryPool } from './memory-pool.js';
import type { MemoryShard } from './memory-shard.js';
import { packableTensors } from './packing.js';
import { bindPart, type PartBuffers } from './part-buffers.js';
import { loadPart, typedValues, type LoadedPart } from './program-part.js';
import { bytesOfRecord, dtypesOf, shapeOf, shapesOf } from './record-shapes.js';
import type { PlacedJob } from './runner.js';
import type { ScratchMeter } from './scratch-meter.js';
import { splitProgram, type ProgramPart } from './split-program.js';
import type { PieceCopy } from './arena-pieces.js';

/** What an executable needs of its backend. */
export interface ExecutionContext {
  readonly pool: MemoryPool;
  readonly queue: JobQueue;
  readonly numThreads: number;
  /** Weights and caches by buffer. */
  readonly bound: ReadonlyMap<number, WasmBuffer>;
  /** Whether any buffer of the backend lies in several memories. */
  readonly hasCopies: () => boolean;
  /** Weights up to this size are copied to the memories where they are needed. */
  readonly smallBytes: number;
  /** @throws {ReleasedError} when the backend, or a buffer of the program, was released */
  readonly checkMemory: () => void;
  readonly now: () => number;
  readonly onDispose: (executable: Executable) => void;
  /** Whether activations may be 8-bit integers, with interleaved weights. */
  readonly packs: boolean;
  /** Longest time that a run may take on the calling thread. */
  readonly maxCallerMs: number;
  readonly profile: boolean;
  readonly scratchMeter: ScratchMeter;
  /** Buffers whose weights stay as they were written, because the host reads them. */
  readonly hostBuffers: ReadonlySet<string>;
}

/** Records that run in one job; none where boundaries follow one another. */
interface Span {
  readonly job: PlacedJob | undefined;
  /** What the host does when the span ended. */
  readonly boundary: string | undefined;
}

interface Part extends LoadedPart {
  readonly buffers: PartBuffers;
}

export async function createExecutable(program: Program, context: ExecutionContext): Promise<Executable> {
  const { pool, queue, bound } = context;
  const homeOf = (buffer: number): MemoryShard => homePlace(bound.get(buffer) as WasmBuffer).memory;
  const split = splitProgram(program, homeOf, pool.first, context.smallBytes);
  const packable = context.packs ? packableTensors(program, context.hostBuffers) : new Map();
  const parts: Part[] = [];
  const freeParts = (): void => {
    for (const { memory, base } of parts) queue.whenIdle(() => pool.free(memory, base));
  };
  const load = (part: ProgramPart<MemoryShard>): Part => {
    const buffers = bindPart(part, context);
    return Object.assign(loadPart(part, { ...context, addressOf: buffers.addressOf, packable }), { buffers });
  };
  try {
    for (const part of split.parts) parts.push(load(part));
  } catch (error) {
    freeParts();
    throw error;
  }
  const [{ scalars: scalarWords }] = parts;
  const copyPieces = (copies: readonly PieceCopy[]): (() => void) => copierOf(program, parts, copies, scalarWords);
  const spans = split.stages.map((stage): Span => {
    const { boundary, begin, end, copies } = stage;
    if (begin === end) return { job: undefined, boundary };
    const { address, share, memory, buffers } = parts[stage.part];
    const { before, after } = buffers.cachesOf(stage);
    const copy = copyPieces(copies);
    const prepareStage = copies.length === 0 ? before : (): void => (before(), copy());
    const job = { address, begin, end, share, runner: memory.runner, before: prepareStage, after };
    return { job, boundary };
  });
  const copyOutputs = copyPieces(split.lastCopies);
  const outputs = new Map(
    [...program.outputs].map(([name, tensor]) => {
      const index = split.outputs.get(name);
      if (tensor.buffer === arenaBufferIndex && index !== undefined) {
        const { bytesOf } = parts[index];
        return [name, { values: typedValues(program, tensor, bytesOf), look: () => undefined }] as const;
      }
      const buffer = bound.get(tensor.buffer) as WasmBuffer;
      const home = homePlace(buffer);
      const bytesOf: LoadedPart['bytesOf'] = ({ byteOffset }, length) =>
        home.memory.heap.bytes(home.address + byteOffset, length);
      return [name, { values: typedValues(program, tensor, bytesOf), look: () => makeCurrent(buffer, home) }] as const;
    }),
  );
  const totals = context.profile ? program.records.map(() => ({ numRuns: 0, flops: 0, bytes: 0 })) : [];
  let isRunning = false;
  let isDisposed = false;

  const checkAlive = (): void => {
    if (isDisposed) throw new ReleasedError('executable');
    context.checkMemory();
  };

  async function makeReady(): Promise<void> {
    for (const { buffers, packed, refuse } of parts) {
      if (buffers.isReady()) continue;
      const refused = await buffers.makeReady(packed, checkAlive);
      if (refused.length > 0) refuse(refused);
    }
  }

  /** Runs a job; gives a promise when it has to be waited for. */
  function compute(job: PlacedJob, signal: AbortSignal | undefined): void | Promise<void> {
    const finish = (isComplete: boolean): void => {
      checkAlive();
      if (!isComplete) signal?.throwIfAborted();
      if (!isComplete) throw new ReleasedError('executable');
    };
    const result = queue.run(job, signal, checkAlive);
    return typeof result === 'boolean' ? finish(result) : result.then(finish);
  }

  async function runSpans(options: RunOptions): Promise<void> {
    for (const span of spans) {
      options.signal?.throwIfAborted();
      const waiting = span.job && compute(span.job, options.signal);
      if (waiting !== undefined) await waiting;
      if (span.boundary === undefined) continue;
      await options.onBoundary?.(span.boundary);
      checkAlive();
    }
  }

  function count(): void {
    for (const [index, total] of totals.entries()) {
      const record = program.records[index];
      const shapes = shapesOf(program, record, scalarWords);
      const spec = opSpec(record.op);
      total.numRuns++;
      total.flops += spec.flops(shapes, record.attributes);
      total.bytes +=
        spec.bytes?.(shapes, record.attributes, dtypesOf(record)) ?? bytesOfRecord(program, record, scalarWords);
    }
  }

  const executable: Executable = {
    program,
    fallbacks: [],
    async run(scalars, options = {}) {
      if (isDisposed) throw new ReleasedError('executable');
      if (isRunning) throw new BackendError({ backend: 'wasm', message: 'the executable is running already' });
      checkScalars(scalars, program.scalars, program.symbols);
      context.checkMemory();
      options.signal?.throwIfAborted();
      isRunning = true;
      try {
        if (!parts.every(({ buffers }) => buffers.isReady())) await makeReady();
        for (const part of parts) part.scalars.set(scalars);
        await runSpans(options);
        copyOutputs();
        if (context.profile) count();
      } finally {
        isRunning = false;
        if (isDisposed) freeParts();
      }
    },
    async read(output, target) {
      checkAlive();
      const { values: source, look } = outputs.get(output) ?? {};
      if (
        source === undefined ||
        look === undefined ||
        source.constructor !== target.constructor ||
        source.length < target.length
      ) {
        const known = [...outputs].map(
          ([name, { values }]) => `${name} (${values.constructor.name}, at most ${values.length})`,
        );
        throw new ArgumentError({
          argument: 'read',
          expected: `one of ${known.join(', ')}`,
          actual: `${output}, ${target.length} elements of ${target.constructor.name}`,
        });
      }
      look();
      target.set(source.subarray(0, target.length));
    },
    profile(): RecordProfile[] {
      if (totals.length === 0 || isDisposed) return [];
      const times = new Float64Array(program.records.length);
      const int8Records = new Set<number>();
      for (const part of parts) {
        const own = part.times();
        for (const [index, record] of part.records.entries()) {
          times[record] = own[index];
          if (part.isInt8(index)) int8Records.add(record);
        }
      }
      return totals.map(({ numRuns, flops, bytes }, index) => {
        const { op, layer } = program.records[index];
        return { op, layer, numRuns, timeMs: times[index], flops, bytes, isInt8: int8Records.has(index) };
      });
    },
    async dispose() {
      if (isDisposed) return;
      isDisposed = true;
      context.onDispose(executable);
      if (!isRunning) freeParts();
      else for (const { address, memory } of parts) queue.cancel(address, memory.runner);
    },
  };
  try {
    await makeReady();
  } catch (error) {
    await executable.dispose();
    throw error;
  }
  return executable;
}

function homePlace({ places }: WasmBuffer): BufferPlace {
  return places[0];
}

/** Copies activations between memories, as many as there are in the step. */
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
      const last = isFixed ? end : tensor.byteOffset + tensorBytes(tensor.dtype, shapeOf(program, tensor, scalars));
      if (last >= end) target.set(source);
      else if (last > begin) target.set(source.subarray(0, last - begin));
    }
  };
}
