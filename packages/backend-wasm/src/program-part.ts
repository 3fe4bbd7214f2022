/** The records of a program that run in one memory: their words, plan, scalars, arena and scratch are one region there. */
import {
  arenaBufferIndex,
  encodeProgram,
  scalarBufferIndex,
  type OpRecord,
  type Program,
  type TensorRef,
} from '@winnow/ops';
import { createCallerShare, type CallerShare } from './caller-share.js';
import { writeGrids } from './grids.js';
import { aheadOf } from './free-records.js';
import { aheadAux, jobWords, planEntry, planFlags, planWords } from './layout.generated.js';
import type { MemoryShard } from './memory-shard.js';
import { packedRefOf, type PackedTensor } from './packing.js';
import { planProgram } from './plan.js';
import type { ScratchMeter } from './scratch-meter.js';
import { capacityOf, product } from './record-shapes.js';
import type { ProgramPart } from './split-program.js';

export interface PartOptions {
  readonly numThreads: number;
  /** Byte address of a weight or a cache in the memory of the part. */
  readonly addressOf: (buffer: number) => number;
  /** Weights of the whole program that are to be interleaved, of `packableTensors`. */
  readonly packable: ReadonlyMap<string, PackedTensor>;
  /** Whether activations may be 8-bit integers. */
  readonly packs: boolean;
  readonly maxCallerMs: number;
  readonly profile: boolean;
  readonly scratchMeter: ScratchMeter;
}

export interface LoadedPart {
  readonly memory: MemoryShard;
  readonly program: Program;
  /** Which records of the whole program they are. */
  readonly records: readonly number[];
  /** Start of the region. */
  readonly base: number;
  /** The job block. */
  readonly address: number;
  readonly share: CallerShare;
  readonly scalars: Int32Array;
  /** Weights that are still to be interleaved. */
  readonly packed: readonly PackedTensor[];
  arenaBytes(begin: number, end: number): Uint8Array;
  bytesOf(tensor: TensorRef, length: number): Uint8Array;
  /** Time per record, for programs with a profile. */
  times(): Float64Array;
  /** Whether a record of the part computes with 8-bit activations. */
  isInt8(record: number): boolean;
  /** Lets records read these weights as they are. */
  refuse(tensors: readonly PackedTensor[]): void;
}

/** @throws {CapacityError} */
export function loadPart(
  { memory, program, records, stageStarts }: ProgramPart<MemoryShard>,
  { numThreads, addressOf, packable, packs, maxCallerMs, profile, scratchMeter }: PartOptions,
): LoadedPart {
  const { heap } = memory;
  const plan = planProgram(program, packable, packs, stageStarts);
  const numRecords = program.records.length;
  // lengths of words and sizes do not depend on addresses
  const unplaced = encodeProgram(program, () => 0);
  const numWords = unplaced.length;
  const scratch = scratchMeter.measure(program, unplaced, plan.records);
  const sizes = [
    numWords * 4,
    numRecords * planWords * 4,
    jobWords * 4,
    program.buffers[scalarBufferIndex].sizeBytes,
    program.buffers[arenaBufferIndex].sizeBytes,
    scratch.sharedBytes,
    scratch.localBytes * numThreads,
    profile ? numRecords * 8 : 0,
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
    entries[record * planWords + planEntry.aux / 4 + aheadAux] = aheadOf(program, plan.records, record);
  }
  const job = [planAt, scalarsAt, sharedAt, localAt, scratch.localBytes, profile ? profileAt : 0];
  heap.words(jobAt, jobWords).set(job);
  const bytesOf = ({ buffer, byteOffset }: TensorRef, length: number): Uint8Array =>
    heap.bytes(placeOf(buffer) + byteOffset, length);
  let packed = plan.packed;
  return {
    ...{ memory, program, records, base, address: jobAt },
    share: createCallerShare(program, maxCallerMs),
    scalars: heap.words(scalarsAt, program.scalars.numWords),
    get packed() {
      return packed;
    },
    arenaBytes: (begin, end) => heap.bytes(arenaAt + begin, end - begin),
    bytesOf,
    times: () => new Float64Array(heap.memory.buffer, profileAt, numRecords),
    isInt8: (record) =>
      (heap.words(planAt, numRecords * planWords)[record * planWords + planEntry.flags / 4] & planFlags.int8) !== 0,
    refuse(tensors) {
      packed = packed.filter((tensor) => !tensors.includes(tensor));
      for (const [index, record] of program.records.entries()) {
        const at = index * planWords + planEntry.flags / 4;
        const isRefused = reads(record, tensors);
        if (isRefused === undefined) continue;
        // nor may a record take the codes of activations from one before that makes none any more, or go on beside it
        if (isRefused && record.op === 'sparse-feed-forward') entries[at] &= ~planFlags.repacked;
        else entries[at] = isRefused ? 0 : entries[at] & ~(planFlags.reuse | planFlags.independent);
      }
    },
  };
}

/** Whether a record reads one of these weights; `undefined` for ops that never read interleaved ones. */
function reads(record: OpRecord, tensors: readonly PackedTensor[]): boolean | undefined {
  const ref = packedRefOf(record);
  return ref && tensors.some(({ buffer, byteOffset }) => buffer === ref.buffer && byteOffset === ref.byteOffset);
}

/** A tensor of 32-bit elements as the host sees it, at its largest. */
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
