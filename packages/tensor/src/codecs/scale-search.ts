/**
 * Search for the scale of a sub-block that gives the least squared error. Codes and scale depend on each other, so:
 * try several scales near the one that spans the range, give each its codes and the least-squares scale for those
 * codes, keep the best, then alternate between codes and scale until it stops improving (k-means in one dimension,
 * S. P. Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28(2), 1982). All sums are weighted by the
 * importance of the values.
 */
import type { Importance } from './signatures.js';

/** Candidate scales stretch or shrink the code range by up to this many tenths of a code. */
const searchSteps = 10;
/** Maximum number of alternations after the search; each lowers the error or is the last. */
const maxAlternations = 8;

/** The integer in [minCode, maxCode] nearest to `value`. Truncating a positive value is cheaper than rounding. */
export function roundToCode(value: number, minCode: number, maxCode: number): number {
  const steps = value - minCode + 0.5;
  if (steps < 1) return minCode;
  const code = minCode + (steps | 0);
  return code > maxCode || steps >= 256 ? maxCode : code;
}

/** value ~ scale * code - min */
export interface AffineFit {
  scale: number;
  min: number;
}

/** Sums over a sub-block for one assignment of codes, and the resulting fit. */
const trial = { scale: 0, offset: 0, error: Infinity };

/**
 * Codes `round((x - offset) * inverse)` in [0, maxCode]; then the scale and the offset (at most 0) that minimize the
 * squared error for these codes, left in `trial`.
 */
function tryAffine(
  values: Float32Array,
  importance: Importance,
  first: number,
  length: number,
  maxCode: number,
  inverse: number,
  offset: number,
): void {
  let sumW = 0;
  let sumX = 0;
  let sumXx = 0;
  let sumQ = 0;
  let sumQq = 0;
  let sumXq = 0;
  for (let i = 0; i < length; i++) {
    const x = values[first + i];
    const q = roundToCode((x - offset) * inverse, 0, maxCode);
    const w = importance === undefined ? 1 : importance[first + i];
    sumW += w;
    sumX += w * x;
    sumXx += w * x * x;
    sumQ += w * q;
    sumQq += w * q * q;
    sumXq += w * x * q;
  }
  const determinant = sumW * sumQq - sumQ * sumQ;
  let scale = 0;
  let fitted = 0;
  if (determinant > 0) {
    scale = (sumW * sumXq - sumX * sumQ) / determinant;
    fitted = (sumQq * sumX - sumQ * sumXq) / determinant;
  }
  if (determinant <= 0 || fitted > 0) {
    fitted = 0;
    scale = sumQq > 0 ? sumXq / sumQq : 0;
  }
  trial.scale = scale;
  trial.offset = fitted;
  trial.error =
    sumXx -
    2 * (scale * sumXq + fitted * sumX) +
    scale * scale * sumQq +
    2 * scale * fitted * sumQ +
    sumW * fitted * fitted;
}

/** Finds a scale >= 0 and a min >= 0 for `values[first ... first + length]` and codes 0 to `maxCode`. */
export function fitAffine(
  values: Float32Array,
  importance: Importance,
  first: number,
  length: number,
  maxCode: number,
  fit: AffineFit,
): void {
  let low = 0;
  let high = -Infinity;
  for (let i = 0; i < length; i++) {
    low = Math.min(low, values[first + i]);
    high = Math.max(high, values[first + i]);
  }
  const range = high - low;
  fit.scale = 0;
  fit.min = -low;
  if (range === 0) return;
  let bestError = Infinity;
  for (let step = -searchSteps; step <= searchSteps; step++) {
    tryAffine(values, importance, first, length, maxCode, (maxCode + step / 10) / range, low);
    if (trial.scale > 0 && trial.error < bestError) {
      bestError = trial.error;
      fit.scale = trial.scale;
      fit.min = -trial.offset;
    }
  }
  for (let round = 0; round < maxAlternations && fit.scale > 0; round++) {
    tryAffine(values, importance, first, length, maxCode, 1 / fit.scale, -fit.min);
    if (!(trial.scale > 0 && trial.error < bestError)) break;
    bestError = trial.error;
    fit.scale = trial.scale;
    fit.min = -trial.offset;
  }
}

/** Weighted squared error of `scale * code - min` with the nearest codes in [minCode, maxCode]. */
export function errorOf(
  values: Float32Array,
  importance: Importance,
  first: number,
  length: number,
  minCode: number,
  maxCode: number,
  scale: number,
  min: number,
): number {
  const inverse = scale === 0 ? 0 : 1 / scale;
  let error = 0;
  for (let i = 0; i < length; i++) {
    const shifted = values[first + i] + min;
    const code = roundToCode(shifted * inverse, minCode, maxCode);
    const difference = shifted - scale * code;
    error += difference * difference * (importance === undefined ? 1 : importance[first + i]);
  }
  return error;
}

/**
 * Finds a scale, of either sign, for `values[first ... first + length]` and codes `-zero` to `zero - 1`: the extreme
 * value maps to the larger, negative side. Returns 0 when all values are 0.
 */
export function fitSymmetric(
  values: Float32Array,
  importance: Importance,
  first: number,
  length: number,
  zero: number,
): number {
  return fitScale(values, importance, first, length, -zero, 0.1, (value) => roundToCode(value, -zero, zero - 1));
}

/**
 * The same for any levels, of which the extreme value maps to about `end`.
 * @param distance between the candidates, in units of the levels
 * @param levelOf the level nearest to a value
 */
export function fitScale(
  values: Float32Array,
  importance: Importance,
  first: number,
  length: number,
  end: number,
  distance: number,
  levelOf: (value: number) => number,
): number {
  let extreme = 0;
  for (let i = 0; i < length; i++) {
    if (Math.abs(values[first + i]) > Math.abs(extreme)) extreme = values[first + i];
  }
  if (extreme === 0) return 0;
  let bestScale = 0;
  let bestGain = 0;
  let previousGain = -1;
  for (let step = -searchSteps; step <= searchSteps + maxAlternations; step++) {
    const alternating = step > searchSteps;
    if (alternating && bestGain === previousGain) break;
    if (alternating) previousGain = bestGain;
    const inverse = alternating ? 1 / bestScale : (step * distance + end) / extreme;
    let sumQq = 0;
    let sumXq = 0;
    for (let i = 0; i < length; i++) {
      const x = values[first + i];
      const q = levelOf(x * inverse);
      const w = importance === undefined ? 1 : importance[first + i];
      sumQq += w * q * q;
      sumXq += w * x * q;
    }
    // The least-squares scale sumXq / sumQq lowers the squared error by this much.
    const gain = sumQq > 0 ? (sumXq * sumXq) / sumQq : 0;
    if (gain > bestGain) {
      bestGain = gain;
      bestScale = sumXq / sumQq;
    }
  }
  return bestScale;
}
