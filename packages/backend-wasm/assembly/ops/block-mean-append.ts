/** Running means of the keys and values of each part of a block. */
import * as parts from '../attention/summary-parts';
import * as op from '../operands/block-mean-append.generated';
import { floatAt, setFloat } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { fma } from '../simd/vector';

/** Work items: KV heads. */
export function blockMeanAppend(): void {
  for (let head = nextItems(1); head < op.keys.numKvHeads; head = nextItems(1)) {
    parts.openParts(head);
    while (parts.nextPart()) {
      const keyMean = op.keyMeans.address + ((parts.summary * <usize>op.keys.headDim) << 2);
      const valueMean = op.valueMeans.address + ((parts.summary * <usize>op.values.valueDim) << 2);
      for (let row = parts.firstRow; row < parts.endRow; row++) {
        addToMean(keyMean, parts.keyOfPart(row), op.keys.headDim, row);
        addToMean(valueMean, parts.valueOfPart(row), op.values.valueDim, row);
      }
    }
  }
}

/** `mean += (x - mean) / n` for the n-th row. */
function addToMean(mean: usize, x: usize, length: i32, numBefore: i32): void {
  if (numBefore === 0) memory.fill(mean, 0, (<usize>length) << 2);
  const share = <f32>1 / <f32>(numBefore + 1);
  let i = 0;
  for (; i + 4 <= length; i += 4) {
    const at = (<usize>i) << 2;
    const old = v128.load(mean + at);
    v128.store(mean + at, fma(f32x4.sub(v128.load(x + at), old), f32x4.splat(share), old));
  }
  for (; i < length; i++) setFloat(mean, i, floatAt(mean, i) + (floatAt(x, i) - floatAt(mean, i)) * share);
}

export { summaryBytes as blockMeanAppendLocalBytes } from '../attention/summary-parts';
