/**
 * Data types: plain numbers and the block formats of GGML. A block format stores `blockSize` values in `blockBytes`.
 */
import { ArgumentError, ShapeError } from './errors.js';

/** Name of a data type, as in GGML, in lowercase except for the K of the super-block formats. */
export type DType =
  | 'f32'
  | 'f16'
  | 'q4_0'
  | 'q4_1'
  | 'q5_0'
  | 'q5_1'
  | 'q8_0'
  | 'q8_1'
  | 'q2_K'
  | 'q3_K'
  | 'q4_K'
  | 'q5_K'
  | 'q6_K'
  | 'q8_K'
  | 'iq2_xxs'
  | 'iq2_xs'
  | 'iq3_xxs'
  | 'iq1_s'
  | 'iq4_nl'
  | 'iq3_s'
  | 'iq2_s'
  | 'iq4_xs'
  | 'i8'
  | 'i16'
  | 'i32'
  | 'i64'
  | 'f64'
  | 'iq1_m'
  | 'bf16'
  | 'tq1_0'
  | 'tq2_0'
  | 'mxfp4';

/** Properties of one data type. */
export interface DTypeInfo {
  readonly name: DType;
  /** Values per block; 1 for plain numbers. */
  readonly blockSize: number;
  /** Bytes per block. */
  readonly blockBytes: number;
  /** Number of the type in GGUF files. */
  readonly ggmlType: number;
  readonly isQuantized: boolean;
}

// name: [values per block, bytes per block, GGUF type number]; figures from ggml-common.h and ggml.h of llama.cpp
const table: Readonly<Record<DType, readonly [number, number, number]>> = {
  f32: [1, 4, 0],
  f16: [1, 2, 1],
  q4_0: [32, 18, 2],
  q4_1: [32, 20, 3],
  q5_0: [32, 22, 6],
  q5_1: [32, 24, 7],
  q8_0: [32, 34, 8],
  q8_1: [32, 36, 9],
  q2_K: [256, 84, 10],
  q3_K: [256, 110, 11],
  q4_K: [256, 144, 12],
  q5_K: [256, 176, 13],
  q6_K: [256, 210, 14],
  q8_K: [256, 292, 15],
  iq2_xxs: [256, 66, 16],
  iq2_xs: [256, 74, 17],
  iq3_xxs: [256, 98, 18],
  iq1_s: [256, 50, 19],
  iq4_nl: [32, 18, 20],
  iq3_s: [256, 110, 21],
  iq2_s: [256, 82, 22],
  iq4_xs: [256, 136, 23],
  i8: [1, 1, 24],
  i16: [1, 2, 25],
  i32: [1, 4, 26],
  i64: [1, 8, 27],
  f64: [1, 8, 28],
  iq1_m: [256, 56, 29],
  bf16: [1, 2, 30],
  tq1_0: [256, 54, 34],
  tq2_0: [256, 66, 35],
  mxfp4: [32, 17, 39],
};

const infos: ReadonlyMap<string, DTypeInfo> = new Map(
  Object.entries(table).map(([name, [blockSize, blockBytes, ggmlType]]) => [
    name,
    Object.freeze({ name: name as DType, blockSize, blockBytes, ggmlType, isQuantized: blockSize > 1 }),
  ]),
);
const byGgmlType: ReadonlyMap<number, DTypeInfo> = new Map([...infos.values()].map((info) => [info.ggmlType, info]));

/** All data types, in the order of their GGUF numbers. */
export const dtypes: readonly DType[] = [...byGgmlType.keys()]
  .sort((a, b) => a - b)
  .map((number) => (byGgmlType.get(number) as DTypeInfo).name);

export function isDType(name: string): name is DType {
  return infos.has(name);
}

/** @throws {ArgumentError} when the data type is unknown */
export function dtypeInfo(name: DType): DTypeInfo {
  const info = infos.get(name);
  if (info === undefined)
    throw new ArgumentError({ argument: 'dtype', expected: dtypes.join(' | '), actual: String(name) });
  return info;
}

/** The data type with this number in GGUF files, or `undefined` when Winnow does not know it. */
export function dtypeOfGgmlType(ggmlType: number): DType | undefined {
  return byGgmlType.get(ggmlType)?.name;
}

/**
 * Bytes of `numValues` consecutive values.
 * @throws {ShapeError} when `numValues` is not a whole number of blocks
 */
export function sizeOf(dtype: DType, numValues: number): number {
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  if (!Number.isSafeInteger(numValues) || numValues < 0 || numValues % blockSize !== 0) {
    throw new ShapeError({
      op: `sizeOf(${dtype})`,
      rule: 'number of values',
      expected: `a multiple of ${blockSize}`,
      actual: String(numValues),
    });
  }
  const sizeBytes = (numValues / blockSize) * blockBytes;
  if (!Number.isSafeInteger(sizeBytes)) {
    throw new ShapeError({
      op: `sizeOf(${dtype})`,
      rule: 'bytes',
      expected: 'at most 2^53 - 1',
      actual: String(sizeBytes),
    });
  }
  return sizeBytes;
}
