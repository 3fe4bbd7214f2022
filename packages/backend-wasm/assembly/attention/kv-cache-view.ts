/** Queries and paged KV cache of an attention record. */
import * as inputs from '../operands/attention-inputs.generated';
import { F16, F32, bytesOf, dequantize } from '../quant/dequantize';
import { dequantizeHalves } from '../quant/dequantize-f16';
import { floatAt, intAt } from '../runtime/arrays';
import { MAX_SPLITS, MIN_SPLIT, SPLIT_ITEMS } from '../runtime/layout.generated';
import { maxLane, minU4, sumI4, tanh4 } from '../simd/vector';

export let numTokens: i32 = 0;
export let numHeads: i32 = 1;
export let numKvHeads: i32 = 1;
/** Query heads of a KV head. */
export let groupSize: i32 = 1;
export let headDim: i32 = 0;
export let valueDim: i32 = 0;
/** Bytes of a key and of a value in f32. */
export let keyStride: usize = 0;
export let valueStride: usize = 0;
export let blockSize: i32 = 1;
/** Number of slots that the block table of a sequence can hold. */
export let maxSlots: i32 = 0;
export let scale: f32 = 1;
export let softCap: f32 = 0;
/** A query sees keys at distances of `minDistance` to `maxDistance`; keys after the query have negative distances. */
export let minDistance: i32 = 0;
export let maxDistance: i32 = 0;
/** Whether a query sees only its own chunk of `maxDistance + 1` positions. */
export let isChunked: bool = false;
/** Address of the learned sinks; 0 without them. */
export let sinkLogits: usize = 0;
/** Address of the biases by relative position `[numBiases, numHeads]`; 0 without them. */
export let positionBias: usize = 0;
let biasReach: i32 = 0;

/** Base-2 logarithm of the block size, or -1. */
let blockShift: i32 = 0;
/** Dtypes of keys and values, and the bytes of one stored row. */
export let keyType: i32 = 0;
export let valueType: i32 = 0;
export let keyBytes: usize = 0;
export let valueBytes: usize = 0;
let keys: usize = 0;
let values: usize = 0;
let slotPositions: usize = 0;
let table: usize = 0;
let maxBlocks: i32 = 0;
/** Range of positions found by the last `scanPositions`; the highest is negative when all slots were empty. */
export let lowestPosition: i32 = 0;
export let highestPosition: i32 = 0;
export let hasEmptySlot: bool = false;

/** Reads the operands of the current record. */
export function enterCache(): void {
  sinkLogits = 0;
  positionBias = 0;
  numTokens = inputs.q.numTokens;
  numHeads = inputs.q.numHeads;
  numKvHeads = inputs.keys.numKvHeads;
  groupSize = numHeads / numKvHeads;
  headDim = inputs.keys.headDim;
  valueDim = inputs.values.valueDim;
  keyStride = (<usize>headDim) << 2;
  valueStride = (<usize>valueDim) << 2;
  blockSize = inputs.keys.blockSize;
  blockShift = popcnt(blockSize) === 1 ? ctz(blockSize) : -1;
  keyType = inputs.keys.dtype;
  valueType = inputs.values.dtype;
  keyBytes = bytesOf(keyType, headDim);
  valueBytes = bytesOf(valueType, valueDim);
  keys = inputs.keys.address;
  values = inputs.values.address;
  slotPositions = inputs.slotPositions.address;
  table = inputs.blockTable.address;
  maxBlocks = inputs.blockTable.maxBlocks;
  maxSlots = maxBlocks * blockSize;
  scale = inputs.attributes.scale;
  softCap = inputs.attributes.softCap;
  const isCausal = inputs.attributes.causal;
  const window = inputs.attributes.window;
  maxDistance = window === 0 ? i32.MAX_VALUE : isCausal ? window - 1 : window >> 1;
  minDistance = isCausal ? 0 : -maxDistance;
  isChunked = inputs.attributes.chunked;
}

/** Sets the learned sinks of the record, after `enterCache`. */
export function enterSinks(address: usize): void {
  sinkLogits = address;
}

/** Sets the biases by relative position of the record, after `enterCache`; an address of 0 for none. */
export function enterBias(address: usize, numBiases: i32): void {
  positionBias = address;
  biasReach = numBiases >> 1;
}

/** The bias of a head for a key that is `ahead` positions after the query. */
export function biasOf(head: i32, ahead: i32): f32 {
  const row = biasReach + min<i32>(biasReach, max<i32>(-biasReach, ahead));
  return floatAt(positionBias, row * numHeads + head);
}

export function positionOfToken(token: i32): i32 {
  return intAt(inputs.positions.address, token);
}
export function sequenceOfToken(token: i32): i32 {
  return intAt(inputs.sequences.address, token);
}
export function contextOfSequence(sequence: i32): i32 {
  return intAt(inputs.contextLengths.address, sequence);
}
/** Address of the query in row `token * numHeads + head`, which is also the row of its output. */
export function queryAt(row: i32): usize {
  return inputs.q.address + <usize>row * keyStride;
}

/** End of the run of tokens from `begin` on that share its sequence and, if asked, its splits; at most `limit`. */
export function runEnd(begin: i32, limit: i32, sharesSplits: bool = false): i32 {
  const sequence = sequenceOfToken(begin);
  const slots = sharesSplits ? cutContext(begin) : 0;
  let end = begin + 1;
  while (end < limit && sequenceOfToken(end) === sequence && (!sharesSplits || cutContext(end) === slots)) end++;
  return end;
}

/** Set by `cutContext`: slots of the context of a token, and its splits. */
export let ownContext: i32 = 0;
export let ownSplits: i32 = 1;

/**
 * Cuts the context that ends with a token, whatever follows it in the step: its bits are those of a step of its own.
 * Returns the slots of a split, whole chunks of 64.
 */
export function cutContext(token: i32): i32 {
  const numLater = minDistance === 0 ? runEnd(token, numTokens) - token - 1 : 0; // which only causal attention hides
  ownContext = contextOfSequence(sequenceOfToken(token)) - numLater;
  ownSplits = max<i32>(1, min<i32>(min<i32>(MAX_SPLITS, SPLIT_ITEMS / numKvHeads), ownContext / MIN_SPLIT));
  return ((ownContext + ownSplits - 1) / ownSplits + 63) & -64;
}

/** Applies the model's soft cap to four scaled logits. */
export function capLogits(logits: v128): v128 {
  if (softCap === 0) return logits;
  const cap = f32x4.splat(softCap);
  return f32x4.mul(cap, tanh4(f32x4.div(logits, cap)));
}

export function cacheBlock(sequence: i32, slot: i32): i32 {
  const block = blockShift >= 0 ? slot >> blockShift : slot / blockSize;
  return intAt(table, sequence * maxBlocks + block);
}

/** Index of a logical slot in the whole cache. */
export function slotIndex(sequence: i32, slot: i32): i32 {
  return cacheBlock(sequence, slot) * blockSize + (blockShift >= 0 ? slot & (blockSize - 1) : slot % blockSize);
}

/** Cache index of a position in a sequence whose logical slot `j` holds position `j`; -1 when that slot is empty. */
export function indexOfPosition(sequence: i32, position: i32): i32 {
  if (position < 0 || position >= contextOfSequence(sequence)) return -1;
  const index = slotIndex(sequence, position);
  return positionAt(index) === position ? index : -1;
}

/** Number of slots from a logical slot to the end of its block, at most `limit`. */
export function slotsInBlock(slot: i32, limit: i32): i32 {
  return min<i32>(limit, blockSize - (slot % blockSize));
}

/** Position held by a slot of the cache; negative when the slot is empty. */
export function positionAt(index: i32): i32 {
  return intAt(slotPositions, index);
}
export function positionsAt(index: i32): usize {
  return slotPositions + ((<usize>index) << 2);
}

/** Finds the range of `count` positions. */
export function scanPositions(at: usize, count: i32): void {
  // as unsigned numbers, the negative positions of empty slots are the largest
  let low = i32x4.splat(-1);
  let high = low;
  let top = i32x4.splat(0);
  let i = 0;
  for (; i + 4 <= count; i += 4, at += 16) {
    const four = v128.load(at);
    low = i32x4.min_u(low, four);
    high = i32x4.max_s(high, four);
    top = i32x4.max_u(top, four);
  }
  for (; i < count; i++, at += 4) {
    const one = v128.load32_splat(at);
    low = i32x4.min_u(low, one);
    high = i32x4.max_s(high, one);
    top = i32x4.max_u(top, one);
  }
  lowestPosition = <i32>minU4(low);
  highestPosition = maxLane<i32>(high);
  hasEmptySlot = v128.any_true(i32x4.lt_s(top, i32x4.splat(0)));
}

/** The largest distance of a key that a query sees. */
export function reachOf(query: i32): i32 {
  return isChunked ? query % (maxDistance + 1) : maxDistance;
}

/** Whether a query sees a key, as the record says. */
export function sees(query: i32, key: i32): bool {
  return isVisible(query, key, minDistance, reachOf(query));
}

/** Whether a query sees a key at a distance of `near` to `far`. */
export function isVisible(query: i32, key: i32, near: i32, far: i32): bool {
  const distance = query - key;
  return key >= 0 && distance >= near && distance <= far;
}

/** Lane mask of the keys, out of four, that a query does not see. */
export function hiddenLanes(query: i32, keys: v128, near: i32, far: i32): v128 {
  const distance = i32x4.sub(i32x4.splat(query), keys);
  const isOutside = v128.or(i32x4.lt_s(distance, i32x4.splat(near)), i32x4.gt_s(distance, i32x4.splat(far)));
  return v128.or(i32x4.lt_s(keys, i32x4.splat(0)), isOutside);
}

/** Counts the keys, out of `count`, that a query sees at distances of `near` to `far`. */
export function countVisible(query: i32, at: usize, count: i32, near: i32, far: i32): i32 {
  let hidden = i32x4.splat(0); // minus the number of hidden keys
  let i = 0;
  for (; i + 4 <= count; i += 4, at += 16) hidden = i32x4.add(hidden, hiddenLanes(query, v128.load(at), near, far));
  let seen = i + sumI4(hidden);
  for (; i < count; i++, at += 4) if (isVisible(query, load<i32>(at), near, far)) seen += 1;
  return seen;
}

/** Whether `count` consecutive slots hold consecutive positions that start at `position`. */
export function holdsPositions(index: i32, count: i32, position: i32): bool {
  for (let i = 0; i < count; i++) if (positionAt(index + i) !== position + i) return false;
  return true;
}

function rowAt(index: i32, kvHead: i32): usize {
  const block = blockShift >= 0 ? index >> blockShift : index / blockSize;
  return <usize>(block * numKvHeads + kvHead) * <usize>blockSize + <usize>(index - block * blockSize);
}

/** Whether the cache stores keys and values as f32. */
export function isPlain(): bool {
  return keyType === F32 && valueType === F32;
}
/** Address of the key of a slot in its stored dtype. */
export function keyRowAt(index: i32, kvHead: i32): usize {
  return keys + rowAt(index, kvHead) * keyBytes;
}
export function valueRowAt(index: i32, kvHead: i32): usize {
  return values + rowAt(index, kvHead) * valueBytes;
}

/** Address of the keys of `count` slots of one block as f32: in the cache, or dequantized to `to`. */
export function keysOf(index: i32, kvHead: i32, count: i32, to: usize): usize {
  return toF32(keyType, keyRowAt(index, kvHead), to, count * headDim);
}
export function valuesOf(index: i32, kvHead: i32, count: i32, to: usize): usize {
  return toF32(valueType, valueRowAt(index, kvHead), to, count * valueDim);
}
/** Copies a key to `to` as f32. */
export function copyKey(index: i32, kvHead: i32, to: usize): void {
  const from = keysOf(index, kvHead, 1, to);
  if (from !== to) memory.copy(to, from, keyStride);
}
export function copyValue(index: i32, kvHead: i32, to: usize): void {
  const from = valuesOf(index, kvHead, 1, to);
  if (from !== to) memory.copy(to, from, valueStride);
}
/** Copies a key and a value as f32; writes zeros for a negative index. */
export function gatherRow(index: i32, kvHead: i32, key: usize, value: usize): void {
  if (index < 0) {
    memory.fill(key, 0, keyStride);
    memory.fill(value, 0, valueStride);
  } else {
    copyKey(index, kvHead, key);
    copyValue(index, kvHead, value);
  }
}

/** Address of `count` numbers as f32: `from` itself if they are f32, otherwise `to`, after dequantizing them there. */
export function toF32(dtype: i32, from: usize, to: usize, count: i32): usize {
  if (dtype === F32) return from;
  if (dtype === F16) dequantizeHalves(from, to, count);
  else dequantize(dtype, from, to, count);
  return to;
}
