/** A step of the online softmax for eight queries side by side: scores become weights, two vectors at a time. */
import { minusInfinity } from './constants';
import { fma, weight4 } from './simd';

/** The constants of `weight4`: least, 1 / ln 2, 1.5 * 2^23, ln 2 in two parts, a polynomial, 1. */
const table = memory.data<f32>([
  -87, 1.44269504088896341, 12582912, 0.693359375, 2.12194440e-4, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
  4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1,
]);

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
  const end = at + (<usize>count << 5);
  let p = at;
  if ((count & 1) == 0) {
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
  for (let p = at; p < end; p += 32) {
    const x = f32x4.sub(v128.load(p), shiftLow);
    const y = f32x4.sub(v128.load(p, 16), shiftHigh);
    let c = v128.load32_splat(table);
    const isFarX = f32x4.lt(x, c);
    const isFarY = f32x4.lt(y, c);
    const bx = f32x4.pmax(x, c);
    const by = f32x4.pmax(y, c);
    c = v128.load32_splat(table, 4);
    const magic = v128.load32_splat(table, 8);
    const mx = fma(bx, c, magic);
    const my = fma(by, c, magic);
    const nx = f32x4.sub(mx, magic);
    const ny = f32x4.sub(my, magic);
    c = v128.load32_splat(table, 12);
    let rx = f32x4.sub(bx, f32x4.mul(nx, c));
    let ry = f32x4.sub(by, f32x4.mul(ny, c));
    c = v128.load32_splat(table, 16);
    rx = fma(nx, c, rx);
    ry = fma(ny, c, ry);
    let d = v128.load32_splat(table, 24);
    c = v128.load32_splat(table, 20);
    let px = fma(c, rx, d);
    let py = fma(c, ry, d);
    d = v128.load32_splat(table, 28);
    px = fma(px, rx, d);
    py = fma(py, ry, d);
    d = v128.load32_splat(table, 32);
    px = fma(px, rx, d);
    py = fma(py, ry, d);
    d = v128.load32_splat(table, 36);
    px = fma(px, rx, d);
    py = fma(py, ry, d);
    d = v128.load32_splat(table, 40);
    px = fma(px, rx, d);
    py = fma(py, ry, d);
    d = v128.load32_splat(table, 44);
    px = f32x4.add(fma(px, f32x4.mul(rx, rx), rx), d);
    py = f32x4.add(fma(py, f32x4.mul(ry, ry), ry), d);
    // the low bits of `mx` are n: added to the exponent of 1 they make 2^n
    px = v128.andnot(f32x4.mul(px, i32x4.add(i32x4.shl(mx, 23), d)), isFarX);
    py = v128.andnot(f32x4.mul(py, i32x4.add(i32x4.shl(my, 23), d)), isFarY);
    v128.store(p, px);
    v128.store(p, py, 16);
    sumLow = f32x4.add(sumLow, px);
    sumHigh = f32x4.add(sumHigh, py);
  }
  v128.store(sums, sumLow);
  v128.store(sums, sumHigh, 16);
}
