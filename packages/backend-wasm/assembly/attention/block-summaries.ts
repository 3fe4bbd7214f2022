/** What sparse attention keeps of the keys and values of a block: means, or boxes with the largest norm of a value. */
import * as Box from '../operands/block-box-append.generated';
import * as Mean from '../operands/block-mean-append.generated';
import { counts, keys, slots, values } from '../operands/summary-inputs.generated';
import { F32, bytesOf, decode } from '../quant/dequantize';
import { localScratch } from '../runtime/record';
import { fma } from '../simd/vector';

const NORM_MARGIN: f64 = 1 + 1.0 / 262144;

/** Takes the tokens of the step into the summaries of one KV head. */
export function summarize(head: i32, isBox: bool): void {
  const numTokens = slots.numTokens;
  const numHeads = keys.numKvHeads;
  const blockSize = keys.blockSize;
  const numParts = counts.numParts;
  const partSize = blockSize / numParts;
  for (let t = 0; t < numTokens;) {
    const slot = load<i32>(slots.address + ((<usize>t) << 2));
    t += 1;
    if (slot < 0) continue;
    const block = slot / blockSize;
    const inside = slot - block * blockSize;
    const part = inside / partSize;
    const offset = inside - part * partSize;
    const summary = <usize>((block * numParts + part) * numHeads + head);
    const count = counts.address + (summary << 2);
    const isCurrent = offset !== 0 && load<i32>(count) === offset;
    const firstRow = <usize>(block * numHeads + head) * <usize>blockSize + <usize>(part * partSize);
    // tokens that follow in the same part
    let end = offset + 1;
    while (end < partSize && t < numTokens && load<i32>(slots.address + ((<usize>t) << 2)) === slot + end - offset) {
      end += 1;
      t += 1;
    }
    const begin = isCurrent ? offset : 0;
    if (isBox) extendBox(summary, firstRow, begin, end);
    else {
      moveKeys(summary, firstRow, begin, end);
      moveValues(summary, firstRow, begin, end);
    }
    store<i32>(count, end);
  }
}

/** A row of keys as f32: where it lies, or dequantized to scratch. */
function keyRow(row: usize): usize {
  return rowOf(keys.address, keys.dtype, row, keys.headDim, localScratch());
}
function valueRow(row: usize): usize {
  return rowOf(values.address, values.dtype, row, values.valueDim, localScratch() + ((<usize>keys.headDim) << 2) + 16);
}

function extendBox(summary: usize, firstRow: usize, begin: i32, end: i32): void {
  const headDim = keys.headDim;
  const low = Box.keyMin.address + summary * ((<usize>headDim) << 2);
  const high = Box.keyMax.address + summary * ((<usize>headDim) << 2);
  const norm = Box.valueNorms.address + (summary << 2);
  for (let o = begin; o < end; o++) {
    extend(low, high, keyRow(firstRow + <usize>o), headDim, o === 0);
    raise(norm, valueRow(firstRow + <usize>o), values.valueDim, o === 0);
  }
}

/** Takes the keys `[begin, end)` of a part into their mean, which has those before them. */
function moveKeys(summary: usize, firstRow: usize, begin: i32, end: i32): void {
  const length = keys.headDim;
  const mean = Mean.keyMeans.address + summary * ((<usize>length) << 2);
  if (keys.dtype === F32) move(mean, keyRow(firstRow + <usize>begin), length, begin, end);
  else for (let o = begin; o < end; o++) move(mean, keyRow(firstRow + <usize>o), length, o, o + 1);
}
function moveValues(summary: usize, firstRow: usize, begin: i32, end: i32): void {
  const length = values.valueDim;
  const mean = Mean.valueMeans.address + summary * ((<usize>length) << 2);
  if (values.dtype === F32) move(mean, valueRow(firstRow + <usize>begin), length, begin, end);
  else for (let o = begin; o < end; o++) move(mean, valueRow(firstRow + <usize>o), length, o, o + 1);
}

function rowOf(cache: usize, dtype: i32, row: usize, length: i32, to: usize): usize {
  const from = cache + row * bytesOf(dtype, length);
  if (dtype === F32) return from;
  decode(dtype, from, to, length);
  return to;
}

/** `mean += (x - mean) * (1 / count)` for rows side by side that make counts of `before + 1` to `after`. */
function move(mean: usize, x: usize, length: i32, before: i32, after: i32): void {
  const stride = (<usize>length) << 2;
  let left = length;
  for (; left >= 32; left -= 32, mean += 128, x += 128) {
    let a = f32x4.splat(0);
    let b = a;
    let c = a;
    let d = a;
    let e = a;
    let f = a;
    let g = a;
    let h = a;
    if (before > 0) {
      a = v128.load(mean);
      b = v128.load(mean, 16);
      c = v128.load(mean, 32);
      d = v128.load(mean, 48);
      e = v128.load(mean, 64);
      f = v128.load(mean, 80);
      g = v128.load(mean, 96);
      h = v128.load(mean, 112);
    }
    for (let n = before + 1, from = x; n <= after; n++, from += stride) {
      const share = f32x4.splat(<f32>1 / <f32>n);
      a = fma(f32x4.sub(v128.load(from), a), share, a);
      b = fma(f32x4.sub(v128.load(from, 16), b), share, b);
      c = fma(f32x4.sub(v128.load(from, 32), c), share, c);
      d = fma(f32x4.sub(v128.load(from, 48), d), share, d);
      e = fma(f32x4.sub(v128.load(from, 64), e), share, e);
      f = fma(f32x4.sub(v128.load(from, 80), f), share, f);
      g = fma(f32x4.sub(v128.load(from, 96), g), share, g);
      h = fma(f32x4.sub(v128.load(from, 112), h), share, h);
    }
    v128.store(mean, a);
    v128.store(mean, b, 16);
    v128.store(mean, c, 32);
    v128.store(mean, d, 48);
    v128.store(mean, e, 64);
    v128.store(mean, f, 80);
    v128.store(mean, g, 96);
    v128.store(mean, h, 112);
  }
  for (; left >= 4; left -= 4, mean += 16, x += 16) {
    let a = before > 0 ? v128.load(mean) : f32x4.splat(0);
    for (let n = before + 1, from = x; n <= after; n++, from += stride) {
      a = fma(f32x4.sub(v128.load(from), a), f32x4.splat(<f32>1 / <f32>n), a);
    }
    v128.store(mean, a);
  }
  for (; left > 0; left--, mean += 4, x += 4) {
    let a: f32 = before > 0 ? load<f32>(mean) : 0;
    for (let n = before + 1, from = x; n <= after; n++, from += stride) {
      a += (load<f32>(from) - a) * (<f32>1 / <f32>n);
    }
    store<f32>(mean, a);
  }
}

function extend(low: usize, high: usize, x: usize, length: i32, isFirst: bool): void {
  if (isFirst) {
    memory.copy(low, x, (<usize>length) << 2);
    memory.copy(high, x, (<usize>length) << 2);
    return;
  }
  for (const whole = low + ((<usize>(length & ~3)) << 2); low < whole; low += 16, high += 16, x += 16) {
    const v = v128.load(x);
    v128.store(low, f32x4.min(v128.load(low), v));
    v128.store(high, f32x4.max(v128.load(high), v));
  }
  length &= 3;
  for (const end = low + ((<usize>length) << 2); low < end; low += 4, high += 4, x += 4) {
    const v = load<f32>(x);
    store<f32>(low, min<f32>(load<f32>(low), v));
    store<f32>(high, max<f32>(load<f32>(high), v));
  }
}

function raise(norm: usize, x: usize, length: i32, isFirst: bool): void {
  let squares: f64 = 0;
  for (const end = x + ((<usize>length) << 2); x < end; x += 4) squares += <f64>load<f32>(x) * <f64>load<f32>(x);
  const length2 = <f32>(Math.sqrt(squares) * NORM_MARGIN);
  store<f32>(norm, isFirst ? length2 : max<f32>(load<f32>(norm), length2));
}
