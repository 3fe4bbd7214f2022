/** A program in the memory of a backend: its words, plan, scalars, arena and scratch are one region. */
import {
  arenaBufferIndex,
  checkScalars,
  encodeProgram,
  opSpec,
  scalarBufferIndex,
  type Executable,
  type Fallback,
  type Program,
  type RecordProfile,
  type RunOptions,
  type TensorRef,
} from '@winnow/ops';
import { ArgumentError, BackendError, ReleasedError, UnsupportedOpError } from '@winnow/tensor';
import { createCallerShare } from './caller-share.js';
import { bindFallback } from './fallback.js';
import { writeGrids } from './grids.js';
import type { Heap } from './heap.js';
import { jobWords, planFlags, planWords } from './layout.js';
import { packedRefOf, type PackedTensor } from './packing.js';
import { planProgram } from './plan.js';
import { bytesOfRecord, capacityOf, dtypesOf, product, shapesOf } from './record-shapes.js';
import type { Job } from './runner.js';
import { supportOfRecord } from './support.js';

/** What an executable needs of its backend. */
export interface ExecutionContext {
  readonly heap: Heap;
  readonly numThreads: number;
  /** Byte address of a bound buffer. */
  readonly addressOf: (buffer: number) => number;
  /** @throws {ReleasedError} when the backend, or a buffer of the program, was released */
  readonly checkMemory: () => void;
  /** Runs records of a job; true when none was left out because of `cancel`. Waits for its turn. */
  readonly runRecords: (
    job: Job,
    signal: AbortSignal | undefined,
    checkAlive: () => void,
  ) => boolean | Promise<boolean>;
  /** Cancels the job of this address, if it is the one that runs. */
  readonly cancel: (address: number) => void;
  readonly now: () => number;
  /** Frees a region as soon as no job runs. */
  readonly release: (address: number) => void;
  readonly onDispose: (executable: Executable) => void;
  /** Whether the weights are interleaved as this program left them. */
  readonly isPacked: () => boolean;
  /** Makes sure that just these weights are interleaved; returns those that cannot be. */
  readonly pack: (tensors: readonly PackedTensor[], checkAlive: () => void) => Promise<readonly PackedTensor[]>;
  /** Whether activations may be 8-bit integers, with interleaved weights. */
  readonly packs: boolean;
  /** Longest time that a run may take on the calling thread. */
  readonly maxCallerMs: number;
  readonly profile: boolean;
  readonly onUnsupported: 'fallback' | 'error';
}

/** Records for the workers, or one record for the host. */
interface Span {
  readonly job: Job;
  readonly onHost: ((scalars: Int32Array) => void) | undefined;
  /** What the host does when the span ended. */
  readonly boundary: string | undefined;
}

export async function createExecutable(program: Program, context: ExecutionContext): Promise<Executable> {
  const { heap, numThreads, addressOf } = context;
  const unsupported = unsupportedRecords(program);
  const [first] = unsupported.values();
  if (first !== undefined && context.onUnsupported === 'error') {
    throw new UnsupportedOpError({ op: first.op, backend: 'wasm', reason: first.reason });
  }
  const plan = planProgram(program, context.packs, (record) => !unsupported.has(record));
  const numRecords = program.records.length;
  // lengths of words do not depend on addresses
  const numWords = encodeProgram(program, () => 0).length;
  const sizes = [
    numWords * 4,
    numRecords * planWords * 4,
    jobWords * 4,
    program.buffers[scalarBufferIndex].sizeBytes,
    program.buffers[arenaBufferIndex].sizeBytes,
    plan.sharedBytes,
    plan.localBytes * numThreads,
    context.profile ? numRecords * 8 : 0,
    ...plan.tables,
  ];
  const base = heap.allocate(
    sizes.reduce((sum, size) => sum + align(size), 0),
    'activations',
  );
  let next = base;
  const starts = sizes.map((size) => {
    const start = next;
    next += align(size);
    return start;
  });
  const [wordsAt, planAt, jobAt, scalarsAt, arenaAt, sharedAt, localAt, profileAt] = starts;
  const tablesAt = starts.slice(8);
  const placeOf = (buffer: number): number =>
    buffer === scalarBufferIndex ? scalarsAt : buffer === arenaBufferIndex ? arenaAt : addressOf(buffer);

  writeGrids(program, heap);
  const words = encodeProgram(program, placeOf);
  heap.words(wordsAt, numWords).set(words);
  const entries = heap.words(planAt, numRecords * planWords);
  for (let record = 0, at = 0; record < numRecords; at += words[at + 1], record++) {
    const { flags, table } = plan.records[record];
    entries.set([wordsAt + at * 4, flags, table < 0 ? 0 : tablesAt[table]], record * planWords);
  }
  const job = [planAt, scalarsAt, sharedAt, localAt, plan.localBytes, context.profile ? profileAt : 0];
  heap.words(jobAt, jobWords).set(job);
  const scalarWords = heap.words(scalarsAt, program.scalars.numWords);
  const bytesOf = ({ buffer, byteOffset }: TensorRef, length: number): Uint8Array =>
    heap.bytes(placeOf(buffer) + byteOffset, length);
  const share = createCallerShare(program, context.maxCallerMs);
  const jobOf = (begin: number, end: number): Job => ({ address: jobAt, begin, end, share });
  const bindRecord = (record: number): ((scalars: Int32Array) => void) =>
    bindFallback(program, program.records[record], bytesOf);
  const spans = spansOf(program, unsupported, jobOf, bindRecord);
  const outputs = new Map(
    [...program.outputs].map(([name, tensor]) => {
      const length = product(capacityOf(program, tensor));
      const { buffer, byteOffset } = bytesOf(tensor, length * 4);
      const values =
        tensor.dtype === 'i32'
          ? new Int32Array(buffer, byteOffset, length)
          : new Float32Array(buffer, byteOffset, length);
      return [name, values];
    }),
  );
  const totals = context.profile ? program.records.map(() => ({ numRuns: 0, hostMs: 0, flops: 0, bytes: 0 })) : [];
  let isRunning = false;
  let isDisposed = false;

  const checkAlive = (): void => {
    if (isDisposed) throw new ReleasedError('executable');
    context.checkMemory();
  };

  let packed = plan.packed;
  async function packWeights(): Promise<void> {
    if (context.isPacked()) return;
    const refused = await context.pack(packed, checkAlive);
    if (refused.length === 0) return;
    packed = packed.filter((tensor) => !refused.includes(tensor));
    for (const [index, record] of program.records.entries()) {
      const ref = packedRefOf(record);
      if (ref === undefined) continue;
      const at = index * planWords + 1;
      const isRefused = refused.some(
        ({ buffer, byteOffset }) => buffer === ref.buffer && byteOffset === ref.byteOffset,
      );
      // nor may a record take the codes of activations from one before that makes none any more, or go on beside it
      entries[at] = isRefused ? 0 : entries[at] & ~(planFlags.reuse | planFlags.free);
    }
  }

  /** Computes a span; gives a promise when it has to be waited for. */
  function compute({ job, onHost }: Span, signal: AbortSignal | undefined): void | Promise<void> {
    if (onHost !== undefined) {
      const start = context.now();
      onHost(scalarWords);
      if (context.profile) totals[job.begin].hostMs += context.now() - start;
      return;
    }
    const finish = (isComplete: boolean): void => {
      checkAlive();
      if (!isComplete) signal?.throwIfAborted();
      if (!isComplete) throw new ReleasedError('executable');
    };
    const result = context.runRecords(job, signal, checkAlive);
    return typeof result === 'boolean' ? finish(result) : result.then(finish);
  }

  async function runSpans(options: RunOptions): Promise<void> {
    for (const span of spans) {
      options.signal?.throwIfAborted();
      const waiting = compute(span, options.signal);
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
    fallbacks: fallbacksOf(unsupported),
    async run(scalars, options = {}) {
      if (isDisposed) throw new ReleasedError('executable');
      if (isRunning) throw new BackendError({ backend: 'wasm', message: 'the executable is running already' });
      checkScalars(scalars, program.scalars, program.symbols);
      context.checkMemory();
      options.signal?.throwIfAborted();
      isRunning = true;
      try {
        if (!context.isPacked()) await packWeights();
        scalarWords.set(scalars);
        await runSpans(options);
        if (context.profile) count();
      } finally {
        isRunning = false;
        if (isDisposed) context.release(base);
      }
    },
    async read(output, target) {
      checkAlive();
      const source = outputs.get(output);
      if (source === undefined || source.constructor !== target.constructor || source.length < target.length) {
        const known = [...outputs].map(
          ([name, values]) => `${name} (${values.constructor.name}, at most ${values.length})`,
        );
        throw new ArgumentError({
          argument: 'read',
          expected: `one of ${known.join(', ')}`,
          actual: `${output}, ${target.length} elements of ${target.constructor.name}`,
        });
      }
      target.set(source.subarray(0, target.length));
    },
    profile(): RecordProfile[] {
      if (totals.length === 0 || isDisposed) return [];
      const times = new Float64Array(heap.memory.buffer, profileAt, numRecords);
      return totals.map(({ numRuns, hostMs, flops, bytes }, index) => {
        const { op, layer } = program.records[index];
        return { op, layer, numRuns, timeMs: times[index] + hostMs, flops, bytes };
      });
    },
    async dispose() {
      if (isDisposed) return;
      isDisposed = true;
      context.onDispose(executable);
      if (isRunning) context.cancel(jobAt);
      else context.release(base);
    },
  };
  try {
    await packWeights();
  } catch (error) {
    await executable.dispose();
    throw error;
  }
  return executable;
}

function align(sizeBytes: number): number {
  return Math.ceil(sizeBytes / 64) * 64 + 64;
}

interface Unsupported {
  readonly op: string;
  readonly reason: string;
}

function unsupportedRecords(program: Program): Map<number, Unsupported> {
  const result = new Map<number, Unsupported>();
  for (const [index, record] of program.records.entries()) {
    const support = supportOfRecord(record);
    if (!support.supported) result.set(index, { op: record.op, reason: support.reason });
  }
  return result;
}

function fallbacksOf(unsupported: ReadonlyMap<number, Unsupported>): Fallback[] {
  const counts = new Map<string, Fallback>();
  for (const { op, reason } of unsupported.values()) {
    const key = `${op} ${reason}`;
    counts.set(key, { op, reason, numRecords: (counts.get(key)?.numRecords ?? 0) + 1 });
  }
  return [...counts.values()];
}

function spansOf(
  { segments }: Program,
  unsupported: ReadonlyMap<number, Unsupported>,
  jobOf: (begin: number, end: number) => Job,
  bind: (record: number) => (scalars: Int32Array) => void,
): Span[] {
  const spans: Span[] = [];
  for (const { begin, end, boundary } of segments) {
    const parts: Span[] = [];
    for (let from = begin; from < end;) {
      let to = from;
      while (to < end && !unsupported.has(to)) to++;
      if (to > from) parts.push({ job: jobOf(from, to), onHost: undefined, boundary: undefined });
      if (to < end) parts.push({ job: jobOf(to, to + 1), onHost: bind(to), boundary: undefined });
      from = to + 1;
    }
    const last = parts.pop() ?? { job: jobOf(begin, end), onHost: () => undefined };
    spans.push(...parts, { ...last, boundary });
  }
  return spans;
}
