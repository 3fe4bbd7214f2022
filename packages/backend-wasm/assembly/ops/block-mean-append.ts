/** Running means of the keys and values of each part of a block. */
import { endRow, firstRow, keyOfPart, nextPart, openParts, summary, valueOfPart } from '../attention/summary-parts';
import * as op from '../operands/block-mean-append.generated';
import { F32 } from '../quant/dequantize';
import { takeUnits } from '../runtime/threads';
import { fma } from '../simd/vector';

/** Work items: KV heads. */
export function blockMeanAppend(): void {
  for (let head = takeUnits(1); head < op.keys.numKvHeads; head = takeUnits(1)) {
    openParts(head);
    while (nextPart()) {
      const keyMean = op.keyMeans.address + ((summary * <usize>op.keys.headDim) << 2);
      const valueMean = op.valueMeans.address + ((summary * <usize>op.values.valueDim) << 2);
      // rows of f32 lie side by side
      const keysAtOnce = op.keys.dtype === F32 ? endRow - firstRow : 1;
      for (let row = firstRow; row < endRow; row += keysAtOnce) {
        updateMean(keyMean, keyOfPart(row), op.keys.headDim, row, row + keysAtOnce);
      }
      const valuesAtOnce = op.values.dtype === F32 ? endRow - firstRow : 1;
      for (let row = firstRow; row < endRow; row += valuesAtOnce) {
        updateMean(valueMean, valueOfPart(row), op.values.valueDim, row, row + valuesAtOnce);
      }
    }
  }
}

/** `mean += (x - mean) * (1 / count)` for rows side by side that make counts of `before + 1` to `after`. */
function updateMean(mean: usize, x: usize, length: i32, before: i32, after: i32): void {
  const stride = (<usize>length) << 2;
  if (before === 0) memory.fill(mean, 0, stride);
  let left = length;
  for (; left >= 16; left -= 16, mean += 64, x += 64) {
    let a = v128.load(mean);
    let b = v128.load(mean, 16);
    let c = v128.load(mean, 32);
    let d = v128.load(mean, 48);
    for (let n = before + 1, from = x; n <= after; n++, from += stride) {
      const share = f32x4.splat(<f32>1 / <f32>n);
      a = fma(f32x4.sub(v128.load(from), a), share, a);
      b = fma(f32x4.sub(v128.load(from, 16), b), share, b);
      c = fma(f32x4.sub(v128.load(from, 32), c), share, c);
      d = fma(f32x4.sub(v128.load(from, 48), d), share, d);
    }
    v128.store(mean, a);
    v128.store(mean, b, 16);
    v128.store(mean, c, 32);
    v128.store(mean, d, 48);
  }
  for (; left >= 4; left -= 4, mean += 16, x += 16) {
    let a = v128.load(mean);
    for (let n = before + 1, from = x; n <= after; n++, from += stride) {
      a = fma(f32x4.sub(v128.load(from), a), f32x4.splat(<f32>1 / <f32>n), a);
    }
    v128.store(mean, a);
  }
  for (; left > 0; left--, mean += 4, x += 4) {
    let a = load<f32>(mean);
    for (let n = before + 1, from = x; n <= after; n++, from += stride) {
      a += (load<f32>(from) - a) * (<f32>1 / <f32>n);
    }
    store<f32>(mean, a);
  }
}
