import {
  ArgumentError,
  CapacityError,
  createRng,
  decode,
  encode,
  ReleasedError,
  ShapeError,
  sizeOf,
  type DType,
} from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { testBackends } from '../../test/backends.js';
import { gaussians } from '../../test/random-kv.js';
import { createContiguousCache, createPagedCache, hadamardSize, KvPool, KvStorage, Rotation } from '../index.js';

const numKvHeads = 2;
const headDim = 32;
const valueDim = 64;
const sizes = { numKvHeads, headDim, valueDim };
const f32Unit = 2 ** -24;

function roundTrip(dtype: DType, values: Float32Array): Float32Array {
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  const out = new Float32Array(values.length);
  decode(dtype, bytes, out);
  return out;
}

describe.each(testBackends)('storage on $name', ({ backend }) => {
  const dtypes = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1'] as const;
  it.each(dtypes)('stores the bytes of the %s codec', async (dtype) => {
    const cache = await createContiguousCache({ ...sizes, backend, dtype }, 70);
    const rng = createRng(4);
    const k = gaussians(rng, 70 * numKvHeads * headDim);
    const v = gaussians(rng, 70 * numKvHeads * valueDim);
    await cache.append(k, v);
    const [expectedKeys, expectedValues] = [roundTrip(dtype, k), roundTrip(dtype, v)];
    for (const t of [0, 1, 63, 64, 69]) {
      for (let head = 0; head < numKvHeads; head++) {
        const row = t * numKvHeads + head;
        expect(await cache.readKey(t, head)).toEqual(expectedKeys.slice(row * headDim, (row + 1) * headDim));
        expect(await cache.readValue(t, head)).toEqual(expectedValues.slice(row * valueDim, (row + 1) * valueDim));
      }
    }
    await cache.pool.close();
  });

  it('rejects non-finite values, invalid sizes and dtypes, and a full cache, without side effects', async () => {
    const cache = await createContiguousCache({ ...sizes, backend, dtype: { keys: 'q8_0', values: 'f32' } }, 3);
    const k = new Float32Array(numKvHeads * headDim);
    const v = new Float32Array(numKvHeads * valueDim);
    const spoiled = k.map(() => NaN);
    await expect(cache.append(spoiled, v)).rejects.toThrow(ArgumentError);
    await expect(cache.append(k, v.subarray(1))).rejects.toThrow(ShapeError);
    expect(cache.numTokens).toBe(0);
    for (let i = 0; i < 3; i++) await cache.append(k, v);
    await expect(cache.append(k, v)).rejects.toThrow(CapacityError);
    expect(cache.numTokens).toBe(3);
    await cache.pool.close();
    const create = (options: object, capacity = 3): Promise<unknown> =>
      createContiguousCache({ ...sizes, backend, ...options }, capacity);
    await expect(create({ dtype: { keys: 'iq2_xxs', values: 'f32' }, headDim: 256 })).rejects.toThrow(ArgumentError);
    await expect(create({ dtype: { keys: 'f32', values: 'q8_0' }, valueDim: 40 })).rejects.toThrow(ShapeError);
    await expect(create({}, 0)).rejects.toThrow(ArgumentError);
    await expect(create({ headDim: 33, rotateKeys: true })).rejects.toThrow(ArgumentError);
  });
});

describe.each(testBackends)('memory on $name', ({ backend }) => {
  it.each([1, 4096])('copies shared blocks before a sequence writes, aligned to %d bytes', async (copyAlignment) => {
    const aligned = { ...backend, limits: { ...backend.limits, copyAlignment } };
    await using pool = await KvPool.create({ ...sizes, backend: aligned }, { numBlocks: 4, blockSize: 4 });
    const cache = createPagedCache(pool);
    const rng = createRng(4);
    const [k, v] = [gaussians(rng, 6 * numKvHeads * headDim), gaussians(rng, 6 * numKvHeads * valueDim)];
    await cache.append(k, v);
    const fork = cache.fork();
    await fork.append(k.subarray(0, numKvHeads * headDim), v.subarray(0, numKvHeads * valueDim));
    expect(fork.sequence.blocks[0]).toBe(cache.sequence.blocks[0]);
    expect(fork.sequence.blocks[1]).not.toBe(cache.sequence.blocks[1]);
    for (const head of [0, 1]) {
      expect(await fork.readKey(5, head)).toEqual(await cache.readKey(5, head));
      expect(await fork.readValue(6, head)).toEqual(await cache.readValue(0, head));
    }
    const q = gaussians(rng, numKvHeads * headDim);
    expect(await fork.attend(q, { position: 5 })).toEqual(await cache.attend(q));
    await fork.free();
    expect(pool.manager.usage().numUsedBlocks).toBe(2);
  });

  it('frees its memory, but not a backend passed by the caller', async () => {
    const storage = await KvStorage.create({ ...sizes, backend }, { numBlocks: 2, blockSize: 4 });
    expect(storage.sizeBytes).toBe(2 * (storage.shape.pageBytes + 4 * 4));
    await storage.close();
    await expect(storage.readKey(0, 0)).rejects.toThrow(ReleasedError);
    const other = await KvStorage.create({ ...sizes, backend }, { numBlocks: 2, blockSize: 4 });
    await other.close();
  });
});

describe.each(testBackends)('rotation on $name', ({ name, backend }) => {
  it('is its own inverse and keeps dot products', async () => {
    const rng = createRng(1);
    for (const dim of [2, 32, 96, 128]) {
      const [a, b] = [gaussians(rng, 70 * dim), gaussians(rng, 70 * dim)];
      const dot = (x: Float32Array, y: Float32Array): number => x.reduce((sum, value, i) => sum + value * y[i], 0);
      const [ra, rb] = [a.slice(), b.slice()];
      await using rotation = await Rotation.create({ dim, backend });
      for (const rows of [ra, rb]) await rotation.apply(rows);
      // sums of log2(P) additions and a product with the factor: at most log2(128) + 3 = 10 roundings per component
      const numRoundings = name === 'reference' ? 1 : Math.log2(hadamardSize(dim)) + 3;
      const bound = 2 * numRoundings * f32Unit * 2 * Math.sqrt(dot(a, a) * dot(b, b));
      expect(Math.abs(dot(ra, rb) - dot(a, b))).toBeLessThanOrEqual(bound);
      await rotation.apply(ra);
      const error = 2 * numRoundings * f32Unit * Math.sqrt(dot(a, a));
      ra.forEach((value, i) => expect(Math.abs(value - a[i])).toBeLessThanOrEqual(error));
    }
    await expect(Rotation.create({ dim: 3, backend })).rejects.toThrow(ShapeError);
    await using rotation = await Rotation.create({ dim: 4 });
    await expect(rotation.apply(new Float32Array(6))).rejects.toThrow(ShapeError);
  });

  it('reduces the error of 4-bit keys with outlier channels', async () => {
    const errorWith = async (rotateKeys: boolean): Promise<number> => {
      const options = { ...sizes, backend };
      const exact = await createContiguousCache(options, 64);
      const rounded = await createContiguousCache(
        { ...options, dtype: { keys: 'q4_0', values: 'f32' }, rotateKeys },
        64,
      );
      const rng = createRng(12);
      const k = gaussians(rng, 64 * numKvHeads * headDim).map((value, i) => (i % headDim === 5 ? value * 20 : value));
      const v = gaussians(rng, 64 * numKvHeads * valueDim);
      for (const cache of [exact, rounded]) await cache.append(k, v);
      const q = gaussians(rng, 6 * headDim).map((value, i) => (i % headDim === 5 ? value * 0.05 : value));
      const [a, b] = [await exact.attend(q), await rounded.attend(q)];
      for (const cache of [exact, rounded]) await cache.pool.close();
      return a.reduce((sum, value, i) => sum + (value - b[i]) ** 2, 0);
    };
    expect(await errorWith(true)).toBeLessThan(await errorWith(false));
  });
});
