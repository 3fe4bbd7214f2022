/** Conversion between packed tensor bytes of any data type and float32: checked calls, and bare functions for loops. */
import {
  decodeIq1M,
  decodeIq1S,
  decodeIq2S,
  decodeIq2Xs,
  decodeIq2Xxs,
  decodeIq3S,
  decodeIq3Xxs,
} from './codecs/iq.js';
import {
  decodeIq4Xs,
  decodeQ2_K,
  decodeQ3_K,
  decodeQ4_K,
  decodeQ5_K,
  decodeQ6_K,
  decodeQ8_K,
} from './codecs/k-quants.js';
import { encodeIq4Nl, encodeIq4Xs, encodeMxfp4 } from './codecs/four-bit-encode.js';
import { encodeQ2_K, encodeQ3_K, encodeQ4_K, encodeQ5_K, encodeQ6_K } from './codecs/k-quants-encode.js';
import {
  decodeBf16,
  decodeF16,
  decodeF32,
  decodeF64,
  decodeI16,
  decodeI32,
  decodeI64,
  decodeI8,
  encodeBf16,
  encodeF16,
  encodeF32,
  encodeF64,
  encodeI16,
  encodeI32,
  encodeI64,
  encodeI8,
} from './codecs/plain.js';
import {
  decodeIq4Nl,
  decodeMxfp4,
  decodeQ4_0,
  decodeQ4_1,
  decodeQ5_0,
  decodeQ5_1,
  decodeQ8_0,
  decodeQ8_1,
} from './codecs/q32.js';
import { encodeQ4_0, encodeQ4_1, encodeQ5_0, encodeQ5_1, encodeQ8_0 } from './codecs/q32-encode.js';
import { decodeTq1_0, decodeTq2_0 } from './codecs/ternary.js';
import type { Decoder, Encoder } from './codecs/signatures.js';
import { dtypeInfo, sizeOf, type DType } from './dtype.js';
import { ArgumentError, DTypeError, ShapeError } from './errors.js';

const decoders: Readonly<Record<DType, Decoder>> = {
  f32: decodeF32,
  f16: decodeF16,
  bf16: decodeBf16,
  f64: decodeF64,
  i8: decodeI8,
  i16: decodeI16,
  i32: decodeI32,
  i64: decodeI64,
  q4_0: decodeQ4_0,
  q4_1: decodeQ4_1,
  q5_0: decodeQ5_0,
  q5_1: decodeQ5_1,
  q8_0: decodeQ8_0,
  q8_1: decodeQ8_1,
  q2_K: decodeQ2_K,
  q3_K: decodeQ3_K,
  q4_K: decodeQ4_K,
  q5_K: decodeQ5_K,
  q6_K: decodeQ6_K,
  q8_K: decodeQ8_K,
  iq1_s: decodeIq1S,
  iq1_m: decodeIq1M,
  iq2_xxs: decodeIq2Xxs,
  iq2_xs: decodeIq2Xs,
  iq2_s: decodeIq2S,
  iq3_xxs: decodeIq3Xxs,
  iq3_s: decodeIq3S,
  iq4_nl: decodeIq4Nl,
  iq4_xs: decodeIq4Xs,
  tq1_0: decodeTq1_0,
  tq2_0: decodeTq2_0,
  mxfp4: decodeMxfp4,
};

/** Encoders that search for scales: errors are weighted by `importance`. */
const searchingEncoders: Readonly<Partial<Record<DType, Encoder>>> = {
  q2_K: encodeQ2_K,
  q3_K: encodeQ3_K,
  q4_K: encodeQ4_K,
  q5_K: encodeQ5_K,
  q6_K: encodeQ6_K,
  iq4_nl: encodeIq4Nl,
  iq4_xs: encodeIq4Xs,
  mxfp4: encodeMxfp4,
};

const plainEncoders: Readonly<Partial<Record<DType, Encoder>>> = {
  f32: encodeF32,
  f16: encodeF16,
  bf16: encodeBf16,
  f64: encodeF64,
  i8: encodeI8,
  i16: encodeI16,
  i32: encodeI32,
  i64: encodeI64,
  q4_0: encodeQ4_0,
  q4_1: encodeQ4_1,
  q5_0: encodeQ5_0,
  q5_1: encodeQ5_1,
  q8_0: encodeQ8_0,
};

/** Whether the encoder of a data type weights errors by `importance`. */
export function usesImportance(dtype: DType): boolean {
  return Object.hasOwn(searchingEncoders, dtype);
}

/** The bare decoder of a data type, for hot loops: look it up once. It neither validates nor allocates (see `Decoder`). */
export function decoder(dtype: DType): Decoder {
  dtypeInfo(dtype);
  return decoders[dtype];
}

/** Whether `encode` and `encoder` know this data type. */
export function canEncode(dtype: DType): boolean {
  return Object.hasOwn(plainEncoders, dtype) || usesImportance(dtype);
}

/**
 * The bare encoder of a data type, for hot loops (see `Encoder`).
 * @throws {DTypeError} when Winnow can only read this data type
 */
export function encoder(dtype: DType): Encoder {
  dtypeInfo(dtype);
  const found = plainEncoders[dtype] ?? searchingEncoders[dtype];
  if (found === undefined) {
    const names = [...Object.keys(plainEncoders), ...Object.keys(searchingEncoders)];
    throw new DTypeError({ op: 'encode', expected: names.join(' | '), actual: dtype });
  }
  return found;
}

/** Where `decode` reads and writes. */
export interface DecodeOptions {
  /** First byte to read; any alignment. Default 0. */
  readonly byteOffset?: number;
  /** First element of `out` to write. Default 0. */
  readonly outOffset?: number;
  /** Values to decode, whole blocks. Default: what fills `out` from `outOffset`. */
  readonly numValues?: number;
}

/**
 * Unpacks values of `dtype` to float32, bit for bit as llama.cpp does. Writes only `out[outOffset ... + numValues]`.
 * @throws {ShapeError} when the values are not whole blocks, or do not fit the bytes or `out`
 */
export function decode(dtype: DType, bytes: Uint8Array, out: Float32Array, options: DecodeOptions = {}): void {
  const { byteOffset = 0, outOffset = 0 } = options;
  const numValues = options.numValues ?? Math.max(0, out.length - outOffset);
  const op = `decode(${dtype})`;
  checkRange(op, 'bytes to read', byteOffset, sizeOf(dtype, numValues), bytes.length);
  checkRange(op, 'values to write', outOffset, numValues, out.length);
  decoders[dtype](bytes, byteOffset, out, outOffset, numValues);
}

/** Where `encode` reads and writes. */
export interface EncodeOptions {
  /** First element of `values` to read. Default 0. */
  readonly valueOffset?: number;
  /** First byte of `out` to write; any alignment. Default 0. */
  readonly byteOffset?: number;
  /** Values to encode, whole blocks. Default: all from `valueOffset`. */
  readonly numValues?: number;
  /** The weight of the squared error of each of `values`, positive; formats without `usesImportance` ignore it. Default: 1. */
  readonly importance?: Float32Array;
}

/**
 * Packs float32 values as `dtype`. Writes only the bytes of these values. q4_0, q4_1, q5_0, q5_1 and q8_0 give the bytes
 * of llama.cpp; the others search for the scales of least squared error, weighted by the importance of the values.
 * @throws {ArgumentError} when a value for a block format is NaN or infinite, which would ruin its whole block
 * @throws {DTypeError} when Winnow can only read this data type
 * @throws {ShapeError} when the values are not whole blocks, or do not fit `values` or `out`
 */
export function encode(dtype: DType, values: Float32Array, out: Uint8Array, options: EncodeOptions = {}): void {
  const { byteOffset = 0, valueOffset = 0, importance } = options;
  const numValues = options.numValues ?? Math.max(0, values.length - valueOffset);
  const op = `encode(${dtype})`;
  const encodeBlocks = encoder(dtype);
  checkRange(op, 'values to read', valueOffset, numValues, values.length);
  checkRange(op, 'bytes to write', byteOffset, sizeOf(dtype, numValues), out.length);
  if (dtypeInfo(dtype).isQuantized) checkFinite(values, valueOffset, numValues);
  if (importance !== undefined) {
    checkRange(op, 'importance to read', valueOffset, numValues, importance.length);
    checkImportance(importance, valueOffset, numValues);
  }
  encodeBlocks(values, valueOffset, out, byteOffset, numValues, importance);
}

function checkImportance(importance: Float32Array, offset: number, length: number): void {
  for (let index = offset; index < offset + length; index++) {
    const value = importance[index];
    if (value > 0 && value < Infinity) continue;
    throw new ArgumentError({
      argument: 'importance',
      expected: 'finite positive numbers',
      actual: `${value} at index ${index}`,
    });
  }
}

function checkFinite(values: Float32Array, offset: number, length: number): void {
  for (let index = offset; index < offset + length; index++) {
    if (!Number.isFinite(values[index])) {
      throw new ArgumentError({
        argument: 'values',
        expected: 'finite numbers',
        actual: `${values[index]} at index ${index}`,
      });
    }
  }
}

function checkRange(op: string, rule: string, offset: number, length: number, available: number): void {
  if (!Number.isSafeInteger(offset) || offset < 0 || offset + length > available) {
    throw new ShapeError({
      op,
      rule,
      expected: `a range within [0, ${available})`,
      actual: `[${offset}, ${offset + length})`,
    });
  }
}
