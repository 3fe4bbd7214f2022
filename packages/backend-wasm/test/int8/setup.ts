/** Shared by tests with int8 activations: backend variants, encoded weights, permuted rows. */
import type { Backend, BufferHandle, Executable } from '@winnow/ops';
import { decode, encode, sizeOf, type DType, type Rng } from '@winnow/tensor';
import { compareClose } from '@winnow/conformance';
import { sampled, testCoverage } from '@winnow/test-utils';
import { expect } from 'vitest';
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend } from '../../src/index.js';
import { nativeHost, usableLevels } from '../native-host.js';

export const variants: Readonly<Record<string, CreateWasmBackendOptions>> = {
  'relaxed, 1 thread': { relaxedSimd: true, numThreads: 1 },
  'relaxed, maddubs, 2 threads': { relaxedSimd: true, numThreads: 2, minSharedWork: 0, int8Dot: 'maddubs' },
  'relaxed, 3 threads': { relaxedSimd: true, numThreads: 3, minSharedWork: 0 },
  'relaxed, generic, 1 thread': { relaxedSimd: true, numThreads: 1, int8Dot: 'generic' },
  'simd, 1 thread': { relaxedSimd: false, numThreads: 1 },
  'simd, 3 threads': { relaxedSimd: false, numThreads: 3, minSharedWork: 0 },
};

const isFull = testCoverage === 'full';

/** Native kernels at every level of this machine; none where the addon has not been built. */
export const nativeVariants: Readonly<Record<string, CreateWasmBackendOptions>> = Object.fromEntries(
  (await usableLevels()).flatMap((native) =>
    (isFull ? [1, 2, 4] : native === 'avx2' ? [2] : [1, 4]).map((numThreads) => [
      `${native}, ${numThreads} threads`,
      { host: nativeHost, native, numThreads, minSharedWork: 0 },
    ]),
  ),
);

/**
 * The shapes that a variant runs with a dtype: with three dtypes or more, every shape is combined with each dtype and each
 * variant, since kernels differ by pairs of these.
 */
export function shapesFor<Shape>(shapes: readonly Shape[], variant: string, dtypeIndex: number): readonly Shape[] {
  const index = Object.keys({ ...variants, ...nativeVariants }).indexOf(variant);
  return sampled(shapes, 3, (dtypeIndex + index) % 3);
}

/** The part of a backend that tests use. */
export interface TestBackend extends Pick<Backend, 'allocate' | 'write' | 'read' | 'prepare' | 'dispose'> {
  readonly numNativeRecords: number;
}

/** They last as long as the process, which they do not keep alive: files share this module, and starting workers takes long. */
const backends = new Map<CreateWasmBackendOptions, WasmBackend>();

/**
 * A backend with int8 activations for one test: `dispose` frees the buffers and executables of the test, and keeps the
 * workers and their memory for the next test with the same options object.
 */
export async function borrowBackend(options: CreateWasmBackendOptions): Promise<TestBackend> {
  const backend =
    backends.get(options) ?? (await createWasmBackend({ maxMemoryBytes: 2 ** 26, activations: 'int8', ...options }));
  backends.set(options, backend);
  const buffers: BufferHandle[] = [];
  const executables: Executable[] = [];
  return {
    get numNativeRecords() {
      return backend.numNativeRecords;
    },
    allocate(request) {
      const buffer = backend.allocate(request);
      buffers.push(buffer);
      return buffer;
    },
    write: (buffer, byteOffset, bytes) => backend.write(buffer, byteOffset, bytes),
    read: (buffer, byteOffset, target) => backend.read(buffer, byteOffset, target),
    async prepare(program, prepareOptions) {
      const executable = await backend.prepare(program, prepareOptions);
      executables.push(executable);
      return executable;
    },
    async dispose() {
      for (const executable of executables) await executable.dispose();
      for (const buffer of buffers) backend.free(buffer);
    },
  };
}

export const bytesOf = (values: Float32Array | Int32Array): Uint8Array => new Uint8Array(values.buffer);

/** Compares results without NaN, of which `toEqual` takes longer than most kernels. */
export function expectSameBits(y: Float32Array, other: Float32Array): void {
  if (Buffer.compare(bytesOf(y), bytesOf(other)) !== 0) expect(y).toEqual(other);
}

/** Results in float64, and the bounds of their errors. */
export interface Bounds {
  readonly values: Float64Array;
  readonly bounds: Float64Array;
}

const expectations = new Map<string, Bounds>();

/** Compares with bounds that are computed once: all variants draw the same inputs from the same seeds. */
export function expectWithin(y: Float32Array, key: string, compute: () => Bounds): void {
  const expected = expectations.get(key) ?? compute();
  expectations.set(key, expected);
  expect(compareClose(y, expected.values, expected.bounds)).toBeUndefined();
}

/** The steps of 8-bit activations, one for each 32 values: the largest magnitude by 127. */
export function stepsOf(x: Float32Array): Float64Array {
  const steps = new Float64Array(x.length / 32);
  for (let i = 0; i < x.length; i++) steps[i >> 5] = Math.max(steps[i >> 5] as number, Math.abs(x[i] as number) / 127);
  return steps;
}

/** Encoded weights, and their dequantized values. */
interface EncodedWeight {
  readonly weight: Uint8Array;
  readonly values: Float32Array;
}

const encodedWeights = new Map<string, EncodedWeight>();

/** Copies of encoded weights, which are encoded once per key since encoding is slow. */
export function encodedOnce(key: string, dtype: DType, random: () => Float32Array): EncodedWeight {
  const encoded = encodedWeights.get(key) ?? encodedWeight(dtype, random());
  encodedWeights.set(key, encoded);
  return { weight: encoded.weight.slice(), values: encoded.values.slice() };
}

function encodedWeight(dtype: DType, random: Float32Array): EncodedWeight {
  const weight = new Uint8Array(sizeOf(dtype, random.length));
  encode(dtype, random, weight);
  const values = new Float32Array(random.length);
  decode(dtype, weight, values);
  return { weight, values };
}

/** All rows in random order. */
export function shuffledRows(rng: Rng, numRows: number): Int32Array {
  const order = Array.from({ length: numRows }, (_, row) => row);
  return Int32Array.from({ length: numRows }, () => order.splice(rng.nextInt(order.length), 1)[0] as number);
}
