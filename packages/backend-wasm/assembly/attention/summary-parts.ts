/** Parts of cache blocks that a step appends to, for ops that keep a summary of each part. */
import { counts, keys, slots, values } from '../operands/summary-inputs.generated';
import { bytesOf } from '../quant/dequantize';
import { intAt, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { toF32 } from './kv-cache-view';

/** Row of the summary in tensors `[numBlocks, numParts, numKvHeads, ...]`. */
export let summary: usize = 0;
/** Rows `[firstRow, endRow)` of the part are to be added; from row 0 on when the summary is out of date. */
export let firstRow: i32 = 0;
export let endRow: i32 = 0;

let head: i32 = 0;
let token: i32 = 0;
/** Row of the part's first slot in the cache. */
let cacheRow: usize = 0;

/** Starts iterating over the parts of a KV head. */
export function openParts(kvHead: i32): void {
  head = kvHead;
  token = 0;
}

/** Advances to the next part and updates its count; false after the last one. */
export function nextPart(): bool {
  const numTokens = slots.numTokens;
  while (token < numTokens && intAt(slots.address, token) < 0) token += 1;
  if (token >= numTokens) return false;
  const slot = intAt(slots.address, token);
  const partSize = keys.blockSize / counts.numParts;
  const block = slot / keys.blockSize;
  const inside = slot - block * keys.blockSize;
  const part = inside / partSize;
  const offset = inside - part * partSize;
  summary = <usize>((block * counts.numParts + part) * keys.numKvHeads + head);
  cacheRow = <usize>((block * keys.numKvHeads + head) * keys.blockSize + part * partSize);
  // include the following tokens in the same part
  endRow = offset;
  do {
    endRow += 1;
    token += 1;
  } while (endRow < partSize && token < numTokens && intAt(slots.address, token) === slot + endRow - offset);
  firstRow = intAt(counts.address, <i32>summary) === offset ? offset : 0;
  setInt(counts.address, <i32>summary, endRow);
  return true;
}

/** Address of the key of a row of the part as f32. */
export function keyOfPart(row: i32): usize {
  const from = keys.address + (cacheRow + <usize>row) * bytesOf(keys.dtype, keys.headDim);
  return toF32(keys.dtype, from, localScratch(), keys.headDim);
}
export function valueOfPart(row: i32): usize {
  const from = values.address + (cacheRow + <usize>row) * bytesOf(values.dtype, values.valueDim);
  return toF32(values.dtype, from, localScratch() + ((<usize>keys.headDim) << 2) + 16, values.valueDim);
}

/** Scratch for a key and a value as f32, padded to whole vectors. */
export function summaryBytes(): u64 {
  return ((<u64>(keys.headDim + values.valueDim)) << 2) + 64;
}
