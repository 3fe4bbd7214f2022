/** Compares results of a backend with the expected ones. A failure is one line of text; none means success. */
import type { Expected } from './kernel-case.js';

/**
 * NaN where NaN is expected, infinities of the same sign, then every value within its bound. An expected value beyond
 * the range of float32 counts as infinite.
 * @returns `undefined`, or a description of the worst index
 */
export function compareClose(
  actual: ArrayLike<number>,
  values: ArrayLike<number>,
  bounds: ArrayLike<number>,
): string | undefined {
  if (actual.length !== values.length) return `${actual.length} values instead of ${values.length}`;
  let worst = -1;
  let worstRatio = 1;
  let numWrong = 0;
  for (let i = 0; i < values.length; i++) {
    const expected = values[i];
    const found = actual[i];
    let ratio: number;
    if (Number.isNaN(expected) || Number.isNaN(found)) {
      ratio = Number.isNaN(expected) === Number.isNaN(found) ? 0 : Infinity;
    } else if (!Number.isFinite(Math.fround(expected)) || !Number.isFinite(found)) {
      ratio = Math.fround(expected) === found ? 0 : Infinity;
    } else {
      const distance = Math.abs(found - expected);
      ratio = distance === 0 ? 0 : distance / bounds[i]; // a bound of 0 gives Infinity, one of NaN a failure below
    }
    if (ratio <= 1) continue;
    numWrong++;
    if (worst < 0 || ratio > worstRatio || Number.isNaN(ratio)) {
      worst = i;
      worstRatio = ratio;
    }
  }
  if (worst < 0) return undefined;
  return (
    `${numWrong} of ${values.length} values wrong, worst at index ${worst}: ${actual[worst]} instead of ${values[worst]}, ` +
    `${worstRatio} times the bound ${bounds[worst]}`
  );
}

/** @returns `undefined`, or the first difference */
export function compareExact(actual: ArrayLike<number>, expected: ArrayLike<number>): string | undefined {
  if (actual.length !== expected.length) return `${actual.length} values instead of ${expected.length}`;
  for (let i = 0; i < expected.length; i++) {
    if (!Object.is(actual[i], expected[i])) return `index ${i}: ${actual[i]} instead of ${expected[i]}`;
  }
  return undefined;
}

/** An output of a program against its expectation. */
export function compareOutput(actual: Float32Array | Int32Array, expected: Expected): string | undefined {
  switch (expected.kind) {
    case 'close':
      return compareClose(actual, expected.values, expected.bounds);
    case 'integers':
      return compareExact(actual, expected.values);
    case 'bytes':
      return compareExact(new Uint8Array(actual.buffer, actual.byteOffset, actual.byteLength), expected.bytes);
  }
}
