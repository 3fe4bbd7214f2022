/** Units: tokens. */
import { k, keys, slots, v, values } from '../operands/kv-append.generated';
import { bytesOf } from '../quant/dequantize';
import { encode } from '../quant/quantize-kv';
import { takeUnits } from '../runtime/threads';

export function kvAppend(): void {
  const list = slots.address;
  const numTokens = slots.numTokens;
  for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
    const slot = load<i32>(list + ((<usize>t) << 2));
    if (slot < 0) continue;
    append(k.address, keys.address, keys.dtype, keys.headDim, t, slot);
    append(v.address, values.address, values.dtype, values.valueDim, t, slot);
  }
}

/** Stores the rows of a token, one for each head, in a slot of a cache. */
function append(source: usize, cache: usize, dtype: i32, length: i32, token: i32, slot: i32): void {
  const numHeads = keys.numKvHeads;
  const blockSize = keys.blockSize;
  const rowBytes = bytesOf(dtype, length);
  const block = slot / blockSize;
  for (let head = 0; head < numHeads; head++) {
    const row = <usize>(block * numHeads + head) * <usize>blockSize + <usize>(slot % blockSize);
    const from = source + ((<usize>(token * numHeads + head) * <usize>length) << 2);
    encode(dtype, from, cache + row * rowBytes, length);
  }
}
