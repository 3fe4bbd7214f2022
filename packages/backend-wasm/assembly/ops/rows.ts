/** Ops that move rows: gather-rows, scatter-rows, position-append, kv-append. */
import { bytesOf } from '../quant/dequantize';
import { encode } from '../quant/quantize-kv';
import { addressOf, dim, dtypeOf } from '../runtime/record';
import { takeUnits } from '../runtime/threads';

/** Tensors: x, rows, y. Units: rows. */
export function gatherRows(): void {
  const rows = addressOf(1);
  const numRows = dim(1, 0);
  const rowBytes = (<usize>dim(0, 1)) << 2;
  for (let r = takeUnits(1); r < numRows; r = takeUnits(1)) {
    const from = addressOf(0) + <usize>load<u32>(rows + ((<usize>r) << 2)) * rowBytes;
    memory.copy(addressOf(2) + <usize>r * rowBytes, from, rowBytes);
  }
}

/** Tensors: x, rows, y. Units: rows. */
export function scatterRows(): void {
  const rows = addressOf(1);
  const numRows = dim(1, 0);
  const rowBytes = (<usize>dim(0, 1)) << 2;
  for (let t = takeUnits(1); t < numRows; t = takeUnits(1)) {
    const row = load<i32>(rows + ((<usize>t) << 2));
    if (row >= 0) memory.copy(addressOf(2) + <usize>row * rowBytes, addressOf(0) + <usize>t * rowBytes, rowBytes);
  }
}

/** Tensors: slots, positions, slotPositions. */
export function positionAppend(): void {
  const slots = addressOf(0);
  const positions = addressOf(1);
  const target = addressOf(2);
  const numTokens = dim(0, 0);
  for (let t: usize = 0; t < <usize>numTokens; t++) {
    const slot = load<i32>(slots + (t << 2));
    if (slot >= 0) store<i32>(target + ((<usize>slot) << 2), load<i32>(positions + (t << 2)));
  }
}

/** Tensors: k, v, slots, keys, values. Units: tokens. */
export function kvAppend(): void {
  const slots = addressOf(2);
  const numTokens = dim(2, 0);
  for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
    const slot = load<i32>(slots + ((<usize>t) << 2));
    if (slot < 0) continue;
    append(0, 3, t, slot);
    append(1, 4, t, slot);
  }
}

function append(source: i32, cache: i32, token: i32, slot: i32): void {
  const numHeads = dim(cache, 1);
  const blockSize = dim(cache, 2);
  const length = dim(cache, 3);
  const dtype = dtypeOf(cache);
  const rowBytes = bytesOf(dtype, length);
  const block = slot / blockSize;
  for (let head = 0; head < numHeads; head++) {
    const row = <usize>(block * numHeads + head) * <usize>blockSize + <usize>(slot % blockSize);
    const from = addressOf(source) + ((<usize>(token * numHeads + head) * <usize>length) << 2);
    encode(dtype, from, addressOf(cache) + row * rowBytes, length);
  }
}
