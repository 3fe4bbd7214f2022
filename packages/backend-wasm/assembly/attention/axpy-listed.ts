/** Axpy with values at listed addresses. */
import { fma } from '../simd/vector';
import { valueStride } from './kv-cache-view';

/**
 * `y = x * factor + sum of weight * row`. Addresses of rows, and weights, are `stride` bytes apart.
 * @param vectorBytes how much of a row is computed in vectors; further columns are computed one by one
 */
export function axpyListed(
  y: usize,
  x: usize,
  factor: f32,
  rows: usize,
  weights: usize,
  stride: usize,
  count: i32,
  vectorBytes: usize,
): void {
  const end = rows + <usize>count * stride;
  const f = f32x4.splat(factor);
  let column: usize = 0;
  for (; column + 128 <= vectorBytes; column += 128) {
    let a = f32x4.mul(v128.load(x + column), f);
    let b = f32x4.mul(v128.load(x + column, 16), f);
    let c = f32x4.mul(v128.load(x + column, 32), f);
    let d = f32x4.mul(v128.load(x + column, 48), f);
    let e = f32x4.mul(v128.load(x + column, 64), f);
    let g = f32x4.mul(v128.load(x + column, 80), f);
    let h = f32x4.mul(v128.load(x + column, 96), f);
    let i = f32x4.mul(v128.load(x + column, 112), f);
    for (let at = rows, w = weights; at < end; at += stride, w += stride) {
      const weight = v128.load32_splat(w);
      const row = <usize>load<u32>(at) + column;
      a = fma(v128.load(row), weight, a);
      b = fma(v128.load(row, 16), weight, b);
      c = fma(v128.load(row, 32), weight, c);
      d = fma(v128.load(row, 48), weight, d);
      e = fma(v128.load(row, 64), weight, e);
      g = fma(v128.load(row, 80), weight, g);
      h = fma(v128.load(row, 96), weight, h);
      i = fma(v128.load(row, 112), weight, i);
    }
    v128.store(y + column, a);
    v128.store(y + column, b, 16);
    v128.store(y + column, c, 32);
    v128.store(y + column, d, 48);
    v128.store(y + column, e, 64);
    v128.store(y + column, g, 80);
    v128.store(y + column, h, 96);
    v128.store(y + column, i, 112);
  }
  for (; column < vectorBytes; column += 16) {
    let a = f32x4.mul(v128.load(x + column), f);
    for (let at = rows, w = weights; at < end; at += stride, w += stride) {
      a = fma(v128.load(<usize>load<u32>(at) + column), v128.load32_splat(w), a);
    }
    v128.store(y + column, a);
  }
  for (; column < valueStride; column += 4) {
    let a = load<f32>(x + column) * factor;
    for (let at = rows, w = weights; at < end; at += stride, w += stride) {
      a += load<f32>(<usize>load<u32>(at) + column) * load<f32>(w);
    }
    store<f32>(y + column, a);
  }
}
