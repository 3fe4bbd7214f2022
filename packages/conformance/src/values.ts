/** Tensors with interesting values. */
import { createRng, decode, dtypeInfo, encode, sizeOf, type DType, type Rng } from '@winnow/tensor';
import type { CaseTensor, Expected } from './kernel-case.js';
import { randomBlocks } from './random-blocks.js';

/** Lengths around every vector width, tile and block that backends use. */
export const lengths: readonly number[] = [0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 67, 127, 129, 193, 255, 1023];

/** Values where kernels go wrong: signed zeros, denormal numbers, the ends of the range, infinities, NaN. */
export const specials: readonly number[] = [
  0,
  -0,
  1,
  -1,
  1000,
  -1000,
  0.5,
  -88,
  88,
  2 ** -126,
  -(2 ** -126),
  1e-40,
  -1e-40,
  2 ** -149,
  1e-20,
  -3,
  30,
  Infinity,
  -Infinity,
  NaN,
];

/** The same without NaN and infinities. */
export const finiteSpecials: readonly number[] = specials.filter(Number.isFinite);

/** Stable seed of a name (FNV-1a). */
export function seedOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193) >>> 0;
  return hash;
}

/** A separate stream of random numbers for each name. */
export function rngOf(name: string): Rng {
  return createRng(seedOf(name));
}

export function product(shape: readonly number[]): number {
  return shape.reduce((result, dim) => result * dim, 1);
}

function tensor(
  dtype: DType,
  shape: readonly number[],
  array: Float32Array | Int32Array,
  tokenAxis?: number,
): CaseTensor {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  return { dtype, shape, bytes, ...(tokenAxis === undefined ? {} : { tokenAxis }) };
}

/** An f32 tensor. */
export function floats(shape: readonly number[], values: ArrayLike<number>, tokenAxis?: number): CaseTensor {
  return tensor('f32', shape, Float32Array.from(values), tokenAxis);
}

/** An i32 tensor. */
export function ints(shape: readonly number[], values: ArrayLike<number>, tokenAxis?: number): CaseTensor {
  return tensor('i32', shape, Int32Array.from(values), tokenAxis);
}

function gaussians(rng: Rng, length: number, scale: number): Float32Array {
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) values[i] = rng.nextGaussian() * scale;
  return values;
}

/** Normal random numbers. */
export function gaussian(rng: Rng, shape: readonly number[], scale = 1, tokenAxis?: number): CaseTensor {
  return tensor('f32', shape, gaussians(rng, product(shape), scale), tokenAxis);
}

/** Normal random numbers, every fifth replaced by one of `values`. */
export function gaussianWith(
  rng: Rng,
  shape: readonly number[],
  values: readonly number[],
  tokenAxis?: number,
): CaseTensor {
  const numbers = new Float32Array(product(shape));
  for (let i = 0; i < numbers.length; i++) {
    numbers[i] = i % 5 === 4 ? values[Math.floor(i / 5) % values.length] : rng.nextGaussian() * 3;
  }
  return tensor('f32', shape, numbers, tokenAxis);
}

/** Random content of any float or block dtype, with scales that keep values near 1. */
export function randomTensor(rng: Rng, dtype: DType, shape: readonly number[]): CaseTensor {
  const numValues = product(shape);
  if (dtypeInfo(dtype).blockSize > 1) return { dtype, shape, bytes: randomBlocks(dtype, numValues, rng) };
  const values = gaussians(rng, numValues, 1);
  const bytes = new Uint8Array(sizeOf(dtype, numValues));
  encode(dtype, values, bytes);
  return { dtype, shape, bytes };
}

/** The numbers of a tensor in float64, for any dtype. */
export function numbersOf({ dtype, shape, bytes }: CaseTensor): Float64Array {
  if (dtype === 'i32') return new Float64Array(new Int32Array(bytes.slice().buffer));
  const values = new Float32Array(product(shape));
  decode(dtype, bytes, values);
  return new Float64Array(values);
}

/** The integers of an i32 tensor. */
export function integersOf({ bytes }: CaseTensor): Int32Array {
  return new Int32Array(bytes.slice().buffer);
}

/** Values with their bounds, both filled by `at`. */
export function close(numValues: number, at: (index: number) => readonly [value: number, bound: number]): Expected {
  const values = new Float64Array(numValues);
  const bounds = new Float64Array(numValues);
  for (let i = 0; i < numValues; i++) [values[i], bounds[i]] = at(i);
  return { kind: 'close', values, bounds };
}

/** Exactly these float32 numbers. */
export function exact(values: ArrayLike<number>): Expected {
  return { kind: 'close', values: Float64Array.from(values), bounds: new Float64Array(values.length) };
}
