/**
 * Quantization to q4_0, q4_1, q5_0, q5_1 and q8_0: the scale follows from the extreme values of a block, the codes by
 * rounding. All steps are rounded to float32, in the order of the reference quantizer of llama.cpp, and produce its
 * bytes: https://github.com/ggml-org/llama.cpp/blob/4bfb31880dac521bede6e244260cfe44c31a27e3/gguf-py/gguf/quants.py We
 * differ where a scale exceeds binary16: it saturates at 65504 instead of becoming infinite.
 */
import { floatToHalf } from '../half.js';
import type { Encoder } from './signatures.js';

const { fround } = Math;

/** Largest finite binary16. */
const maxHalf = 65504;

/** Keeps a scale or offset within binary16. */
export function saturateToHalfRange(value: number): number {
  return Math.min(maxHalf, Math.max(-maxHalf, value));
}

export function writeHalf(out: Uint8Array, at: number, value: number): void {
  const bits = floatToHalf(value);
  out[at] = bits;
  out[at + 1] = bits >>> 8;
}

const codes = new Uint8Array(32);

/** The value of largest magnitude, with its sign; the first on ties. */
function extremeOf(values: Float32Array, first: number): number {
  let extreme = 0;
  for (let i = 0; i < 32; i++) {
    if (Math.abs(values[first + i]) > Math.abs(extreme)) extreme = values[first + i];
  }
  return extreme;
}

/** Fills `codes` with codes around `zero`, the extreme value getting code 0; returns d. */
function encodeAroundZero(values: Float32Array, first: number, zero: number): number {
  const d = saturateToHalfRange(fround(extremeOf(values, first) / -zero));
  const inverse = d === 0 ? 0 : fround(1 / d);
  for (let i = 0; i < 32; i++) {
    const code = Math.trunc(fround(fround(values[first + i] * inverse) + zero + 0.5));
    codes[i] = Math.min(2 * zero - 1, Math.max(0, code));
  }
  return d;
}

/** Fills `codes` with codes from the minimum (0) to the maximum (`maxCode`); writes d and the minimum to `out`. */
function encodeFromMinimum(values: Float32Array, first: number, maxCode: number, out: Uint8Array, at: number): void {
  let min = Infinity;
  let max = -Infinity;
  for (let i = 0; i < 32; i++) {
    min = Math.min(min, values[first + i]);
    max = Math.max(max, values[first + i]);
  }
  min = saturateToHalfRange(min);
  const d = saturateToHalfRange(fround(fround(max - min) / maxCode));
  const inverse = d === 0 ? 0 : fround(1 / d);
  for (let i = 0; i < 32; i++) {
    const code = Math.trunc(fround(fround(fround(values[first + i] - min) * inverse) + 0.5));
    codes[i] = Math.min(maxCode, Math.max(0, code));
  }
  writeHalf(out, at, d);
  writeHalf(out, at + 2, min);
}

function packNibbles(out: Uint8Array, at: number): void {
  for (let i = 0; i < 16; i++) out[at + i] = (codes[i] & 15) | ((codes[16 + i] & 15) << 4);
}

function packFifthBits(out: Uint8Array, at: number): void {
  for (let byte = 0; byte < 4; byte++) {
    let bits = 0;
    for (let i = 0; i < 8; i++) bits |= (codes[byte * 8 + i] >> 4) << i;
    out[at + byte] = bits;
  }
}

export const encodeQ4_0: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 18) {
    writeHalf(out, at, encodeAroundZero(values, from, 8));
    packNibbles(out, at + 2);
  }
};

export const encodeQ4_1: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 20) {
    encodeFromMinimum(values, from, 15, out, at);
    packNibbles(out, at + 4);
  }
};

export const encodeQ5_0: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 22) {
    writeHalf(out, at, encodeAroundZero(values, from, 16));
    packFifthBits(out, at + 2);
    packNibbles(out, at + 6);
  }
};

export const encodeQ5_1: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 24) {
    encodeFromMinimum(values, from, 31, out, at);
    packFifthBits(out, at + 4);
    packNibbles(out, at + 8);
  }
};

/** Codes round half away from zero. */
export const encodeQ8_0: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 34) {
    const d = saturateToHalfRange(fround(Math.abs(extremeOf(values, from)) / 127));
    const inverse = d === 0 ? 0 : fround(1 / d);
    writeHalf(out, at, d);
    for (let i = 0; i < 32; i++) {
      const scaled = fround(values[from + i] * inverse);
      const magnitude = Math.min(127, Math.floor(Math.abs(scaled) + 0.5));
      out[at + 2 + i] = scaled < 0 ? -magnitude : magnitude;
    }
  }
};
