import { expect, test } from 'vitest';
import { canEncode, decode, encode, usesImportance } from './codec.js';
import { dtypes, sizeOf, type DType } from './dtype.js';
import { ArgumentError, ShapeError } from './errors.js';
import { createRng } from './rng.js';

const weighted = dtypes.filter(usesImportance);
const length = 4096;
const rng = createRng(22);
const values = Float32Array.from({ length }, () => rng.nextGaussian());
/** As of activations: most columns count little, some a hundred times as much. */
const importance = Float32Array.from({ length }, () => Math.exp(2 * rng.nextGaussian()));

function bytesOf(dtype: DType, weights?: Float32Array): Uint8Array {
  const bytes = new Uint8Array(sizeOf(dtype, length));
  encode(dtype, values, bytes, weights === undefined ? {} : { importance: weights });
  return bytes;
}

function errorOf(dtype: DType, bytes: Uint8Array): number {
  const out = new Float32Array(length);
  decode(dtype, bytes, out);
  return out.reduce((sum, value, i) => sum + importance[i] * (value - values[i]) ** 2, 0);
}

test('importances change the bytes of the formats that use them, and of no other', () => {
  const isChanged = (dtype: DType): boolean => {
    const plain = bytesOf(dtype);
    return bytesOf(dtype, importance).some((byte, i) => byte !== plain[i]);
  };
  expect(dtypes.filter((dtype) => canEncode(dtype) && isChanged(dtype))).toEqual(weighted);
});

// mxfp4 chooses between two scales only, the others among many
test.each(weighted)('%s: importances lower the weighted error', (dtype) => {
  const [plain, own] = [errorOf(dtype, bytesOf(dtype)), errorOf(dtype, bytesOf(dtype, importance))];
  expect(own).toBeLessThan((dtype === 'mxfp4' ? 0.999 : 0.95) * plain);
});

test.each(weighted)('%s: equal importances change nothing', (dtype) => {
  expect(bytesOf(dtype, new Float32Array(length).fill(4))).toEqual(bytesOf(dtype));
});

test('importances are checked', () => {
  const out = new Uint8Array(sizeOf('q4_K', 256));
  const encodeWith = (weights: Float32Array) => () =>
    encode('q4_K', values.subarray(0, 256), out, { importance: weights });
  for (const wrong of [0, -1, NaN, Infinity]) {
    const weights = new Float32Array(256).fill(1);
    weights[7] = wrong;
    expect(encodeWith(weights)).toThrow(ArgumentError);
    expect(encodeWith(weights)).toThrow(`importance: expected finite positive numbers, got ${wrong} at index 7`);
  }
  expect(encodeWith(new Float32Array(255))).toThrow(ShapeError);
});
