/** GEMV in f32, four rows at a time. */
import { F16 } from '../quant/dequantize';
import { fma, sum4 } from '../simd/vector';
import { gemvF16 } from './f16-gemv';

/** Dot products of one vector with four rows of f32 or f16. */
export function gemv4(dtype: i32, x: usize, w0: usize, w1: usize, w2: usize, w3: usize, count: i32): v128 {
  return dtype === F16 ? gemvF16(x, w0, w1, w2, w3, count) : gemvF32(x, w0, w1, w2, w3, count);
}

function gemvF32(x: usize, w0: usize, w1: usize, w2: usize, w3: usize, count: i32): v128 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let e = a;
  let f = a;
  let g = a;
  let h = a;
  let i = count;
  for (; i >= 8; i -= 8) {
    let v = v128.load(x);
    a = fma(v, v128.load(w0), a);
    b = fma(v, v128.load(w1), b);
    c = fma(v, v128.load(w2), c);
    d = fma(v, v128.load(w3), d);
    v = v128.load(x, 16);
    e = fma(v, v128.load(w0, 16), e);
    f = fma(v, v128.load(w1, 16), f);
    g = fma(v, v128.load(w2, 16), g);
    h = fma(v, v128.load(w3, 16), h);
    x += 32;
    w0 += 32;
    w1 += 32;
    w2 += 32;
    w3 += 32;
  }
  let s0 = sum4(f32x4.add(a, e));
  let s1 = sum4(f32x4.add(b, f));
  let s2 = sum4(f32x4.add(c, g));
  let s3 = sum4(f32x4.add(d, h));
  for (; i > 0; i--, x += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
    const v = load<f32>(x);
    s0 += v * load<f32>(w0);
    s1 += v * load<f32>(w1);
    s2 += v * load<f32>(w2);
    s3 += v * load<f32>(w3);
  }
  return f32x4(s0, s1, s2, s3);
}
