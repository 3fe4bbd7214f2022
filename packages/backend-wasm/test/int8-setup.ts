/** What tests of products on 8-bit integers share: kinds of backends, encoded weights, rows in any order. */
import { decode, encode, sizeOf, type DType, type Rng } from '@winnow/tensor';
import type { CreateWasmBackendOptions } from '../src/index.node.js';

export const variants: Readonly<Record<string, CreateWasmBackendOptions>> = {
  'relaxed, 1 thread': { relaxedSimd: true, numThreads: 1 },
  'relaxed, by pairs, 2 threads': { relaxedSimd: true, numThreads: 2, minSharedWork: 0, byteProducts: 'pairs' },
  'relaxed, 3 threads': { relaxedSimd: true, numThreads: 3, minSharedWork: 0 },
  'relaxed, whole, 1 thread': { relaxedSimd: true, numThreads: 1, byteProducts: 'whole' },
  'simd, 1 thread': { relaxedSimd: false, numThreads: 1 },
  'simd, 3 threads': { relaxedSimd: false, numThreads: 3, minSharedWork: 0 },
};

export const bytesOf = (values: Float32Array | Int32Array): Uint8Array => new Uint8Array(values.buffer);

/** Values as a dtype has them: encoded, and decoded again. */
export function encodedWeight(dtype: DType, random: Float32Array): { weight: Uint8Array; values: Float32Array } {
  const weight = new Uint8Array(sizeOf(dtype, random.length));
  encode(dtype, random, weight);
  const values = new Float32Array(random.length);
  decode(dtype, weight, values);
  return { weight, values };
}

/** All rows, in any order. */
export function shuffledRows(rng: Rng, numRows: number): Int32Array {
  const order = Array.from({ length: numRows }, (_, row) => row);
  return Int32Array.from({ length: numRows }, () => order.splice(rng.nextInt(order.length), 1)[0] as number);
}
