import { describe, expect, test } from 'vitest';
import { goldens } from '../test/goldens.js';
import { canEncode, decode, encode } from './codec.js';
import { dtypeInfo, type DType } from './dtype.js';

/** Index of the first value with different bits (so -0 differs from 0), or -1. */
function firstDifference(actual: Float32Array, expected: Float32Array): number {
  const a = new Uint32Array(actual.buffer, actual.byteOffset, actual.length);
  const b = new Uint32Array(expected.buffer, expected.byteOffset, expected.length);
  return a.length === b.length ? a.findIndex((bits, index) => bits !== b[index]) : 0;
}

test('all 24 formats of llama.cpp have a golden', () => {
  expect(goldens.length).toBe(24);
});

describe.each(goldens)('$dtype', (golden) => {
  const { dtype } = golden;

  test('has the type number of the golden', () => {
    expect(dtypeInfo(dtype).ggmlType).toBe(golden.typeId);
  });

  test('decodes blocks of llama.cpp bit for bit', () => {
    const out = new Float32Array(golden.values.length);
    decode(dtype, golden.bytes, out);
    expect(firstDifference(out, golden.values)).toBe(-1);
  });

  test('decodes random blocks bit for bit, at an odd byte offset and between guard bytes', () => {
    const shifted = new Uint8Array(golden.randomBytes.length + 3);
    shifted.set(golden.randomBytes, 3);
    const numValues = golden.randomValues.length;
    const out = new Float32Array(numValues + 10).fill(12345);
    decode(dtype, shifted, out, { byteOffset: 3, outOffset: 5, numValues });
    expect(firstDifference(out.subarray(5, 5 + numValues), golden.randomValues)).toBe(-1);
    expect([...out.subarray(0, 5), ...out.subarray(5 + numValues)]).toEqual(Array.from({ length: 10 }, () => 12345));
  });
});

/** These encoders follow llama.cpp step by step, so their bytes must be equal. */
const sameBytes: readonly DType[] = ['f16', 'bf16', 'q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1'];
const searched: readonly DType[] = ['q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K', 'iq4_nl', 'iq4_xs', 'mxfp4'];

function goldenOf(dtype: DType): (typeof goldens)[number] {
  const found = goldens.find((golden) => golden.dtype === dtype);
  if (found === undefined) throw new Error(`no golden of ${dtype}`);
  return found;
}

function rootMeanSquare(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] - b[i]) ** 2;
  return Math.sqrt(sum / a.length);
}

test('every format with an encoder is compared with llama.cpp', () => {
  const encodable = goldens.filter((golden) => canEncode(golden.dtype)).map((golden) => golden.dtype);
  expect(encodable.sort()).toEqual([...sameBytes, ...searched].sort());
});

test.each(sameBytes)('%s: encodes to the bytes of llama.cpp', (dtype) => {
  const golden = goldenOf(dtype);
  const out = new Uint8Array(golden.bytes.length);
  encode(dtype, golden.input, out);
  expect(out.findIndex((byte, index) => byte !== golden.bytes[index])).toBe(-1);
});

// Both minimize a squared error over the same codes, ours unweighted, so ours cannot be the larger one but for where
// the two searches stop; 2 % is what separates two good searches, and far less than a wrong scale costs.
test.each(searched)('%s: the error is at most 1.02 times that of llama.cpp', (dtype) => {
  const golden = goldenOf(dtype);
  const out = new Uint8Array(golden.bytes.length);
  encode(dtype, golden.input, out);
  const values = new Float32Array(golden.input.length);
  decode(dtype, out, values);
  const theirs = rootMeanSquare(golden.input, golden.values);
  expect(rootMeanSquare(golden.input, values)).toBeLessThanOrEqual(1.02 * theirs);
});
