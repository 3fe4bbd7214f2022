/** Online softmax of one query over keys that lie anywhere: no key is computed that the query does not see. */
import { fma, sum4, tanh4, weight4 } from '../simd/vector';

/** Entry: key, value, bias, weight. */
export const ENTRY_BYTES: usize = 16;
/** State: maximum, sum, then the weighted sum of the values. */
export const ROW_STATE: usize = 16;

let scale: f32 = 1;
let cap: f32 = 0;

export function setRowSoftmax(factor: f32, softCap: f32): void {
  scale = factor;
  cap = softCap;
}

export function setEntry(entries: usize, index: i32, key: usize, value: usize, bias: f32): void {
  const at = entries + <usize>index * ENTRY_BYTES;
  store<u32>(at, <u32>key);
  store<u32>(at, <u32>value, 4);
  store<f32>(at, bias, 8);
}

export function clearRow(state: usize, valueDim: i32): void {
  store<f32>(state, -Infinity);
  store<f32>(state, 0, 4);
  memory.fill(state + ROW_STATE, 0, ((<usize>valueDim) << 2) + 16);
}

/** Takes `count` keys into the state of a query. */
export function pushRows(query: usize, headDim: i32, valueDim: i32, entries: usize, count: i32, state: usize): void {
  if (count <= 0) return;
  const old = load<f32>(state);
  let top = old;
  const last = entries + <usize>(count - 1) * ENTRY_BYTES;
  for (let at = entries; at <= last; at += 4 * ENTRY_BYTES) {
    const b = min<usize>(at + ENTRY_BYTES, last);
    const c = min<usize>(at + 2 * ENTRY_BYTES, last);
    const d = min<usize>(at + 3 * ENTRY_BYTES, last);
    let v = dots4(query, load<u32>(at), load<u32>(b), load<u32>(c), load<u32>(d), headDim);
    v = f32x4.mul(v, f32x4.splat(scale));
    if (cap !== 0) v = f32x4.mul(f32x4.splat(cap), tanh4(f32x4.div(v, f32x4.splat(cap))));
    top = keep(at, f32x4.extract_lane(v, 0), top);
    top = keep(b, f32x4.extract_lane(v, 1), top);
    top = keep(c, f32x4.extract_lane(v, 2), top);
    top = keep(d, f32x4.extract_lane(v, 3), top);
  }
  if (top === -Infinity) {
    // no key that counts, or NaN: a sum that is not a number says so
    let poison: f32 = 0;
    for (let at = entries; at <= last; at += ENTRY_BYTES) {
      const logit = load<f32>(at, 12);
      if (logit !== logit) poison = logit;
    }
    store<f32>(state, load<f32>(state, 4) + poison, 4);
    return;
  }
  const factor: f32 = old === -Infinity ? 0 : f32x4.extract_lane(weight4(f32x4.splat(old - top)), 0);
  let sum = load<f32>(state, 4) * factor;
  for (let at = entries; at <= last; at += 4 * ENTRY_BYTES) {
    let v = f32x4.splat(load<f32>(at, 12));
    const left = <i32>((last - at) / ENTRY_BYTES);
    if (left >= 1) v = f32x4.replace_lane(v, 1, load<f32>(at, 12 + 16));
    if (left >= 2) v = f32x4.replace_lane(v, 2, load<f32>(at, 12 + 32));
    if (left >= 3) v = f32x4.replace_lane(v, 3, load<f32>(at, 12 + 48));
    v = weight4(f32x4.sub(v, f32x4.splat(top)));
    sum += storeWeight(at, f32x4.extract_lane(v, 0));
    if (left >= 1) sum += storeWeight(at + ENTRY_BYTES, f32x4.extract_lane(v, 1));
    if (left >= 2) sum += storeWeight(at + 2 * ENTRY_BYTES, f32x4.extract_lane(v, 2));
    if (left >= 3) sum += storeWeight(at + 3 * ENTRY_BYTES, f32x4.extract_lane(v, 3));
  }
  store<f32>(state, top);
  store<f32>(state, sum, 4);
  addValues(state + ROW_STATE, entries, last, factor, valueDim);
}

function keep(at: usize, product: f32, top: f32): f32 {
  const logit = product + load<f32>(at, 8);
  store<f32>(at, logit, 12);
  return logit > top ? logit : top;
}

function storeWeight(at: usize, weight: f32): f32 {
  store<f32>(at, weight, 12);
  return weight;
}

/** `out = out * factor + sum of weight * value`. */
function addValues(out: usize, entries: usize, last: usize, factor: f32, valueDim: i32): void {
  const f = f32x4.splat(factor);
  let d: usize = 0;
  const bytes = (<usize>valueDim) << 2;
  for (; d + 64 <= bytes; d += 64) {
    let a = f32x4.mul(v128.load(out + d), f);
    let b = f32x4.mul(v128.load(out + d, 16), f);
    let c = f32x4.mul(v128.load(out + d, 32), f);
    let e = f32x4.mul(v128.load(out + d, 48), f);
    for (let at = entries; at <= last; at += ENTRY_BYTES) {
      const w = v128.load32_splat(at, 12);
      const value = <usize>load<u32>(at, 4) + d;
      a = fma(v128.load(value), w, a);
      b = fma(v128.load(value, 16), w, b);
      c = fma(v128.load(value, 32), w, c);
      e = fma(v128.load(value, 48), w, e);
    }
    v128.store(out + d, a);
    v128.store(out + d, b, 16);
    v128.store(out + d, c, 32);
    v128.store(out + d, e, 48);
  }
  for (; d < bytes; d += 4) {
    let a = load<f32>(out + d) * factor;
    for (let at = entries; at <= last; at += ENTRY_BYTES) {
      a += load<f32>(<usize>load<u32>(at, 4) + d) * load<f32>(at, 12);
    }
    store<f32>(out + d, a);
  }
}

/** Products of one vector with four others. */
export function dots4(x: usize, w0: usize, w1: usize, w2: usize, w3: usize, count: i32): v128 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  const bytes = (<usize>count) << 2;
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16) {
    const v = v128.load(x + i);
    a = fma(v, v128.load(w0 + i), a);
    b = fma(v, v128.load(w1 + i), b);
    c = fma(v, v128.load(w2 + i), c);
    d = fma(v, v128.load(w3 + i), d);
  }
  let s0 = sum4(a);
  let s1 = sum4(b);
  let s2 = sum4(c);
  let s3 = sum4(d);
  for (; i < bytes; i += 4) {
    const v = load<f32>(x + i);
    s0 += v * load<f32>(w0 + i);
    s1 += v * load<f32>(w1 + i);
    s2 += v * load<f32>(w2 + i);
    s3 += v * load<f32>(w3 + i);
  }
  return f32x4(s0, s1, s2, s3);
}
