/** Upper bounds of the logits of the keys of a page, for `page-topk-attention`. */
import { capLogits, keyStride } from './kv-cache-view';
import { sum4 } from '../simd/vector';

/** Bounds of four scaled queries in one box. */
export function boundFour(low: usize, high: usize, q0: usize, q1: usize, q2: usize, q3: usize): v128 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let i: usize = 0;
  for (; i + 16 <= keyStride; i += 16) {
    const l = v128.load(low + i);
    const h = v128.load(high + i);
    let x = v128.load(q0 + i);
    a = f32x4.add(a, f32x4.pmax(f32x4.mul(x, l), f32x4.mul(x, h)));
    x = v128.load(q1 + i);
    b = f32x4.add(b, f32x4.pmax(f32x4.mul(x, l), f32x4.mul(x, h)));
    x = v128.load(q2 + i);
    c = f32x4.add(c, f32x4.pmax(f32x4.mul(x, l), f32x4.mul(x, h)));
    x = v128.load(q3 + i);
    d = f32x4.add(d, f32x4.pmax(f32x4.mul(x, l), f32x4.mul(x, h)));
  }
  let sums = f32x4(sum4(a), sum4(b), sum4(c), sum4(d));
  for (; i < keyStride; i += 4) {
    const column = f32x4(load<f32>(q0 + i), load<f32>(q1 + i), load<f32>(q2 + i), load<f32>(q3 + i));
    const atLow = f32x4.mul(column, v128.load32_splat(low + i));
    sums = f32x4.add(sums, f32x4.max(atLow, f32x4.mul(column, v128.load32_splat(high + i))));
  }
  return capLogits(sums);
}
