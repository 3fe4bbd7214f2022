/** Stores the keys and values of tokens in their slots. Work items: tokens. */
import { k, keys, slots, v, values } from '../operands/kv-append.generated';
import { bytesOf } from '../quant/dequantize';
import { quantizeKv } from '../quant/quantize-kv';
import { intAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

export function kvAppend(): void {
  for (let t = nextItems(1); t < slots.numTokens; t = nextItems(1)) {
    const slot = intAt(slots.address, t);
    if (slot < 0) continue;
    append(k.address, keys.address, keys.dtype, keys.headDim, t, slot);
    append(v.address, values.address, values.dtype, values.valueDim, t, slot);
  }
}

/** Stores the rows of a token, one for each head, in a slot of a cache. */
function append(source: usize, cache: usize, dtype: i32, length: i32, token: i32, slot: i32): void {
  const block = slot / keys.blockSize;
  for (let head = 0; head < keys.numKvHeads; head++) {
    const row = <usize>(block * keys.numKvHeads + head) * <usize>keys.blockSize + <usize>(slot % keys.blockSize);
    const from = source + ((<usize>(token * keys.numKvHeads + head) * <usize>length) << 2);
    quantizeKv(dtype, from, cache + row * bytesOf(dtype, length), length);
  }
}
