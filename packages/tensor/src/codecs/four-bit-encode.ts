/**
 * Quantization to the four-bit formats with unevenly spaced levels: iq4_nl, iq4_xs and mxfp4. As for the other formats, a search
 * finds the scales with the least squared error; llama.cpp gives large values more weight.
 */
import { iq4Values } from './iq4-values.js';
import { nearestHalf, nearestScale } from './k-quants-encode.js';
import { doubledE2m1 } from './q32.js';
import { writeHalf } from './q32-encode.js';
import { fitScale } from './scale-search.js';
import type { Encoder, Importance } from './signatures.js';

/** The index of the level nearest to a value, the lower one of two; a power of 2 of ascending levels. */
function nearestLevel(levels: Int8Array, value: number): number {
  let low = 0;
  for (let step = levels.length / 2; step >= 1; step /= 2) {
    const next = low + step;
    if (value > (levels[next - 1] + levels[next]) / 2) low = next;
  }
  return low;
}

function codeOf(value: number): number {
  return nearestLevel(iq4Values, value);
}

function iq4Level(value: number): number {
  return iq4Values[codeOf(value)];
}

/** The squared error of 32 values, weighted by their importance. @param levelOf the level that a scaled value is rounded to */
function errorOfBlock(
  values: Float32Array,
  importance: Importance,
  first: number,
  scale: number,
  levelOf: (value: number) => number,
): number {
  const inverse = scale === 0 ? 0 : 1 / scale;
  let error = 0;
  for (let i = first; i < first + 32; i++) {
    const difference = values[i] - scale * levelOf(values[i] * inverse);
    error += difference * difference * (importance === undefined ? 1 : importance[i]);
  }
  return error;
}

/** Distance of candidates from the lowest and the highest level, as in llama.cpp for the lowest. */
const distance = 0.7;

function fitBlock(values: Float32Array, importance: Importance, first: number): number {
  const fit = (end: number): number => fitScale(values, importance, first, 32, end, distance, iq4Level);
  const error = (scale: number): number => errorOfBlock(values, importance, first, scale, iq4Level);
  const [negative, positive] = [fit(iq4Values[0]), fit(iq4Values[iq4Values.length - 1])];
  return error(positive) < error(negative) ? positive : negative;
}

function writeCodes(values: Float32Array, first: number, scale: number, out: Uint8Array, at: number): void {
  const inverse = scale === 0 ? 0 : 1 / scale;
  for (let i = 0; i < 16; i++) {
    out[at + i] = codeOf(values[first + i] * inverse) | (codeOf(values[first + 16 + i] * inverse) << 4);
  }
}

export const encodeIq4Nl: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 18) {
    const d = nearestHalf(fitBlock(values, importance, from));
    writeHalf(out, at, d);
    writeCodes(values, from, d, out, at + 2);
  }
};

const realScales = new Float64Array(8);

export const encodeIq4Xs: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 136) {
    let largest = 0;
    for (let sub = 0; sub < 8; sub++) {
      realScales[sub] = fitBlock(values, importance, from + sub * 32);
      if (Math.abs(realScales[sub]) > Math.abs(largest)) largest = realScales[sub];
    }
    const d = nearestHalf(largest / -32);
    writeHalf(out, at, d);
    out.fill(0, at + 2, at + 8);
    for (let sub = 0; sub < 8; sub++) {
      const first = from + sub * 32;
      const error = (own: number): number => errorOfBlock(values, importance, first, own, iq4Level);
      const scale = nearestScale(d, realScales[sub], 32, error);
      out[at + 2 + (sub >> 2)] |= ((scale + 32) >> 4) << ((sub & 3) * 2);
      out[at + 4 + (sub >> 1)] |= ((scale + 32) & 15) << ((sub & 1) * 4);
      writeCodes(values, first, d * scale, out, at + 8 + sub * 16);
    }
  }
};

const magnitudes = doubledE2m1.subarray(0, 8);

/** The code of the nearest number; 0 for negative ones near 0, too. */
function e2m1CodeOf(value: number): number {
  const code = nearestLevel(magnitudes, Math.abs(value));
  return value < 0 && code > 0 ? code + 8 : code;
}

/** The largest exponent whose largest number f32 can hold. */
const maxExponent = 252;

function e2m1Level(value: number): number {
  return doubledE2m1[e2m1CodeOf(value)];
}

/** The scale of doubled levels. */
function scaleOf(exponent: number): number {
  return 2 ** (exponent - 128);
}

/** The exponent that can represent the largest value, or the one below, which clips it but is finer for the others. */
function exponentOf(values: Float32Array, importance: Importance, first: number): number {
  let largest = 0;
  for (let i = first; i < first + 32; i++) largest = Math.max(largest, Math.abs(values[i]));
  if (largest === 0) return 0;
  const low = Math.min(maxExponent, Math.max(0, Math.floor(Math.log2(largest)) - 2 + 127));
  const high = Math.min(maxExponent, low + 1);
  const error = (exponent: number): number => errorOfBlock(values, importance, first, scaleOf(exponent), e2m1Level);
  return error(high) < error(low) ? high : low;
}

export const encodeMxfp4: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 17) {
    const exponent = exponentOf(values, importance, from);
    const d = scaleOf(exponent);
    out[at] = exponent;
    for (let i = 0; i < 16; i++) {
      out[at + 1 + i] = e2m1CodeOf(values[from + i] / d) | (e2m1CodeOf(values[from + 16 + i] / d) << 4);
    }
  }
};
