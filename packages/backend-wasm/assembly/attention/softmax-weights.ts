/** A step of the online softmax for eight queries side by side: scores become weights, two vectors at a time. */
import { minusInfinity } from '../simd/constants';
import { fma, weight4 } from '../simd/vector';

/**
 * 1 / ln 2, the least exponent, 1.5 * 2^23, the coefficients of 2^r from degree 6 down to 1 (least squares of the relative
 * error over [-1/2, 1/2]: 2.2e-9, in f32 below 1e-7), 1.
 */
const table = memory.data<f32>([
  1.4426950408889634, -127, 12582912, 1.5370705380938858e-4, 1.3399848281486022e-3, 9.618373249344893e-3,
  5.5503290351823074e-2, 2.402264846229741e-1, 6.931472055770829e-1, 1,
]);

/**
 * exp of four scores below their maximum, as `weigh8` computes it, bit by bit: a query gets the same weights alone as beside
 * others. 2^(x / ln 2), 0 below 2^-126, NaN stays; the rounding of x / ln 2 adds |x| 2^-24 to the relative error.
 */
export function weightOf4(x: v128): v128 {
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

let factorLow: v128 = f32x4.splat(1);
let factorHigh: v128 = f32x4.splat(1);

/** What older outputs of lanes 0 to 3 are to be multiplied with after `weigh8`. */
export function lowFactor(): v128 {
  return factorLow;
}
export function highFactor(): v128 {
  return factorHigh;
}

/** `count` rows of eight scores at `at`; the lanes' maxima are at `state`, their sums `sumsAt` bytes further. */
export function weigh8(at: usize, count: i32, state: usize, sumsAt: usize): void {
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
  factorLow = weight4(f32x4.sub(oldLow, shiftLow));
  factorHigh = weight4(f32x4.sub(oldHigh, shiftHigh));
  const sums = state + sumsAt;
  let sumLow = f32x4.mul(v128.load(sums), factorLow);
  let sumHigh = f32x4.mul(v128.load(sums, 16), factorHigh);
  // weightOf4 for two vectors side by side
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
