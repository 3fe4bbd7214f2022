/**
 * Dot products of f32 activations with f16 weights. The bits of a normal binary16 become those of the f32 by a shift and
 * an addition to the exponent. Zeros, denormals, Inf and NaN are noticed eight columns of four rows at a time; these columns
 * are left out, and converted with care later: that code beside the other would take its registers.
 */
import { halfMask, halfOffset, leastNormal, upperExponent } from '../simd/constants.generated';
import { fma, halfToFloat, halfToFloat4, normalHalves, sum4 } from '../simd/vector';

/** Bytes of weights of a row whose odd columns are noted as bits of a word. */
const SEGMENT: usize = 64 * 16;

/** Four weights, which have to be normal numbers. */
function four(at: usize, mask: v128, offset: v128): v128 {
  return normalHalves(v128.load16x4_s(at), mask, offset);
}

/** Zero where the exponent has all bits or none; the increment of the exponent carries no further than the sign. */
function rank(at: usize, step: v128, upper: v128): v128 {
  return v128.and(i16x8.add(v128.load(at), step), upper);
}

/** Four rows at a time. */
export function gemvF16(x: usize, w0: usize, w1: usize, w2: usize, w3: usize, count: i32): v128 {
  const mask = halfMask();
  const step = leastNormal(); // the lowest bit of the exponent
  const upper = upperExponent();
  const offset = halfOffset();
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  const whole = count & ~7;
  const end = (<usize>whole) << 1;
  for (let begin: usize = 0; begin < end; begin += SEGMENT) {
    const stop = min<usize>(end, begin + SEGMENT);
    let odd: u64 = 0;
    for (let at = begin; at < stop; at += 16) {
      const least = i16x8.min_u(
        i16x8.min_u(rank(w0 + at, step, upper), rank(w1 + at, step, upper)),
        i16x8.min_u(rank(w2 + at, step, upper), rank(w3 + at, step, upper)),
      );
      if (!i16x8.all_true(least)) {
        odd |= (<u64>1) << (<u64>((at - begin) >> 4));
        continue;
      }
      const low = v128.load(x + (at << 1));
      const high = v128.load(x + (at << 1), 16);
      a = fma(four(w0 + at, mask, offset), low, a);
      b = fma(four(w1 + at, mask, offset), low, b);
      c = fma(four(w2 + at, mask, offset), low, c);
      d = fma(four(w3 + at, mask, offset), low, d);
      a = fma(four(w0 + at + 8, mask, offset), high, a);
      b = fma(four(w1 + at + 8, mask, offset), high, b);
      c = fma(four(w2 + at + 8, mask, offset), high, c);
      d = fma(four(w3 + at + 8, mask, offset), high, d);
    }
    for (; odd !== 0; odd &= odd - 1) {
      const at = begin + ((<usize>ctz(odd)) << 4);
      const from = x + (at << 1);
      a = careful(w0 + at, from, a);
      b = careful(w1 + at, from, b);
      c = careful(w2 + at, from, c);
      d = careful(w3 + at, from, d);
    }
  }
  let s = f32x4(sum4(a), sum4(b), sum4(c), sum4(d));
  for (let i = <usize>whole; i < <usize>count; i++) {
    const column = f32x4(
      halfToFloat(load<u16>(w0 + (i << 1))),
      halfToFloat(load<u16>(w1 + (i << 1))),
      halfToFloat(load<u16>(w2 + (i << 1))),
      halfToFloat(load<u16>(w3 + (i << 1))),
    );
    s = fma(column, v128.load32_splat(x + (i << 2)), s);
  }
  return s;
}

/** Adds the products of eight columns whatever they are. */
function careful(w: usize, x: usize, sum: v128): v128 {
  sum = fma(halfToFloat4(v128.load16x4_u(w)), v128.load(x), sum);
  return fma(halfToFloat4(v128.load16x4_u(w, 8)), v128.load(x, 16), sum);
}
