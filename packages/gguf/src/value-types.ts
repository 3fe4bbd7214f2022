/**
 * The value types of GGUF metadata, as numbered in
 * https://github.com/ggml-org/ggml/blob/01f0d4da3e444ca2bfe705e72adab08a4394bb1d/docs/gguf.md#file-structure
 */

/** Names of the value types, in the order of their numbers in the file. */
export const ggufTypes = [
  'uint8',
  'int8',
  'uint16',
  'int16',
  'uint32',
  'int32',
  'float32',
  'bool',
  'string',
  'array',
  'uint64',
  'int64',
  'float64',
] as const;

export type GgufType = (typeof ggufTypes)[number];

/** Types of at most 32 bits, and doubles: always exact as a JavaScript number. */
export type GgufNumberType = 'uint8' | 'int8' | 'uint16' | 'int16' | 'uint32' | 'int32' | 'float32' | 'float64';

/** A typed array of numbers. */
export type GgufTypedArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array;

/** A metadata array. 64-bit elements are numbers where that is exact, else bigints. */
export type GgufArray =
  | { readonly type: 'array'; readonly elementType: GgufNumberType; readonly value: GgufTypedArray | readonly number[] }
  | { readonly type: 'array'; readonly elementType: 'uint64' | 'int64'; readonly value: readonly (number | bigint)[] }
  | { readonly type: 'array'; readonly elementType: 'bool'; readonly value: readonly boolean[] }
  | { readonly type: 'array'; readonly elementType: 'string'; readonly value: readonly string[] }
  | { readonly type: 'array'; readonly elementType: 'array'; readonly value: readonly GgufArray[] };

/** A metadata value with its stored type. */
export type GgufTypedValue =
  | { readonly type: GgufNumberType; readonly value: number }
  | { readonly type: 'uint64' | 'int64'; readonly value: number | bigint }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | GgufArray;

/** Bytes of one value of each type; for strings and arrays the minimum. */
export const minValueBytes: Readonly<Record<GgufType, number>> = {
  uint8: 1,
  int8: 1,
  uint16: 2,
  int16: 2,
  uint32: 4,
  int32: 4,
  float32: 4,
  bool: 1,
  string: 8, // length
  array: 12, // element type and length
  uint64: 8,
  int64: 8,
  float64: 8,
};

const arrayClasses = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  float32: Float32Array,
  float64: Float64Array,
} as const;

/**
 * The values in `bytes`, copied. Like tensor data they are little-endian, the byte order of every supported machine.
 */
export function typedArrayOf(type: GgufNumberType, bytes: Uint8Array): GgufTypedArray {
  return new arrayClasses[type](bytes.slice().buffer);
}

export function isNumberType(type: GgufType): type is GgufNumberType {
  return type in arrayClasses;
}
