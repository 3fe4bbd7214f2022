/** The memory of a KV cache in a program. */
import type { DType } from '@winnow/tensor';
import type { ProgramBuilder, ProgramTensor } from '../program/program-builder.js';

/**
 * The tensors of one layer's cache. C blocks of S slots, K KV heads, head sizes H and D, B sequences of at most M
 * blocks. Logical slot `j` of sequence `b`, `0 <= j < contextLengths[b]`, is slot `j % S` of block `blockTable[b,
 * floor(j / S)]`.
 */
export interface KvView {
  readonly keys: ProgramTensor; // [C, K, S, H]
  readonly values: ProgramTensor; // [C, K, S, D]
  readonly slotPositions: ProgramTensor; // [C, S] i32, -1 in empty slots
  readonly blockTable: ProgramTensor; // [B, M] i32
  readonly contextLengths: ProgramTensor; // [B] i32, slots in use
}

/** Rows of a cache: S slots per block, K KV heads, head sizes H and D. */
export interface KvRows {
  readonly blockSize: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly keyDType: DType;
  readonly valueDType: DType;
}

/** The tensors of a `KvView` that hold tokens. */
export type KvTensors = Pick<KvView, 'keys' | 'values' | 'slotPositions'>;

/**
 * Declares the memory of a cache of `numBlocks` blocks. @param names names of the external tensors. Default: as in
 * `KvView`
 */
export function externalKv(
  b: ProgramBuilder,
  { blockSize, numKvHeads, headDim, valueDim, keyDType, valueDType }: KvRows,
  numBlocks: number,
  names: Readonly<Record<keyof KvTensors, string>> = kvNames,
): KvTensors {
  const rows = [numBlocks, numKvHeads, blockSize];
  return {
    keys: b.external(names.keys, 'kv', keyDType, [...rows, headDim]),
    values: b.external(names.values, 'kv', valueDType, [...rows, valueDim]),
    slotPositions: b.external(names.slotPositions, 'kv', 'i32', [numBlocks, blockSize]),
  };
}

const kvNames = { keys: 'keys', values: 'values', slotPositions: 'slotPositions' } as const;
