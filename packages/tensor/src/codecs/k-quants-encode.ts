/**
 * Quantization to q4_K, q5_K and q6_K. Per sub-block, `scale-search.ts` finds the real-valued scale (and min); these
 * are then stored as small integers times one binary16 scale per super-block, and the integers next to the rounded ones
 * are tried as well, since the codes can compensate for a rounded scale. Minimizes the plain squared error of every
 * super-block; llama.cpp gives large values more weight.
 */
import { floatToHalf, halfToFloat } from '../half.js';
import { saturateToHalfRange, writeHalf } from './q32-encode.js';
import { errorOf, fitAffine, fitSymmetric, roundToCode, type AffineFit } from './scale-search.js';
import type { Encoder } from './signatures.js';

const fit: AffineFit = { scale: 0, min: 0 };
const realScales = new Float64Array(16);
const realMins = new Float64Array(16);
const scales = new Int32Array(16);
const mins = new Int32Array(16);
const codes = new Uint8Array(256);

/** Largest 6-bit integer. */
const maxScale = 63;

function nearestHalf(value: number): number {
  return halfToFloat(floatToHalf(saturateToHalfRange(value)));
}

function clamp(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, value));
}

/** Fills `scales`, `mins` and `codes` (0 to `maxCode`) of the super-block; writes d and dmin, 4 bytes, to `out`. */
function encodeAffine(values: Float32Array, first: number, maxCode: number, out: Uint8Array, at: number): void {
  let largestScale = 0;
  let largestMin = 0;
  for (let sub = 0; sub < 8; sub++) {
    fitAffine(values, first + sub * 32, 32, maxCode, fit);
    realScales[sub] = fit.scale;
    realMins[sub] = fit.min;
    largestScale = Math.max(largestScale, fit.scale);
    largestMin = Math.max(largestMin, fit.min);
  }
  const d = nearestHalf(largestScale / maxScale);
  const dmin = nearestHalf(largestMin / maxScale);
  for (let sub = 0; sub < 8; sub++) {
    const from = first + sub * 32;
    chooseIntegers(values, from, maxCode, d, dmin, sub);
    const scale = d * scales[sub];
    const min = dmin * mins[sub];
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = 0; i < 32; i++) {
      codes[sub * 32 + i] = roundToCode((values[from + i] + min) * inverse, 0, maxCode);
    }
  }
  writeHalf(out, at, d);
  writeHalf(out, at + 2, dmin);
}

function chooseIntegers(
  values: Float32Array,
  from: number,
  maxCode: number,
  d: number,
  dmin: number,
  sub: number,
): void {
  const scale = d === 0 ? 0 : clamp(Math.round(realScales[sub] / d), 0, maxScale);
  const min = dmin === 0 ? 0 : clamp(Math.round(realMins[sub] / dmin), 0, maxScale);
  let best = Infinity;
  for (let s = Math.max(0, scale - 1); s <= Math.min(maxScale, scale + 1); s++) {
    for (let m = Math.max(0, min - 1); m <= Math.min(maxScale, min + 1); m++) {
      const error = errorOf(values, from, 32, 0, maxCode, d * s, dmin * m);
      if (error < best) {
        best = error;
        scales[sub] = s;
        mins[sub] = m;
      }
    }
  }
}

/** The inverse of `scaleOf` and `minOf` in `k-quants.ts`. */
function packScales(out: Uint8Array, at: number): void {
  for (let sub = 0; sub < 4; sub++) {
    out[at + sub] = scales[sub] | ((scales[sub + 4] >> 4) << 6);
    out[at + 4 + sub] = mins[sub] | ((mins[sub + 4] >> 4) << 6);
    out[at + 8 + sub] = (scales[sub + 4] & 15) | ((mins[sub + 4] & 15) << 4);
  }
}

function packNibblePairs(out: Uint8Array, at: number): void {
  for (let pair = 0; pair < 4; pair++) {
    for (let i = 0; i < 32; i++) {
      out[at + pair * 32 + i] = (codes[pair * 64 + i] & 15) | ((codes[pair * 64 + 32 + i] & 15) << 4);
    }
  }
}

export const encodeQ4_K: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 144) {
    encodeAffine(values, from, 15, out, at);
    packScales(out, at + 4);
    packNibblePairs(out, at + 16);
  }
};

export const encodeQ5_K: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 176) {
    encodeAffine(values, from, 31, out, at);
    packScales(out, at + 4);
    for (let i = 0; i < 32; i++) {
      let bits = 0;
      for (let sub = 0; sub < 8; sub++) bits |= (codes[sub * 32 + i] >> 4) << sub;
      out[at + 16 + i] = bits;
    }
    packNibblePairs(out, at + 48);
  }
};

export const encodeQ6_K: Encoder = (values, valueOffset, out, byteOffset, numValues) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 210) {
    let largest = 0;
    for (let sub = 0; sub < 16; sub++) {
      realScales[sub] = fitSymmetric(values, from + sub * 16, 16, 32);
      if (Math.abs(realScales[sub]) > Math.abs(largest)) largest = realScales[sub];
    }
    // -128 is the longer end of the int8 range, so the largest scale goes there.
    const d = nearestHalf(largest / -128);
    writeHalf(out, at + 208, d);
    for (let sub = 0; sub < 16; sub++) {
      const scale = nearestInt8Scale(values, from + sub * 16, d, realScales[sub]);
      out[at + 192 + sub] = scale;
      const inverse = d * scale === 0 ? 0 : 1 / (d * scale);
      for (let i = 0; i < 16; i++) {
        codes[sub * 16 + i] = roundToCode(values[from + sub * 16 + i] * inverse, -32, 31) + 32;
      }
    }
    packSixBits(out, at);
  }
};

function nearestInt8Scale(values: Float32Array, from: number, d: number, realScale: number): number {
  if (d === 0) return 0;
  const rounded = clamp(Math.round(realScale / d), -128, 127);
  let best = rounded;
  let bestError = Infinity;
  for (let scale = Math.max(-128, rounded - 1); scale <= Math.min(127, rounded + 1); scale++) {
    const error = errorOf(values, from, 16, -32, 31, d * scale, 0);
    if (error < bestError) {
      bestError = error;
      best = scale;
    }
  }
  return best;
}

/** Per half of 128 values: 64 bytes of low nibbles (quarters 0 and 1 low, 2 and 3 high), 32 bytes of high pairs. */
function packSixBits(out: Uint8Array, at: number): void {
  for (let half = 0; half < 2; half++) {
    const first = half * 128;
    for (let i = 0; i < 64; i++) {
      out[at + half * 64 + i] = (codes[first + i] & 15) | ((codes[first + 64 + i] & 15) << 4);
    }
    for (let i = 0; i < 32; i++) {
      let bits = 0;
      for (let quarter = 0; quarter < 4; quarter++) bits |= (codes[first + quarter * 32 + i] >> 4) << (quarter * 2);
      out[at + 128 + half * 32 + i] = bits;
    }
  }
}
