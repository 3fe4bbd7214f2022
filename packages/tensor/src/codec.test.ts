import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canEncode, decode, decoder, encode, encoder } from './codec.js';
import { dtypeInfo, dtypes, sizeOf, type DType } from './dtype.js';
import { ArgumentError, DTypeError, ShapeError } from './errors.js';
import { halfToFloat } from './half.js';
import { createRng } from './rng.js';

const encodable = dtypes.filter(canEncode);

function roundTrip(dtype: DType, values: Float32Array): { bytes: Uint8Array; out: Float32Array } {
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  const out = new Float32Array(values.length);
  decode(dtype, bytes, out);
  return { bytes, out };
}

function gaussian(seed: number, length: number, scale: number): Float32Array {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian() * scale);
}

describe('plain dtypes', () => {
  test.each(['f32', 'f64'] as const)('%s keeps every float32', (dtype) => {
    fc.assert(
      fc.property(fc.float32Array({ maxLength: 70 }), (values) => {
        expect(roundTrip(dtype, values).out).toEqual(values);
      }),
    );
  });

  test.each([
    ['i8', -128, 127],
    ['i16', -32768, 32767],
    ['i32', -(2 ** 24), 2 ** 24],
    ['i64', -(2 ** 24), 2 ** 24],
  ] as const)('%s keeps its integers', (dtype, min, max) => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min, max }), { maxLength: 40 }), (integers) => {
        expect([...roundTrip(dtype, Float32Array.from(integers)).out]).toEqual(integers);
      }),
    );
  });

  test.each([
    ['i8', [2.5, 3.5, -2.5, 127.5, -1e9, Infinity, NaN], [2, 4, -2, 127, -128, 127, 0]],
    ['i16', [0.5, 1.5, 4e9, -4e9], [0, 2, 32767, -32768]],
    ['i32', [-0.5, 1e20, -1e20], [-0, 2 ** 31, -(2 ** 31)]],
    ['i64', [-1, 1e30, -1e30, 2 ** 40], [-1, 2 ** 63, -(2 ** 63), 2 ** 40]],
  ] as const)('%s rounds to even and clamps', (dtype, values, expected) => {
    expect([...roundTrip(dtype, Float32Array.from(values)).out].map((x) => x + 0)).toEqual(expected.map((x) => x + 0));
  });

  test('bytes are little-endian', () => {
    const bytes = new Uint8Array(8);
    encode('i64', new Float32Array([-2]), bytes);
    expect([...bytes]).toEqual([254, 255, 255, 255, 255, 255, 255, 255]);
    encode('f64', new Float32Array([1]), bytes);
    expect([...bytes]).toEqual([0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    encode('f32', new Float32Array([1, -2]), bytes);
    expect([...bytes]).toEqual([0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
  });
});

describe('formats without a golden', () => {
  test('q8_1 and q8_K: scale times code, sums ignored', () => {
    const q81 = new Uint8Array(36).fill(99);
    q81.set([0x00, 0x38, 1, 2, 3, 0xfe]);
    const out = new Float32Array(32);
    decode('q8_1', q81, out);
    expect([...out.subarray(0, 3)]).toEqual([1.5, -1, 49.5]);

    const q8K = new Uint8Array(292).fill(99);
    q8K.set([0, 0, 0, 0xbf, 3, 0xfe]);
    const outK = new Float32Array(256);
    decode('q8_K', q8K, outK);
    expect([...outK.subarray(0, 3)]).toEqual([-1.5, 1, -49.5]);
  });
});

// Units: d is the stored scale. Rounding d to binary16 changes it by at most d * 2^-11, hence a code c by c * d * 2^-11;
// the float32 steps before it are 2^-24 each and covered by the factor 1.001.
const blocks = fc
  .tuple(fc.integer(), fc.constantFrom(1e-2, 1, 1e3), fc.constantFrom(0, 0.5, -3))
  .map(([seed, scale, mean]) => gaussian(seed, 64, scale).map((x) => x + mean * scale));

function extremes(values: Float32Array): { min: number; max: number; magnitude: number } {
  const min = Math.min(...values);
  const max = Math.max(...values);
  return { min, max, magnitude: Math.max(-min, max) };
}

// The extreme value gets code -zero exactly; on the other side codes end one step earlier, so the error is up to one d.
test.each([
  ['q4_0', 8],
  ['q5_0', 16],
] as const)('round trips of block formats stay within the bound of the format: %s', (dtype, zero) => {
  fc.assert(
    fc.property(blocks, (values) => {
      const { out } = roundTrip(dtype, values);
      for (let block = 0; block < values.length; block += 32) {
        const d = extremes(values.subarray(block, block + 32)).magnitude / zero;
        const bound = 1.001 * d * (1 + zero * 2 ** -11);
        for (let i = block; i < block + 32; i++) expect(Math.abs(out[i] - values[i])).toBeLessThanOrEqual(bound);
      }
    }),
  );
});

test('round trips of block formats stay within the bound of the format: q8_0', () => {
  fc.assert(
    fc.property(blocks, (values) => {
      const { out } = roundTrip('q8_0', values);
      for (let block = 0; block < values.length; block += 32) {
        const d = extremes(values.subarray(block, block + 32)).magnitude / 127;
        const bound = 1.001 * d * (0.5 + 127 * 2 ** -11);
        for (let i = block; i < block + 32; i++) expect(Math.abs(out[i] - values[i])).toBeLessThanOrEqual(bound);
      }
    }),
  );
});

test.each([
  ['q4_1', 15],
  ['q5_1', 31],
] as const)('round trips of block formats stay within the bound of the format: %s', (dtype, maxCode) => {
  fc.assert(
    fc.property(blocks, (values) => {
      const { out } = roundTrip(dtype, values);
      for (let block = 0; block < values.length; block += 32) {
        const { min, max } = extremes(values.subarray(block, block + 32));
        const d = (max - min) / maxCode;
        const bound = 1.001 * (d * (0.5 + maxCode * 2 ** -11) + Math.abs(min) * 2 ** -11);
        for (let i = block; i < block + 32; i++) expect(Math.abs(out[i] - values[i])).toBeLessThanOrEqual(bound);
      }
    }),
  );
});

const superBlocks = fc
  .tuple(fc.integer(), fc.constantFrom(1e-2, 1, 1e3), fc.constantFrom(0, 0.5, -3))
  .map(([seed, scale, mean]) => gaussian(seed, 512, scale).map((x) => x + mean * scale));

function rootMeanSquare(a: Float32Array, b: Float32Array, begin: number, end: number): number {
  let sum = 0;
  for (let i = begin; i < end; i++) sum += (a[i] - b[i]) ** 2;
  return Math.sqrt(sum / (end - begin));
}

// The search includes the scale that spans the range (error at most half a step), and storing scale and min as
// integers moves them by at most d / 2 and dmin / 2; the root mean square of a sum is at most the sum of the two.
test.each([
  ['q4_K', 15],
  ['q5_K', 31],
] as const)('round trips of block formats stay within the bound of the format: %s', (dtype, maxCode) => {
  fc.assert(
    fc.property(superBlocks, (values) => {
      const { bytes, out } = roundTrip(dtype, values);
      for (let sub = 0; sub < values.length; sub += 32) {
        const at = Math.floor(sub / 256) * dtypeInfo(dtype).blockBytes;
        const d = halfToFloat(bytes[at] | (bytes[at + 1] << 8));
        const dmin = halfToFloat(bytes[at + 2] | (bytes[at + 3] << 8));
        const { min, max } = extremes(values.subarray(sub, sub + 32));
        const step = (max - Math.min(0, min)) / maxCode;
        const bound = 1.001 * (step / 2 + maxCode * (d / 2) + dmin / 2);
        expect(rootMeanSquare(values, out, sub, sub + 32)).toBeLessThanOrEqual(bound);
      }
    }),
  );
});

// As above; codes end at 31 on one side and scales at 127, which costs up to one step instead of half of one.
test('round trips of block formats stay within the bound of the format: q6_K', () => {
  fc.assert(
    fc.property(superBlocks, (values) => {
      const { bytes, out } = roundTrip('q6_K', values);
      for (let sub = 0; sub < values.length; sub += 16) {
        const at = Math.floor(sub / 256) * 210;
        const d = Math.abs(halfToFloat(bytes[at + 208] | (bytes[at + 209] << 8)));
        const bound = 1.001 * (extremes(values.subarray(sub, sub + 16)).magnitude / 32 + 32 * d);
        expect(rootMeanSquare(values, out, sub, sub + 16)).toBeLessThanOrEqual(bound);
      }
    }),
  );
});

describe('special blocks', () => {
  const quantized = encodable.filter((dtype) => dtypeInfo(dtype).isQuantized);

  test.each(quantized)('%s: zeros decode to zeros', (dtype) => {
    const { out } = roundTrip(dtype, new Float32Array(512));
    expect(out.every((x) => x === 0)).toBe(true);
  });

  test.each(quantized)('%s: values of every size give finite values', (dtype) => {
    for (const scale of [1e-45, 1e-38, 1e-9, 1e9, 3e38]) {
      for (const sign of [1, -1]) {
        const values = Float32Array.from({ length: 256 }, (_, i) => sign * scale * (i % 7 === 0 ? 1 : 0.25));
        const { out } = roundTrip(dtype, values);
        expect(out.every(Number.isFinite)).toBe(true);
      }
    }
  });

  test.each(quantized)('%s: rejects NaN and infinity', (dtype) => {
    const values = new Float32Array(256);
    const out = new Uint8Array(sizeOf(dtype, 256));
    for (const bad of [NaN, Infinity, -Infinity]) {
      values[77] = bad;
      expect(() => encode(dtype, values, out)).toThrow(ArgumentError);
    }
    expect(() => encode(dtype, values, out)).toThrow('values: expected finite numbers, got -Infinity at index 77');
  });
});

test.each(encodable)('ranges: %s: encode and decode touch only their range, at any byte offset', (dtype) => {
  const numValues = dtypeInfo(dtype).blockSize * 2;
  const values = gaussian(5, numValues + 3, 1);
  const sizeBytes = sizeOf(dtype, numValues);
  const aligned = new Uint8Array(sizeBytes);
  encode(dtype, values.slice(2, 2 + numValues), aligned);
  const bytes = new Uint8Array(sizeBytes + 8).fill(171);
  encode(dtype, values, bytes, { valueOffset: 2, byteOffset: 3, numValues });
  expect(bytes.subarray(3, 3 + sizeBytes)).toEqual(aligned);
  expect([...bytes.subarray(0, 3), ...bytes.subarray(3 + sizeBytes)]).toEqual(Array.from({ length: 8 }, () => 171));
  const bare = new Uint8Array(sizeBytes + 1);
  encoder(dtype)(values, 2, bare, 1, numValues);
  expect(bare.subarray(1)).toEqual(aligned);
});

test.each(dtypes)('ranges: %s: decoding block by block equals decoding at once', (dtype) => {
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  const rng = createRng(9);
  const bytes = Uint8Array.from({ length: blockBytes * 5 }, () => rng.nextInt(256));
  const whole = new Float32Array(blockSize * 5);
  decode(dtype, bytes, whole);
  const parts = new Float32Array(blockSize * 5);
  const decodeBlocks = decoder(dtype);
  for (let block = 0; block < 5; block++) decodeBlocks(bytes, block * blockBytes, parts, block * blockSize, blockSize);
  expect(parts).toEqual(whole);
});

test('ranges: rejects ranges that do not fit', () => {
  const bytes = new Uint8Array(18 * 2);
  const out = new Float32Array(64);
  decode('q4_0', bytes, out);
  decode('q4_0', bytes, out, { numValues: 0, byteOffset: 36, outOffset: 64 });
  const bad = [
    { numValues: 33 },
    { numValues: 96 },
    { numValues: -32 },
    { numValues: NaN },
    { byteOffset: 1 },
    { byteOffset: -1 },
    { byteOffset: 0.5, numValues: 32 },
    { byteOffset: NaN, numValues: 32 },
    { outOffset: 1 },
    { outOffset: 33, numValues: 32 },
    { outOffset: -32 },
    { outOffset: 65 },
    { outOffset: NaN },
  ];
  for (const options of bad) expect(() => decode('q4_0', bytes, out, options)).toThrow(ShapeError);
  expect(() => decode('q4_0', bytes.subarray(1), out)).toThrow(
    'decode(q4_0): bytes to read, expected a range within [0, 35), got [0, 36)',
  );
  for (const { outOffset, ...options } of bad) {
    const valueOffset = outOffset === undefined ? {} : { valueOffset: outOffset };
    expect(() => encode('q4_0', out, bytes, { ...options, ...valueOffset })).toThrow(ShapeError);
  }
});

test('ranges: rejects encoding to a dtype without an encoder, by name', () => {
  for (const dtype of dtypes.filter((name) => !canEncode(name))) {
    const { blockSize, blockBytes } = dtypeInfo(dtype);
    expect(() => encode(dtype, new Float32Array(blockSize), new Uint8Array(blockBytes))).toThrow(DTypeError);
    expect(() => encoder(dtype)).toThrow(`got ${dtype}`);
  }
  expect(encodable.length).toBe(21);
});

test('ranges: rejects an unknown dtype', () => {
  const name = 'q9_9' as DType;
  expect(() => decoder(name)).toThrow(ArgumentError);
  expect(() => encoder(name)).toThrow(ArgumentError);
  expect(() => decode(name, new Uint8Array(0), new Float32Array(0))).toThrow(ArgumentError);
  expect(canEncode('toString' as DType)).toBe(false);
});
