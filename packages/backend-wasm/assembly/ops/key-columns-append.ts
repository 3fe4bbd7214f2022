/** Stores keys in a second cache that is transposed within blocks. */
import { columns, keys, slots } from '../operands/key-columns-append.generated';
import { bytesOf, dequantize } from '../quant/dequantize';
import { quantizeKv } from '../quant/quantize-kv';
import { floatAt, intAt, setFloat } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';

/** Work items: tokens. */
export function keyColumnsAppend(): void {
  for (let t = nextItems(1); t < slots.numTokens; t = nextItems(1)) {
    const slot = intAt(slots.address, t);
    for (let head = 0; slot >= 0 && head < keys.numKvHeads; head++) appendKey(slot, head);
  }
}

function appendKey(slot: i32, head: i32): void {
  const headDim = keys.headDim;
  const blockSize = <usize>keys.blockSize;
  const key = localScratch();
  const first = <usize>((slot / keys.blockSize) * keys.numKvHeads + head);
  const offset = <usize>(slot % keys.blockSize);
  dequantize(keys.dtype, keys.address + (first * blockSize + offset) * bytesOf(keys.dtype, headDim), key, headDim);
  for (let i = 0; i < headDim; i++) {
    const column = (first * <usize>headDim + <usize>i) * blockSize + offset;
    setFloat(key, i, floatAt(key, i) + 0); // -0 becomes 0
    quantizeKv(columns.dtype, key + ((<usize>i) << 2), columns.address + column * bytesOf(columns.dtype, 1), 1);
  }
}

export function keyColumnsAppendLocalBytes(): u64 {
  return (<u64>keys.headDim) << 2;
}
