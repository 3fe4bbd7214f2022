/** What sparse attention keeps of blocks and sequences: means, boxes, transposed keys, states; and remapped positions. */
import { F32, bytesOf, decode } from '../quant/dequantize';
import { encode } from '../quant/quantize-kv';
import { addressOf, attributeI, dim, dtypeOf, localScratch } from '../runtime/record';
import { fma } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

const NORM_MARGIN: f64 = 1 + 1.0 / 262144;

/** Tensors: slots, keys, values, counts, keyMeans, valueMeans. Units: KV heads. */
export function blockMeanAppend(): void {
  const numHeads = dim(1, 1);
  for (let head = takeUnits(1); head < numHeads; head = takeUnits(1)) summarise(head, false);
}

/** Tensors: slots, keys, values, counts, keyMin, keyMax, valueNorms. Units: KV heads. */
export function blockBoxAppend(): void {
  const numHeads = dim(1, 1);
  for (let head = takeUnits(1); head < numHeads; head = takeUnits(1)) summarise(head, true);
}

function summarise(head: i32, isBox: bool): void {
  const numTokens = dim(0, 0);
  const numHeads = dim(1, 1);
  const blockSize = dim(1, 2);
  const headDim = dim(1, 3);
  const valueDim = dim(2, 3);
  const numParts = dim(3, 1);
  const partSize = blockSize / numParts;
  const keyRow = localScratch();
  const valueRow = keyRow + ((<usize>headDim) << 2) + 16;
  for (let t = 0; t < numTokens;) {
    const slot = load<i32>(addressOf(0) + ((<usize>t) << 2));
    t += 1;
    if (slot < 0) continue;
    const block = slot / blockSize;
    const inside = slot - block * blockSize;
    const part = inside / partSize;
    const offset = inside - part * partSize;
    const summary = <usize>((block * numParts + part) * numHeads + head);
    const count = addressOf(3) + (summary << 2);
    const isCurrent = offset !== 0 && load<i32>(count) === offset;
    const firstRow = <usize>(block * numHeads + head) * <usize>blockSize + <usize>(part * partSize);
    // tokens that follow in the same part
    let end = offset + 1;
    while (end < partSize && t < numTokens && load<i32>(addressOf(0) + ((<usize>t) << 2)) === slot + end - offset) {
      end += 1;
      t += 1;
    }
    const begin = isCurrent ? offset : 0;
    if (isBox) {
      for (let o = begin; o < end; o++) {
        const key = rowOf(1, firstRow + <usize>o, headDim, keyRow);
        extend(
          addressOf(4) + summary * ((<usize>headDim) << 2),
          addressOf(5) + summary * ((<usize>headDim) << 2),
          key,
          headDim,
          o === 0,
        );
        raise(addressOf(6) + (summary << 2), rowOf(2, firstRow + <usize>o, valueDim, valueRow), valueDim, o === 0);
      }
    } else {
      moveBy(1, firstRow, begin, end, addressOf(4) + summary * ((<usize>headDim) << 2), headDim, keyRow);
      moveBy(2, firstRow, begin, end, addressOf(5) + summary * ((<usize>valueDim) << 2), valueDim, valueRow);
    }
    store<i32>(count, end);
  }
}

/** Takes the rows `[begin, end)` of a part into their mean, which has those before them. */
function moveBy(tensor: i32, firstRow: usize, begin: i32, end: i32, mean: usize, length: i32, row: usize): void {
  if (dtypeOf(tensor) === F32) {
    move(mean, rowOf(tensor, firstRow + <usize>begin, length, row), length, begin, end);
    return;
  }
  for (let o = begin; o < end; o++) move(mean, rowOf(tensor, firstRow + <usize>o, length, row), length, o, o + 1);
}

/** Where a row of the cache lies as f32: there, or decoded to `to`. */
function rowOf(tensor: i32, row: usize, length: i32, to: usize): usize {
  const dtype = dtypeOf(tensor);
  const from = addressOf(tensor) + row * bytesOf(dtype, length);
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

/** Tensors: slots, keys, columns. Units: tokens. */
export function keyColumnsAppend(): void {
  const numTokens = dim(0, 0);
  const numHeads = dim(1, 1);
  const blockSize = dim(1, 2);
  const headDim = dim(1, 3);
  const keyType = dtypeOf(1);
  const columnType = dtypeOf(2);
  const key = localScratch();
  for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
    const slot = load<i32>(addressOf(0) + ((<usize>t) << 2));
    if (slot < 0) continue;
    const block = slot / blockSize;
    const offset = slot - block * blockSize;
    for (let head = 0; head < numHeads; head++) {
      const first = <usize>(block * numHeads + head);
      const row = first * <usize>blockSize + <usize>offset;
      decode(keyType, addressOf(1) + row * bytesOf(keyType, headDim), key, headDim);
      for (let i = 0; i < headDim; i++) {
        const column = (first * <usize>headDim + <usize>i) * <usize>blockSize + <usize>offset;
        const at = key + ((<usize>i) << 2);
        store<f32>(at, load<f32>(at) + 0); // -0 becomes 0
        encode(columnType, at, addressOf(2) + column * bytesOf(columnType, 1), 1);
      }
    }
  }
}

/** Tensors: positions, y. */
export function clampPositions(): void {
  const limit = attributeI(0);
  const numTokens = dim(0, 0);
  for (let t: usize = 0; t < <usize>numTokens; t++) {
    store<i32>(addressOf(1) + (t << 2), min<i32>(load<i32>(addressOf(0) + (t << 2)), limit));
  }
}

/** Tensors: sequences, stateFrom, stateTo, state. */
export function stateCarry(): void {
  const numTokens = dim(0, 0);
  const rowBytes = (<usize>(dim(3, 1) * dim(3, 2))) << 2;
  for (let t = 0; t < numTokens;) {
    const sequence = load<i32>(addressOf(0) + ((<usize>t) << 2));
    while (t < numTokens && load<i32>(addressOf(0) + ((<usize>t) << 2)) === sequence) t++;
    const from = load<i32>(addressOf(1) + ((<usize>sequence) << 2));
    const to = addressOf(3) + <usize>load<i32>(addressOf(2) + ((<usize>sequence) << 2)) * rowBytes;
    if (from < 0) memory.fill(to, 0, rowBytes);
    else memory.copy(to, addressOf(3) + <usize>from * rowBytes, rowBytes);
  }
}
