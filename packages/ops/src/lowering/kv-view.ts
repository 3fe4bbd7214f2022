/** The memory of a KV cache in a program. */
import { ArgumentError, type DType } from '@winnow/tensor';
import { cacheDTypes } from '../spec/dtypes.js';
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

/** The dtypes of keys and values. */
export interface KvDTypes {
  readonly keys: DType;
  readonly values: DType;
}

/** @throws {ArgumentError} unless caches support the dtypes */
export function checkKvDTypes(argument: string, option: DType | KvDTypes): KvDTypes {
  const dtype = typeof option === 'string' ? { keys: option, values: option } : option;
  const unsupported = [dtype.keys, dtype.values].find((each) => !cacheDTypes.includes(each));
  if (unsupported === undefined) return dtype;
  throw new ArgumentError({ argument, expected: cacheDTypes.join(' | '), actual: String(unsupported) });
}

/** Rows of a cache: S slots per block, K KV heads, head sizes H and D. */
export interface KvRows {
  readonly blockSize: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly dtype: KvDTypes;
}

/** The tensors of a `KvView` that hold tokens. */
export type KvTensors = Pick<KvView, 'keys' | 'values' | 'slotPositions'>;

/**
 * Declares the memory of a cache of `numBlocks` blocks. @param names names of the external tensors. Default: as in
 * `KvView`
 */
export function externalKv(
  b: ProgramBuilder,
  { blockSize, numKvHeads, headDim, valueDim, dtype }: KvRows,
  numBlocks: number,
  names: Readonly<Record<keyof KvTensors, string>> = kvNames,
): KvTensors {
  const rows = [numBlocks, numKvHeads, blockSize];
  return {
    keys: b.external(names.keys, 'kv', dtype.keys, [...rows, headDim]),
    values: b.external(names.values, 'kv', dtype.values, [...rows, valueDim]),
    slotPositions: b.external(names.slotPositions, 'kv', 'i32', [numBlocks, blockSize]),
  };
}

const kvNames = { keys: 'keys', values: 'values', slotPositions: 'slotPositions' } as const;
