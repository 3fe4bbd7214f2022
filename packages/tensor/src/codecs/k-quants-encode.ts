/**
 * Quantization to q2_K, q3_K, q4_K, q5_K and q6_K. Per sub-block, `scale-search.ts` finds the real-valued scale (and min); these
 * are then stored as small integers times one binary16 scale per super-block, and the integers next to the rounded ones
 * are tried as well, since the codes can compensate for a rounded scale. Minimizes the squared error of every
 * super-block, weighted by the importance of the values; llama.cpp gives large values more weight.
 */
import { floatToHalf, halfToFloat } from '../half.js';
import { saturateToHalfRange, writeHalf } from './q32-encode.js';
import { errorOf, fitAffine, fitSymmetric, roundToCode, type AffineFit } from './scale-search.js';
import type { Encoder, Importance } from './signatures.js';

const fit: AffineFit = { scale: 0, min: 0 };
const realScales = new Float64Array(16);
const realMins = new Float64Array(16);
const scales = new Int32Array(16);
const mins = new Int32Array(16);
const codes = new Uint8Array(256);

/** Sub-blocks with a scale and a min, both integers up to `maxScale`. */
interface AffineLayout {
  readonly numSubs: number;
  readonly length: number;
  readonly maxCode: number;
  readonly maxScale: number;
}

export function nearestHalf(value: number): number {
  return halfToFloat(floatToHalf(saturateToHalfRange(value)));
}

function clamp(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, value));
}

/** Fills `scales`, `mins` and `codes` (0 to `maxCode`) of the super-block; writes d and dmin, 4 bytes, to `out`. */
function encodeAffine(
  values: Float32Array,
  importance: Importance,
  first: number,
  layout: AffineLayout,
  out: Uint8Array,
  at: number,
): void {
  const { numSubs, length, maxCode, maxScale } = layout;
  let largestScale = 0;
  let largestMin = 0;
  for (let sub = 0; sub < numSubs; sub++) {
    fitAffine(values, importance, first + sub * length, length, maxCode, fit);
    realScales[sub] = fit.scale;
    realMins[sub] = fit.min;
    largestScale = Math.max(largestScale, fit.scale);
    largestMin = Math.max(largestMin, fit.min);
  }
  const d = nearestHalf(largestScale / maxScale);
  const dmin = nearestHalf(largestMin / maxScale);
  for (let sub = 0; sub < numSubs; sub++) {
    const from = first + sub * length;
    chooseIntegers(values, importance, from, layout, d, dmin, sub);
    const scale = d * scales[sub];
    const min = dmin * mins[sub];
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = 0; i < length; i++) {
      codes[sub * length + i] = roundToCode((values[from + i] + min) * inverse, 0, maxCode);
    }
  }
  writeHalf(out, at, d);
  writeHalf(out, at + 2, dmin);
}

function chooseIntegers(
  values: Float32Array,
  importance: Importance,
  from: number,
  { length, maxCode, maxScale }: AffineLayout,
  d: number,
  dmin: number,
  sub: number,
): void {
  const scale = d === 0 ? 0 : clamp(Math.round(realScales[sub] / d), 0, maxScale);
  const min = dmin === 0 ? 0 : clamp(Math.round(realMins[sub] / dmin), 0, maxScale);
  let best = Infinity;
  for (let s = Math.max(0, scale - 1); s <= Math.min(maxScale, scale + 1); s++) {
    for (let m = Math.max(0, min - 1); m <= Math.min(maxScale, min + 1); m++) {
      const error = errorOf(values, importance, from, length, 0, maxCode, d * s, dmin * m);
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

const q2Layout: AffineLayout = { numSubs: 16, length: 16, maxCode: 3, maxScale: 15 };
const q4Layout: AffineLayout = { numSubs: 8, length: 32, maxCode: 15, maxScale: 63 };
const q5Layout: AffineLayout = { ...q4Layout, maxCode: 31 };

/** Two bits per code: per half of 128 values, 32 bytes hold four planes. */
function packTwoBits(out: Uint8Array, at: number): void {
  for (let half = 0; half < 2; half++) {
    for (let i = 0; i < 32; i++) {
      let bits = 0;
      for (let plane = 0; plane < 4; plane++) bits |= (codes[half * 128 + plane * 32 + i] & 3) << (plane * 2);
      out[at + half * 32 + i] = bits;
    }
  }
}

export const encodeQ2_K: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 84) {
    encodeAffine(values, importance, from, q2Layout, out, at + 80);
    for (let sub = 0; sub < 16; sub++) out[at + sub] = scales[sub] | (mins[sub] << 4);
    packTwoBits(out, at + 16);
  }
};

/**
 * Fills `scales` and `codes` of 16 sub-blocks around zero; returns d.
 * @param zero codes reach from `-zero` to `zero - 1`, and are stored with `zero` added
 * @param maxScale scales reach from `-maxScale` to `maxScale - 1`: the longer end belongs to the largest scale
 */
function encodeSymmetric(
  values: Float32Array,
  importance: Importance,
  first: number,
  zero: number,
  maxScale: number,
): number {
  let largest = 0;
  for (let sub = 0; sub < 16; sub++) {
    realScales[sub] = fitSymmetric(values, importance, first + sub * 16, 16, zero);
    if (Math.abs(realScales[sub]) > Math.abs(largest)) largest = realScales[sub];
  }
  const d = nearestHalf(largest / -maxScale);
  for (let sub = 0; sub < 16; sub++) {
    const from = first + sub * 16;
    const error = (scale: number): number => errorOf(values, importance, from, 16, -zero, zero - 1, scale, 0);
    scales[sub] = nearestScale(d, realScales[sub], maxScale, error);
    const inverse = d * scales[sub] === 0 ? 0 : 1 / (d * scales[sub]);
    for (let i = 0; i < 16; i++) codes[sub * 16 + i] = roundToCode(values[from + i] * inverse, -zero, zero - 1) + zero;
  }
  return d;
}

/** The integer next to `realScale / d` whose scale has the least error. */
export function nearestScale(d: number, realScale: number, maxScale: number, error: (scale: number) => number): number {
  if (d === 0) return 0;
  const rounded = clamp(Math.round(realScale / d), -maxScale, maxScale - 1);
  let best = rounded;
  let bestError = Infinity;
  for (let scale = Math.max(-maxScale, rounded - 1); scale <= Math.min(maxScale - 1, rounded + 1); scale++) {
    const own = error(d * scale);
    if (own < bestError) {
      bestError = own;
      best = scale;
    }
  }
  return best;
}

export const encodeQ3_K: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 110) {
    writeHalf(out, at + 108, encodeSymmetric(values, importance, from, 4, 32));
    for (let i = 0; i < 32; i++) {
      let bits = 0;
      for (let plane = 0; plane < 8; plane++) bits |= (codes[plane * 32 + i] >> 2) << plane;
      out[at + i] = bits;
    }
    packTwoBits(out, at + 32);
    for (let i = 0; i < 8; i++) out[at + 96 + i] = ((scales[i] + 32) & 15) | (((scales[i + 8] + 32) & 15) << 4);
    for (let i = 0; i < 4; i++) {
      let bits = 0;
      for (let group = 0; group < 4; group++) bits |= ((scales[group * 4 + i] + 32) >> 4) << (group * 2);
      out[at + 104 + i] = bits;
    }
  }
};

export const encodeQ4_K: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 144) {
    encodeAffine(values, importance, from, q4Layout, out, at);
    packScales(out, at + 4);
    packNibblePairs(out, at + 16);
  }
};

export const encodeQ5_K: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 176) {
    encodeAffine(values, importance, from, q5Layout, out, at);
    packScales(out, at + 4);
    for (let i = 0; i < 32; i++) {
      let bits = 0;
      for (let sub = 0; sub < 8; sub++) bits |= (codes[sub * 32 + i] >> 4) << sub;
      out[at + 16 + i] = bits;
    }
    packNibblePairs(out, at + 48);
  }
};

export const encodeQ6_K: Encoder = (values, valueOffset, out, byteOffset, numValues, importance) => {
  const end = valueOffset + numValues;
  for (let from = valueOffset, at = byteOffset; from < end; from += 256, at += 210) {
    writeHalf(out, at + 208, encodeSymmetric(values, importance, from, 32, 128));
    for (let sub = 0; sub < 16; sub++) out[at + 192 + sub] = scales[sub];
    packSixBits(out, at);
  }
};

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
