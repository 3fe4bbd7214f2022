/** Steps of the online softmax over a chunk of keys, for four or eight queries side by side: logits become weights. */
import { minusInfinity } from '../simd/constants';
import { fma, weight4 } from '../simd/vector';
import { capLogits, maxDistance, minDistance } from './kv-cache-view';

/**
 * 1 / ln 2, the least exponent, 1.5 * 2^23, the coefficients of 2^r from degree 6 down to 1 (least squares of the relative
 * error over [-1/2, 1/2]: 2.2e-9, in f32 below 1e-7), 1.
 */
const table = memory.data<f32>([
  1.4426950408889634, -127, 12582912, 1.5370705380938858e-4, 1.3399848281486022e-3, 9.618373249344893e-3,
  5.5503290351823074e-2, 2.402264846229741e-1, 6.931472055770829e-1, 1,
]);

/**
 * exp of four logits below their maximum, as `softmaxStep8` computes it, bit by bit: a query gets the same weights alone as
 * beside others. 2^(x / ln 2), 0 below 2^-126, NaN stays; the rounding of x / ln 2 adds |x| 2^-24 to the relative error.
 */
function weightOf4(x: v128): v128 {
  const t = f32x4.pmax(f32x4.mul(x, v128.load32_splat(table)), v128.load32_splat(table, 4));
  const magic = v128.load32_splat(table, 8);
  // 1.5 * 2^23 added: the integer part stands in the low bits
  const shifted = f32x4.add(t, magic);
  const r = f32x4.sub(t, f32x4.sub(shifted, magic));
  let p = fma(v128.load32_splat(table, 12), r, v128.load32_splat(table, 16));
  p = fma(p, r, v128.load32_splat(table, 20));
  p = fma(p, r, v128.load32_splat(table, 24));
  p = fma(p, r, v128.load32_splat(table, 28));
  p = fma(p, r, v128.load32_splat(table, 32));
  const one = v128.load32_splat(table, 36);
  p = fma(p, r, one);
  // added to the exponent of 1 the integer makes 2^n, and 0 of the least
  return f32x4.mul(p, i32x4.add(i32x4.shl(shifted, 23), one));
}

/**
 * `count` logits of four lanes, `stride` bytes apart, become weights relative to the new maximum. `state` holds the lanes'
 * maxima; their sums follow `sumsAt` bytes later. Returns the factor of older sums and outputs.
 * @param positions of the keys, for a causal mask and a window; 0 when all lanes see all keys
 * @param isCapped whether the soft cap of the model is still to be applied
 */
export function softmaxStep4(
  at: usize,
  stride: usize,
  count: i32,
  isCapped: bool,
  positions: usize,
  lanePositions: usize,
  state: usize,
  sumsAt: usize,
): v128 {
  const old = v128.load(state);
  const end = at + <usize>count * stride;
  let top = old;
  if (positions === 0 && !isCapped) {
    for (let p = at; p < end; p += stride) top = f32x4.pmax(top, v128.load(p)); // a NaN makes the sum one
  } else {
    top = maskLogits(at, stride, end, isCapped, positions, v128.load(lanePositions), top);
  }
  v128.store(state, top);
  // a lane that saw nothing yet keeps -Infinity: subtract zero there
  const shift = v128.andnot(top, f32x4.eq(top, minusInfinity()));
  const factor = weight4(f32x4.sub(old, shift));
  let sum = f32x4.mul(v128.load(state + sumsAt), factor);
  for (let p = at; p < end; p += stride) {
    const weight = weightOf4(f32x4.sub(v128.load(p), shift));
    v128.store(p, weight);
    sum = f32x4.add(sum, weight);
  }
  v128.store(state + sumsAt, sum);
  return factor;
}

/** Caps logits and hides keys from the lanes that do not see them; returns the maxima. */
function maskLogits(
  at: usize,
  stride: usize,
  end: usize,
  isCapped: bool,
  positions: usize,
  lanes: v128,
  top: v128,
): v128 {
  const none = minusInfinity();
  const near = i32x4.splat(minDistance);
  const far = i32x4.splat(maxDistance);
  for (let p = at; p < end; p += stride) {
    let logit = v128.load(p);
    if (isCapped) logit = capLogits(logit);
    if (positions !== 0) {
      const position = load<i32>(positions);
      const distance = i32x4.sub(lanes, i32x4.splat(position));
      const isHidden = v128.or(i32x4.lt_s(distance, near), i32x4.gt_s(distance, far));
      logit = position < 0 ? none : v128.bitselect(none, logit, isHidden);
      positions += 4;
    }
    v128.store(p, logit);
    top = f32x4.pmax(top, logit);
  }
  return top;
}

let lowFactor: v128 = f32x4.splat(1);
let highFactor: v128 = f32x4.splat(1);

/** The factors of older outputs of lanes 0 to 3 and 4 to 7 after `softmaxStep8`. */
export function factorOfLow(): v128 {
  return lowFactor;
}
export function factorOfHigh(): v128 {
  return highFactor;
}

/** The same for `count` rows of eight logits that every lane sees. */
export function softmaxStep8(at: usize, count: i32, state: usize, sumsAt: usize): void {
  const none = minusInfinity();
  const oldLow = v128.load(state);
  const oldHigh = v128.load(state, 16);
  let topLow = oldLow;
  let topHigh = oldHigh;
  const end = at + ((<usize>count) << 5);
  let p = at;
  if ((count & 1) === 0) {
    let nextLow = topLow;
    let nextHigh = topHigh;
    for (; p < end; p += 64) {
      topLow = f32x4.pmax(topLow, v128.load(p));
      topHigh = f32x4.pmax(topHigh, v128.load(p, 16));
      nextLow = f32x4.pmax(nextLow, v128.load(p, 32));
      nextHigh = f32x4.pmax(nextHigh, v128.load(p, 48));
    }
    topLow = f32x4.pmax(topLow, nextLow);
    topHigh = f32x4.pmax(topHigh, nextHigh);
  }
  for (; p < end; p += 32) {
    topLow = f32x4.pmax(topLow, v128.load(p)); // a NaN makes the sum one
    topHigh = f32x4.pmax(topHigh, v128.load(p, 16));
  }
  v128.store(state, topLow);
  v128.store(state, topHigh, 16);
  // a lane that saw nothing yet keeps -Infinity: subtract zero there
  const shiftLow = v128.andnot(topLow, f32x4.eq(topLow, none));
  const shiftHigh = v128.andnot(topHigh, f32x4.eq(topHigh, none));
  lowFactor = weight4(f32x4.sub(oldLow, shiftLow));
  highFactor = weight4(f32x4.sub(oldHigh, shiftHigh));
  storeWeights8(at, end, shiftLow, shiftHigh, state + sumsAt);
}

/** `weightOf4` for two vectors side by side, which share the loads of its constants; adds the weights to the sums. */
function storeWeights8(at: usize, end: usize, shiftLow: v128, shiftHigh: v128, sums: usize): void {
  let sumLow = f32x4.mul(v128.load(sums), lowFactor);
  let sumHigh = f32x4.mul(v128.load(sums, 16), highFactor);
  for (let p = at; p < end; p += 32) {
    const x = f32x4.sub(v128.load(p), shiftLow);
    const y = f32x4.sub(v128.load(p, 16), shiftHigh);
    let c = v128.load32_splat(table);
    let tx = f32x4.mul(x, c);
    let ty = f32x4.mul(y, c);
    c = v128.load32_splat(table, 4);
    tx = f32x4.pmax(tx, c);
    ty = f32x4.pmax(ty, c);
    c = v128.load32_splat(table, 8);
    const mx = f32x4.add(tx, c);
    const my = f32x4.add(ty, c);
    const rx = f32x4.sub(tx, f32x4.sub(mx, c));
    const ry = f32x4.sub(ty, f32x4.sub(my, c));
    c = v128.load32_splat(table, 12);
    let d = v128.load32_splat(table, 16);
    let px = fma(c, rx, d);
    let py = fma(c, ry, d);
    c = v128.load32_splat(table, 20);
    px = fma(px, rx, c);
    py = fma(py, ry, c);
    c = v128.load32_splat(table, 24);
    px = fma(px, rx, c);
    py = fma(py, ry, c);
    c = v128.load32_splat(table, 28);
    px = fma(px, rx, c);
    py = fma(py, ry, c);
    c = v128.load32_splat(table, 32);
    px = fma(px, rx, c);
    py = fma(py, ry, c);
    d = v128.load32_splat(table, 36);
    px = fma(px, rx, d);
    py = fma(py, ry, d);
    px = f32x4.mul(px, i32x4.add(i32x4.shl(mx, 23), d));
    py = f32x4.mul(py, i32x4.add(i32x4.shl(my, 23), d));
    v128.store(p, px);
    v128.store(p, py, 16);
    sumLow = f32x4.add(sumLow, px);
    sumHigh = f32x4.add(sumHigh, py);
  }
  v128.store(sums, sumLow);
  v128.store(sums, sumHigh, 16);
}
