/** Running means of the keys and values of each part of a block. */
import { updateMean } from '../attention/microkernels.generated';
import {
  endRow,
  firstRow,
  keyOfPart,
  nextPart,
  openParts,
  summary,
  summaryBytes,
  valueOfPart,
} from '../attention/summary-parts';
import * as op from '../operands/block-mean-append.generated';
import { F32 } from '../quant/dequantize';
import { takeUnits } from '../runtime/threads';

/** Work items: KV heads. */
export function blockMeanAppend(): void {
  const keyBytes = (<usize>op.keys.headDim) << 2;
  const valueBytes = (<usize>op.values.valueDim) << 2;
  for (let head = takeUnits(1); head < op.keys.numKvHeads; head = takeUnits(1)) {
    openParts(head);
    while (nextPart()) {
      const keyMean = op.keyMeans.address + summary * keyBytes;
      const valueMean = op.valueMeans.address + summary * valueBytes;
      // rows of f32 lie side by side
      const keysAtOnce = op.keys.dtype === F32 ? endRow - firstRow : 1;
      for (let row = firstRow; row < endRow; row += keysAtOnce) {
        updateMean(keyMean, keyOfPart(row), keyBytes, row, row + keysAtOnce);
      }
      const valuesAtOnce = op.values.dtype === F32 ? endRow - firstRow : 1;
      for (let row = firstRow; row < endRow; row += valuesAtOnce) {
        updateMean(valueMean, valueOfPart(row), valueBytes, row, row + valuesAtOnce);
      }
    }
  }
}

export function blockMeanAppendLocalBytes(): u64 {
  return summaryBytes();
}
