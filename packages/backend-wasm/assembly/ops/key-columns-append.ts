/** A copy of the keys, transposed within blocks. */
import * as op from '../operands/key-columns-append.generated';
import { bytesOf, dequantize } from '../quant/dequantize';
import { encode } from '../quant/quantize-kv';
import { localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';

/** Work items: tokens. */
export function keyColumnsAppend(): void {
  const numHeads = op.keys.numKvHeads;
  const blockSize = op.keys.blockSize;
  const headDim = op.keys.headDim;
  const keyType = op.keys.dtype;
  const columnType = op.columns.dtype;
  const key = localScratch();
  for (let t = takeUnits(1); t < op.slots.numTokens; t = takeUnits(1)) {
    const slot = load<i32>(op.slots.address + ((<usize>t) << 2));
    if (slot < 0) continue;
    const block = slot / blockSize;
    const offset = slot - block * blockSize;
    for (let head = 0; head < numHeads; head++) {
      const first = <usize>(block * numHeads + head);
      const row = first * <usize>blockSize + <usize>offset;
      dequantize(keyType, op.keys.address + row * bytesOf(keyType, headDim), key, headDim);
      for (let i = 0; i < headDim; i++) {
        const column = (first * <usize>headDim + <usize>i) * <usize>blockSize + <usize>offset;
        const at = key + ((<usize>i) << 2);
        store<f32>(at, load<f32>(at) + 0); // -0 becomes 0
        encode(columnType, at, op.columns.address + column * bytesOf(columnType, 1), 1);
      }
    }
  }
}

export function keyColumnsAppendLocalBytes(): u64 {
  return (<u64>op.keys.headDim) << 2;
}
