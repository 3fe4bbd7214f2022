/** What `page-topk-attention` asks of a page: where its positions lie, and how large the logits of its keys can be. */
import { maxI4, sum4 } from '../simd/vector';

/** Whether all of these positions are seen and none has to be attended to. */
export function areFar(at: usize, count: i32, position: i32, sinks: i32, local: i32, reach: i32): bool {
  let low = i32x4.splat(i32.MAX_VALUE);
  let high = i32x4.splat(i32.MIN_VALUE);
  const end = at + ((<usize>count) << 2);
  for (; at + 16 <= end; at += 16) {
    const v = v128.load(at);
    low = i32x4.min_s(low, v);
    high = i32x4.max_s(high, v);
  }
  let least = min<i32>(
    min<i32>(i32x4.extract_lane(low, 0), i32x4.extract_lane(low, 1)),
    min<i32>(i32x4.extract_lane(low, 2), i32x4.extract_lane(low, 3)),
  );
  let most = maxI4(high);
  for (; at < end; at += 4) {
    least = min<i32>(least, load<i32>(at));
    most = max<i32>(most, load<i32>(at));
  }
  if (least < max<i32>(sinks, 0) || most > position) return false;
  return position - most >= local && position - least <= reach;
}

/** Bounds of four queries in one box. */
export function boundFour(low: usize, high: usize, q0: usize, q1: usize, q2: usize, q3: usize, bytes: usize): v128 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16) {
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
  let s0 = sum4(a);
  let s1 = sum4(b);
  let s2 = sum4(c);
  let s3 = sum4(d);
  for (; i < bytes; i += 4) {
    const l = load<f32>(low + i);
    const h = load<f32>(high + i);
    s0 += max<f32>(load<f32>(q0 + i) * l, load<f32>(q0 + i) * h);
    s1 += max<f32>(load<f32>(q1 + i) * l, load<f32>(q1 + i) * h);
    s2 += max<f32>(load<f32>(q2 + i) * l, load<f32>(q2 + i) * h);
    s3 += max<f32>(load<f32>(q3 + i) * l, load<f32>(q3 + i) * h);
  }
  return f32x4(s0, s1, s2, s3);
}
