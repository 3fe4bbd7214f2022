/**
 * The cache of an attention record, for kernels that look at single slots: tensors 0 q, 1 positions, 2 sequences, 3 keys,
 * 4 values, 5 slotPositions, 6 blockTable, 7 contextLengths; attributes 0 scale, 1 causal, 2 window, 3 softCap.
 */
import { F16, F32, bytesOf, decode } from '../quant/dequantize';
import { decodeHalves } from '../quant/dequantize-f16';
import { addressOf, attributeI, dim, dtypeOf } from '../runtime/record';

let blockSize: i32 = 1;
/** Base-2 logarithm of the block size, or -1. */
let blockShift: i32 = 0;
let numKvHeads: i32 = 1;
let headDim: i32 = 0;
let valueDim: i32 = 0;
let keyType: i32 = 0;
let valueType: i32 = 0;
let keyBytes: usize = 0;
let valueBytes: usize = 0;
let keys: usize = 0;
let values: usize = 0;
let slotPositions: usize = 0;
let table: usize = 0;
let maxBlocks: i32 = 0;

/** Reads the sizes of the record that the thread works on. */
export function enterCache(): void {
  headDim = dim(3, 3);
  valueDim = dim(4, 3);
  numKvHeads = dim(3, 1);
  blockSize = dim(3, 2);
  blockShift = popcnt(blockSize) === 1 ? ctz(blockSize) : -1;
  keyType = dtypeOf(3);
  valueType = dtypeOf(4);
  keyBytes = bytesOf(keyType, headDim);
  valueBytes = bytesOf(valueType, valueDim);
  keys = addressOf(3);
  values = addressOf(4);
  slotPositions = addressOf(5);
  table = addressOf(6);
  maxBlocks = dim(6, 1);
}

export function positionOfToken(token: i32): i32 {
  return load<i32>(addressOf(1) + ((<usize>token) << 2));
}
export function sequenceOfToken(token: i32): i32 {
  return load<i32>(addressOf(2) + ((<usize>token) << 2));
}
export function contextOfSequence(sequence: i32): i32 {
  return load<i32>(addressOf(7) + ((<usize>sequence) << 2));
}

/** Tokens from `begin` that belong to its sequence, before `limit`. */
export function runEnd(begin: i32, limit: i32): i32 {
  const sequence = sequenceOfToken(begin);
  let end = begin + 1;
  while (end < limit && sequenceOfToken(end) === sequence) end++;
  return end;
}

/** Most distance of a visible key before the query, and (negative) after it; `window` of the model. */
export function modelReach(): i32 {
  const window = attributeI(2);
  return window === 0 ? i32.MAX_VALUE : attributeI(1) !== 0 ? window - 1 : window >> 1;
}

export function cacheBlock(sequence: i32, slot: i32): i32 {
  const block = blockShift >= 0 ? slot >> blockShift : slot / blockSize;
  return load<i32>(table + ((<usize>(sequence * maxBlocks + block)) << 2));
}

/** Index of a logical slot in the whole cache. */
export function slotIndex(sequence: i32, slot: i32): i32 {
  return cacheBlock(sequence, slot) * blockSize + (blockShift >= 0 ? slot & (blockSize - 1) : slot % blockSize);
}

/** Position that a slot of the cache holds, negative when it is empty. */
export function positionAt(index: i32): i32 {
  return load<i32>(slotPositions + ((<usize>index) << 2));
}
export function positionsAt(index: i32): usize {
  return slotPositions + ((<usize>index) << 2);
}

function rowAt(index: i32, kvHead: i32): usize {
  const block = blockShift >= 0 ? index >> blockShift : index / blockSize;
  return <usize>(block * numKvHeads + kvHead) * <usize>blockSize + <usize>(index - block * blockSize);
}

/** Whether rows of keys and values are f32 in the cache. */
export function isPlain(): bool {
  return keyType === F32 && valueType === F32;
}
/** Where the key of a slot lies in the cache, as it is stored. */
export function keyRowAt(index: i32, kvHead: i32): usize {
  return keys + rowAt(index, kvHead) * keyBytes;
}
export function valueRowAt(index: i32, kvHead: i32): usize {
  return values + rowAt(index, kvHead) * valueBytes;
}

/** Where the key of a slot lies as f32: in the cache, or decoded to `to`. */
export function keyOf(index: i32, kvHead: i32, to: usize): usize {
  return rowsFrom(keyType, keys + rowAt(index, kvHead) * keyBytes, to, headDim);
}
export function valueOf(index: i32, kvHead: i32, to: usize): usize {
  return rowsFrom(valueType, values + rowAt(index, kvHead) * valueBytes, to, valueDim);
}
/** The same for `count` slots of one block. */
export function keysOf(index: i32, kvHead: i32, count: i32, to: usize): usize {
  return rowsFrom(keyType, keys + rowAt(index, kvHead) * keyBytes, to, count * headDim);
}
export function valuesOf(index: i32, kvHead: i32, count: i32, to: usize): usize {
  return rowsFrom(valueType, values + rowAt(index, kvHead) * valueBytes, to, count * valueDim);
}

/** Slots of one block from a logical slot on, at most `limit`. */
export function slotsInBlock(slot: i32, limit: i32): i32 {
  return min<i32>(limit, blockSize - (slot % blockSize));
}

function rowsFrom(dtype: i32, from: usize, to: usize, count: i32): usize {
  if (dtype === F32) return from;
  if (dtype === F16) decodeHalves(from, to, count);
  else decode(dtype, from, to, count);
  return to;
}

/** Whether four slots side by side are seen, at distances `[lead, reach]`. */
function areSeen(at: usize, position: i32, lead: i32, reach: i32): bool {
  const keys = v128.load(at);
  const distance = i32x4.sub(i32x4.splat(position), keys);
  const hidden = v128.or(
    i32x4.lt_s(keys, i32x4.splat(0)),
    v128.or(i32x4.lt_s(distance, i32x4.splat(lead)), i32x4.gt_s(distance, i32x4.splat(reach))),
  );
  return !v128.any_true(hidden);
}

/** How many of `count` slots side by side a query at a position sees. */
export function countVisible(index: i32, count: i32, position: i32): i32 {
  const reach = modelReach();
  const lead = attributeI(1) !== 0 ? 0 : -reach;
  let seen = 0;
  let i = 0;
  for (; i + 4 <= count; i += 4) {
    if (areSeen(positionsAt(index + i), position, lead, reach)) seen += 4;
    else for (let j = i; j < i + 4; j++) if (isVisibleAt(index + j, position, lead, reach)) seen += 1;
  }
  for (; i < count; i++) if (isVisibleAt(index + i, position, lead, reach)) seen += 1;
  return seen;
}

function isVisibleAt(index: i32, position: i32, lead: i32, reach: i32): bool {
  const key = positionAt(index);
  const distance = position - key;
  return key >= 0 && distance <= reach && distance >= lead;
}

/** Slots of the cache that a query at a position sees go to `list`, their positions and logical slots to the others unless 0. */
export function listVisible(position: i32, sequence: i32, list: usize, positions: usize, logical: usize): i32 {
  const context = contextOfSequence(sequence);
  const reach = modelReach();
  const lead = attributeI(1) !== 0 ? 0 : -reach;
  let count = 0;
  for (let slot = 0; slot < context;) {
    let index = slotIndex(sequence, slot);
    const end = index + slotsInBlock(slot, context - slot);
    const shift = slot - index;
    slot += end - index;
    for (; index + 4 <= end && areSeen(positionsAt(index), position, lead, reach); index += 4, count += 4) {
      const at = (<usize>count) << 2;
      v128.store(list + at, i32x4.add(i32x4.splat(index), i32x4(0, 1, 2, 3)));
      if (positions !== 0) v128.store(positions + at, v128.load(positionsAt(index)));
      if (logical !== 0) v128.store(logical + at, i32x4.add(i32x4.splat(index + shift), i32x4(0, 1, 2, 3)));
    }
    for (; index < end; index++) {
      if (!isVisibleAt(index, position, lead, reach)) continue;
      const at = (<usize>count) << 2;
      store<i32>(list + at, index);
      if (positions !== 0) store<i32>(positions + at, positionAt(index));
      if (logical !== 0) store<i32>(logical + at, index + shift);
      count += 1;
    }
  }
  return count;
}
