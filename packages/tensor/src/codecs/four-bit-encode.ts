/**
 * Quantization to the four-bit formats with levels that are not evenly spaced: iq4_nl, iq4_xs and mxfp4. The scales have the
 * least squared error among those that a search as for the other formats finds; llama.cpp gives large values more weight.
 */
import { iq4Values } from './iq4-values.js';
import { nearestHalf, nearestScale } from './k-quants-encode.js';
import { doubledE2m1 } from './q32.js';
import { writeHalf } from './q32-encode.js';
import { fitScale } from './scale-search.js';
import type { Encoder } from './signatures.js';

const numCodes = 16;

/** The code of the level nearest to a value, of ascending levels. */
function codeOf(value: number): number {
  let low = 0;
  for (let step = numCodes / 2; step >= 1; step /= 2) {
    const next = low + step;
    if (value > (iq4Values[next - 1] + iq4Values[next]) / 2) low = next;
  }
  return low;
}

/** Candidates reach as far from the lowest and the highest level as in llama.cpp from the lowest. */
const distance = 0.7;

function fitBlock(values: Float32Array, first: number): number {
  const fit = (end: number): number => fitScale(values, first, 32, end, distance, (value) => iq4Values[codeOf(value)]);
  const [negative, positive] = [fit(iq4Values[0]), fit(iq4Values[numCodes - 1])];
  return errorOfBlock(values, first, positive) < errorOfBlock(values, first, negative) ? positive : negative;
}

function writeCodes(values: Float32Array, first: number, scale: number, out: Uint8Array, at: number): void {
  const inverse = scale === 0 ? 0 : 1 / scale;
  for (let i = 0; i < 16; i++) {
    out[at + i] = codeOf(values[first + i] * inverse) | (codeOf(values[first + 16 + i] * inverse) << 4);
  }
}

function errorOfBlock(values: Float32Array, first: number, scale: number): number {
  const inverse = scale === 0 ? 0 : 1 / scale;
  let error = 0;
  for (let i = first; i < first + 32; i++) error += (values[i] - scale * iq4Values[codeOf(values[i] * inverse)]) ** 2;
  return error;
}

export const encodeIq4Nl: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 18) {
    const d = nearestHalf(fitBlock(values, from));
    writeHalf(out, at, d);
    writeCodes(values, from, d, out, at + 2);
  }
};

const realScales = new Float64Array(8);

export const encodeIq4Xs: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 136) {
    let largest = 0;
    for (let sub = 0; sub < 8; sub++) {
      realScales[sub] = fitBlock(values, from + sub * 32);
      if (Math.abs(realScales[sub]) > Math.abs(largest)) largest = realScales[sub];
    }
    const d = nearestHalf(largest / -32);
    writeHalf(out, at, d);
    out.fill(0, at + 2, at + 8);
    for (let sub = 0; sub < 8; sub++) {
      const first = from + sub * 32;
      const scale = nearestScale(d, realScales[sub], 32, (own) => errorOfBlock(values, first, own));
      out[at + 2 + (sub >> 2)] |= ((scale + 32) >> 4) << ((sub & 3) * 2);
      out[at + 4 + (sub >> 1)] |= ((scale + 32) & 15) << ((sub & 1) * 4);
      writeCodes(values, first, d * scale, out, at + 8 + sub * 16);
    }
  }
};

/** The code of the nearest number; 0 for negative ones near 0, too. */
function e2m1CodeOf(value: number): number {
  let best = 0;
  for (let code = 1; code < numCodes; code++) {
    if (Math.abs(value - doubledE2m1[code]) < Math.abs(value - doubledE2m1[best])) best = code;
  }
  return best;
}

/** The largest exponent whose largest number f32 can hold. */
const maxExponent = 252;

function mxfp4Error(values: Float32Array, first: number, exponent: number): number {
  const d = 2 ** (exponent - 128);
  let error = 0;
  for (let i = first; i < first + 32; i++) error += (values[i] - d * doubledE2m1[e2m1CodeOf(values[i] / d)]) ** 2;
  return error;
}

/** The exponent that has room for the largest value, or the one below, which cuts it off but is finer for the others. */
function exponentOf(values: Float32Array, first: number): number {
  let largest = 0;
  for (let i = first; i < first + 32; i++) largest = Math.max(largest, Math.abs(values[i]));
  if (largest === 0) return 0;
  const low = Math.min(maxExponent, Math.max(0, Math.floor(Math.log2(largest)) - 2 + 127));
  const high = Math.min(maxExponent, low + 1);
  return mxfp4Error(values, first, high) < mxfp4Error(values, first, low) ? high : low;
}

export const encodeMxfp4: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 32, at += 17) {
    const exponent = exponentOf(values, from);
    const d = 2 ** (exponent - 128);
    out[at] = exponent;
    for (let i = 0; i < 16; i++) {
      out[at + 1 + i] = e2m1CodeOf(values[from + i] / d) | (e2m1CodeOf(values[from + 16 + i] / d) << 4);
    }
  }
};
