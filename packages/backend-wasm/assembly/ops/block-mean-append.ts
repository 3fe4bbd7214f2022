/** Running means of the keys and values of each part of a block. */
import { updateMean } from '../attention/microkernels.generated';
import * as parts from '../attention/summary-parts';
import * as op from '../operands/block-mean-append.generated';
import { F32 } from '../quant/dequantize';
import { nextItems } from '../runtime/threads';

/** Work items: KV heads. */
export function blockMeanAppend(): void {
  const keyBytes = (<usize>op.keys.headDim) << 2;
  const valueBytes = (<usize>op.values.valueDim) << 2;
  // f32 rows are contiguous
  const isPlain = op.keys.dtype === F32 && op.values.dtype === F32;
  for (let head = nextItems(1); head < op.keys.numKvHeads; head = nextItems(1)) {
    parts.openParts(head);
    while (parts.nextPart()) {
      const keyMean = op.keyMeans.address + parts.summary * keyBytes;
      const valueMean = op.valueMeans.address + parts.summary * valueBytes;
      const atOnce = isPlain ? parts.endRow - parts.firstRow : 1;
      for (let row = parts.firstRow; row < parts.endRow; row += atOnce) {
        updateMean(keyMean, parts.keyOfPart(row), keyBytes, row, row + atOnce);
        updateMean(valueMean, parts.valueOfPart(row), valueBytes, row, row + atOnce);
      }
    }
  }
}

export { summaryBytes as blockMeanAppendLocalBytes } from '../attention/summary-parts';
