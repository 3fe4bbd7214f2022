/**
 * The records of a program that run in one memory: their words, plan, scalars, arena and scratch are one region there.
 */
import {
  arenaBufferIndex,
  encodeProgram,
  recordWords,
  scalarBufferIndex,
  type OpRecord,
  type Program,
  type TensorRef,
} from '@winnow/ops';
import { CapacityError } from '@winnow/tensor';
import { aheadAux, jobWords, planEntry, planFlags, planWords, tableAux } from '../kernels/layout.generated.js';
import { jobOf } from '../kernels/job-words.js';
import { capacityOf, product } from '../kernels/record-shapes.js';
import type { Heap } from '../memory/heap.js';
import type { MemoryShard } from '../memory/memory-shard.js';
import { isInt8Sparse, repackedRefOf, type RepackedTensor } from '../memory/repacking.js';
import { createCallerShare, type CallerShare } from '../runner/caller-share.js';
import { aheadOf } from './free-records.js';
import { writeGrids } from './grids.js';
import { planProgram, withNative, type Plan } from './plan.js';
import type { ScratchMeter } from './scratch-meter.js';
import type { ProgramPart } from './split-program.js';

export interface PartOptions {
  /** Byte address of a weight or a cache in the memory of the part. */
  readonly addressOf: (buffer: number) => number;
  /** Weights of the whole program to interleave, from `repackableTensors`. */
  readonly repackable: ReadonlyMap<string, RepackedTensor>;
  /** Whether activations may be 8-bit integers. */
  readonly usesInt8: boolean;
  /** Whether steps must be batch-invariant. */
  readonly isInvariant: boolean;
  readonly maxCallerMs: number;
  readonly profile: boolean;
  readonly scratchMeter: ScratchMeter;
  /** Called when the scratch of native kernels does not fit, so that WebAssembly computes the part. */
  readonly onNativeShortage: () => void;
}

export interface LoadedPart {
  readonly memory: MemoryShard;
  readonly program: Program;
  /** Indices of its records in the whole program. */
  readonly records: readonly number[];
  /** Start of the region. */
  readonly base: number;
  /** The job block. */
  readonly address: number;
  readonly share: CallerShare;
  readonly scalars: Int32Array;
  /** Weights that are not interleaved yet. */
  readonly repacked: readonly RepackedTensor[];
  arenaBytes(begin: number, end: number): Uint8Array;
  bytesOf(tensor: TensorRef, length: number): Uint8Array;
  /** Time per record, for programs with a profile. */
  times(): Float64Array;
  /** Whether a record of the part computes with 8-bit activations. */
  isInt8(record: number): boolean;
  /** Whether a native kernel may compute a record from `begin` to before `end`. */
  isNative(begin: number, end: number): boolean;
  /** Makes records read these weights in their original layout. */
  refuse(tensors: readonly RepackedTensor[]): void;
}

/** Addresses of a part's words, plan, scalars, arena and scratch. */
interface Places {
  readonly base: number;
  readonly words: number;
  readonly plan: number;
  readonly job: number;
  readonly scalars: number;
  readonly arena: number;
  readonly shared: number;
  readonly local: number;
  readonly profile: number;
  readonly tables: readonly number[];
}

/** Allocates one region for all pieces of a part. @throws {CapacityError} */
function placePieces(
  heap: Heap,
  sizes: Readonly<Record<Exclude<keyof Places, 'base' | 'tables'>, number>>,
  tables: readonly number[],
): Places {
  const names = Object.keys(sizes) as (keyof typeof sizes)[];
  const lengths = [...names.map((name) => sizes[name]), ...tables].map(align);
  const base = heap.allocate(
    lengths.reduce((sum, length) => sum + length, 0),
    'activations',
  );
  let next = base;
  const starts = lengths.map((length) => {
    const start = next;
    next += length;
    return start;
  });
  const named = Object.fromEntries(names.map((name, index) => [name, starts[index]])) as typeof sizes;
  return { base, ...named, tables: starts.slice(names.length) };
}

/** Writes words, plan entries and the job block. */
function writePart(
  { memory, program }: ProgramPart<MemoryShard>,
  plan: Plan,
  places: Places,
  placeOf: (buffer: number) => number,
  localBytes: number,
): void {
  const { heap } = memory;
  const numRecords = program.records.length;
  const words = encodeProgram(program, placeOf);
  heap.words(places.words, words.length).set(words);
  const entries = heap.words(places.plan, numRecords * planWords);
  for (let record = 0, at = 0; record < numRecords; at += words[at + recordWords.length], record++) {
    const { flags, table } = plan.records[record];
    const entry = record * planWords;
    const aux = entry + planEntry.aux / 4;
    entries[entry + planEntry.record / 4] = places.words + at * 4;
    entries[entry + planEntry.flags / 4] = flags;
    entries[aux + tableAux] = table < 0 ? 0 : places.tables[table];
    entries[aux + aheadAux] = aheadOf(program, plan.records, record);
  }
  const { scalars, shared, local, profile } = places;
  const job = jobOf({ plan: places.plan, scalars, shared, local, localBytes, profile });
  heap.words(places.job, jobWords).set(job);
}

/** The flags of plan entries in memory. */
class PlanFlags {
  readonly #entries: Int32Array;

  constructor(entries: Int32Array) {
    this.#entries = entries;
  }
  get(record: number): number {
    return this.#entries[record * planWords + planEntry.flags / 4];
  }
  set(record: number, flags: number): void {
    this.#entries[record * planWords + planEntry.flags / 4] = flags;
  }
}

/** Makes records read these weights in their original layout. */
function refuseTensors({ records }: Program, tensors: readonly RepackedTensor[], flags: PlanFlags): void {
  for (const [index, record] of records.entries()) {
    const isRefused = reads(record, tensors);
    if (isRefused === undefined) continue;
    const before = flags.get(index);
    // nor may a record reuse quantized activations of a previous record that no longer quantizes, or skip the barrier
    // after it; native kernels were chosen for the flags as they were
    if (isRefused && isInt8Sparse(record)) flags.set(index, before & ~(planFlags.repacked | planFlags.native));
    else
      flags.set(index, isRefused ? before & planFlags.invariant : before & ~(planFlags.reuse | planFlags.independent));
  }
}

interface PlacedPart {
  readonly places: Places;
  /** Plan for these records with the chosen kernels. */
  readonly plan: Plan;
  readonly localBytes: number;
}

/** Plans the kernels of a part, including native ones if their scratch fits. @throws {CapacityError} */
function placePart(part: ProgramPart<MemoryShard>, planned: Plan, options: PartOptions, usesNative = true): PlacedPart {
  const { memory, program } = part;
  const numRecords = program.records.length;
  const words = encodeProgram(program, () => 0); // their number does not depend on addresses
  const scratch = options.scratchMeter.measure(program, words, planned.records, usesNative);
  const sizes = {
    words: words.length * 4,
    plan: numRecords * planWords * 4,
    job: jobWords * 4,
    scalars: program.buffers[scalarBufferIndex].sizeBytes,
    arena: program.buffers[arenaBufferIndex].sizeBytes,
    shared: scratch.sharedBytes,
    local: scratch.localBytes * memory.runner.numThreads,
    profile: options.profile ? numRecords * 8 : 0,
  };
  try {
    const placed = placePieces(memory.heap, sizes, planned.tables);
    const plan = { ...planned, records: withNative(planned.records, scratch.nativeRecords) };
    return { places: options.profile ? placed : { ...placed, profile: 0 }, plan, localBytes: scratch.localBytes };
  } catch (error) {
    if (scratch.nativeRecords.size === 0 || !CapacityError.isInstance(error)) throw error;
    const placed = placePart(part, planned, options, false);
    options.onNativeShortage();
    return placed;
  }
}

/** @throws {CapacityError} */
export function loadPart(part: ProgramPart<MemoryShard>, options: PartOptions): LoadedPart {
  const { memory, program, stageStarts } = part;
  const planned = planProgram(program, options.repackable, options.usesInt8, stageStarts, options.isInvariant);
  const placed = placePart(part, planned, options);
  const { places, plan, localBytes } = placed;
  const placeOf = (buffer: number): number =>
    buffer === scalarBufferIndex
      ? places.scalars
      : buffer === arenaBufferIndex
        ? places.arena
        : options.addressOf(buffer);
  writeGrids(program, memory.heap);
  writePart(part, plan, places, placeOf, localBytes);
  return new WrittenPart(part, placed, placeOf, options.maxCallerMs);
}

/** A part whose pieces are written. */
class WrittenPart implements LoadedPart {
  readonly memory: MemoryShard;
  readonly program: Program;
  readonly records: readonly number[];
  readonly share: CallerShare;
  readonly scalars: Int32Array;
  readonly #places: Places;
  readonly #placeOf: (buffer: number) => number;
  #repacked: readonly RepackedTensor[];

  constructor(
    { memory, program, records }: ProgramPart<MemoryShard>,
    { places, plan }: PlacedPart,
    placeOf: (buffer: number) => number,
    maxCallerMs: number,
  ) {
    this.memory = memory;
    this.program = program;
    this.records = records;
    this.scalars = memory.heap.words(places.scalars, program.scalars.numWords);
    this.share = createCallerShare(program, maxCallerMs, this.scalars);
    this.#places = places;
    this.#placeOf = placeOf;
    this.#repacked = plan.repacked;
  }

  get base(): number {
    return this.#places.base;
  }

  get address(): number {
    return this.#places.job;
  }

  get repacked(): readonly RepackedTensor[] {
    return this.#repacked;
  }

  arenaBytes(begin: number, end: number): Uint8Array {
    return this.memory.heap.bytes(this.#places.arena + begin, end - begin);
  }

  bytesOf({ buffer, byteOffset }: TensorRef, length: number): Uint8Array {
    return this.memory.heap.bytes(this.#placeOf(buffer) + byteOffset, length);
  }

  times(): Float64Array {
    return new Float64Array(this.memory.heap.memory.buffer, this.#places.profile, this.program.records.length);
  }

  isInt8(record: number): boolean {
    return (this.#flags().get(record) & planFlags.int8) !== 0;
  }

  isNative(begin: number, end: number): boolean {
    const flags = this.#flags();
    for (let record = begin; record < end; record++) if ((flags.get(record) & planFlags.native) !== 0) return true;
    return false;
  }

  refuse(tensors: readonly RepackedTensor[]): void {
    this.#repacked = this.#repacked.filter((tensor) => !tensors.includes(tensor));
    refuseTensors(this.program, tensors, this.#flags());
  }

  #flags(): PlanFlags {
    return new PlanFlags(this.memory.heap.words(this.#places.plan, this.program.records.length * planWords));
  }
}

/** Whether a record reads one of these weights; `undefined` for ops that never read interleaved weights. */
function reads(record: OpRecord, tensors: readonly RepackedTensor[]): boolean | undefined {
  const ref = repackedRefOf(record);
  return ref && tensors.some(({ buffer, byteOffset }) => buffer === ref.buffer && byteOffset === ref.byteOffset);
}

/** The host's view of a tensor of 32-bit elements, at its capacity. */
export function typedValues(
  program: Program,
  tensor: TensorRef,
  bytesOf: LoadedPart['bytesOf'],
): Float32Array | Int32Array {
  const length = product(capacityOf(program, tensor));
  const { buffer, byteOffset } = bytesOf(tensor, length * 4);
  return tensor.dtype === 'i32'
    ? new Int32Array(buffer, byteOffset, length)
    : new Float32Array(buffer, byteOffset, length);
}

function align(sizeBytes: number): number {
  return Math.ceil(sizeBytes / 64) * 64 + 64;
}
