/**
 * The KV cache as kernels see it: the slots of a sequence and the position that each holds. Masks, windows and RoPE
 * always use positions, not slots, so that eviction, rings and paging may move slots.
 */
import { ShapeError } from '@winnow/tensor';
import { rowReader, rowsOf, type RowReader } from '../numerics/row-access.js';
import type { Dim } from '../spec/dims.js';
import { cacheDTypes, i32Only } from '../spec/dtypes.js';
import type { InputSpec, TensorView } from '../spec/op-spec.js';

/** Input specs of every op that reads a cache. */
export const kvViewInputs: Readonly<Record<string, InputSpec>> = {
  keys: { dtypes: cacheDTypes, shape: 'C K S H' },
  values: { dtypes: cacheDTypes, shape: 'C K S D' },
  slotPositions: { dtypes: i32Only, shape: 'C S' },
  blockTable: { dtypes: i32Only, shape: 'B M' },
  contextLengths: { dtypes: i32Only, shape: 'B' },
};

/** Axes of every op that attends over a cache. */
export const attentionAxes: Readonly<Record<string, string>> = {
  ...{ T: 'numTokens', N: 'numHeads', H: 'headDim', D: 'valueDim', K: 'numKvHeads' },
  ...{ C: 'numBlocks', S: 'blockSize', B: 'numSequences', M: 'maxBlocks' },
};

/** Checks that blocks are not empty. @throws {ShapeError} */
export function checkBlockSize(op: string, blockSize: Dim | undefined): void {
  if (Number(blockSize) > 0) return;
  throw new ShapeError({ op, rule: 'slots per block', expected: '1 or more', actual: String(blockSize) });
}

/** Rows of keys or of values as f32. */
export interface KvRows {
  readonly data: Float32Array;
  /** Index in `data` of the row of a slot and head; valid until the next call. */
  at(physicalSlot: number, kvHead: number): number;
}

/** Access to a cache for reference kernels. */
export interface KvReader {
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  contextLength(sequence: number): number;
  /** Physical slot (`block * S + offset`) of a logical slot. */
  physicalSlot(sequence: number, logicalSlot: number): number;
  /** Row of a KV head in tensors `[C, numParts, K, ...]` that summarize parts of cache blocks, counted by logical slots. */
  summaryRow(sequence: number, part: number, numParts: number, kvHead: number): number;
  /** Position that a physical slot holds, negative when it is empty. */
  position(physicalSlot: number): number;
  /** Keys and values, each in place where it is f32. */
  readonly keys: KvRows;
  readonly values: KvRows;
  readKey(physicalSlot: number, kvHead: number, out: Float32Array): void;
  readValue(physicalSlot: number, kvHead: number, out: Float32Array): void;
}

export function kvReader(inputs: Readonly<Record<string, TensorView>>): KvReader {
  const { keys, values, slotPositions, blockTable, contextLengths } = inputs;
  const [, numKvHeads, blockSize, headDim] = keys.shape;
  const valueDim = values.shape[3];
  const maxBlocks = blockTable.shape[1];
  const rowOf = (physicalSlot: number, kvHead: number): number => {
    const block = Math.floor(physicalSlot / blockSize);
    return (block * numKvHeads + kvHead) * blockSize + (physicalSlot % blockSize);
  };
  const read =
    (reader: RowReader, dim: number) =>
    (physicalSlot: number, kvHead: number, out: Float32Array): void =>
      reader(rowOf(physicalSlot, kvHead) * dim, dim, out, 0);
  const rows = (tensor: TensorView, dim: number): KvRows => {
    const { values: data, at } = rowsOf(tensor, dim);
    return { data, at: (physicalSlot, kvHead) => at(rowOf(physicalSlot, kvHead) * dim) };
  };
  return {
    numKvHeads,
    headDim,
    valueDim,
    contextLength: (sequence) => contextLengths.data[sequence],
    physicalSlot(sequence, logicalSlot) {
      const block = blockTable.data[sequence * maxBlocks + Math.floor(logicalSlot / blockSize)];
      return block * blockSize + (logicalSlot % blockSize);
    },
    summaryRow(sequence, part, numParts, kvHead) {
      const block = blockTable.data[sequence * maxBlocks + Math.floor(part / numParts)];
      return (block * numParts + (part % numParts)) * numKvHeads + kvHead;
    },
    position: (physicalSlot) => slotPositions.data[physicalSlot],
    keys: rows(keys, headDim),
    values: rows(values, valueDim),
    readKey: read(rowReader(keys), headDim),
    readValue: read(rowReader(values), valueDim),
  };
}
