/** Online softmax of a single query over scattered keys; hidden keys are never computed. */
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { minusInfinity } from '../simd/constants.generated';
import { maxLane, weight4 } from '../simd/vector';
import * as cache from './kv-cache-view';
import { axpyIndirect, dot4 } from './microkernels.generated';
import { finishState } from './partial-states';

/** Maximum number of rows in a list. */
export const LIST_ROWS: i32 = 160;
/** A list has four arrays, each padded to whole vectors: addresses of keys, addresses of values, biases and weights. */
export const LIST_VALUES: usize = (<usize>LIST_ROWS + 4) * 4;
const BIASES: usize = 2 * LIST_VALUES;
const WEIGHTS: usize = 3 * LIST_VALUES;
export const LIST_BYTES: usize = 4 * LIST_VALUES;
/** State: maximum, sum, then the weighted sum of the values. */
export const ROW_STATE: usize = 16;
/** Number of slots in one softmax step. */
export const ROW_SLOTS: i32 = 64;

let keyRows: usize = 0;
let valueRows: usize = 0;
let slotList: usize = 0;
/** Address of the softmax state of the query. */
export let rowState: usize = 0;
let numPushed: i32 = 0;

/** Lays out scratch for `pushSlot`, which also needs room for ROW_SLOTS keys and values; returns its end. */
export function layRow(scratch: usize, keyScratch: usize, valueScratch: usize): usize {
  keyRows = keyScratch;
  valueRows = valueScratch;
  slotList = scratch;
  rowState = slotList + LIST_BYTES;
  return rowState + ROW_STATE + cache.valueStride + 16;
}

/** Resets the state, which begins with the learned sink of the head if there are sinks. */
export function openRow(head: i32 = 0): void {
  clearRow(rowState);
  if (cache.sinkLogits !== 0) {
    setFloat(rowState, 0, floatAt(cache.sinkLogits, head));
    setFloat(rowState, 1, 1);
  }
  numPushed = 0;
}
/** Queues a slot of the cache; ROW_SLOTS of them make a softmax step, and `flushRow` processes the remaining ones. */
export function pushSlot(query: usize, index: i32, kvHead: i32): void {
  const key = cache.keysOf(index, kvHead, 1, keyRows + <usize>numPushed * cache.keyStride);
  const value = cache.valuesOf(index, kvHead, 1, valueRows + <usize>numPushed * cache.valueStride);
  setRow(slotList, numPushed, key, value, 0);
  numPushed += 1;
  if (numPushed === ROW_SLOTS) flushRow(query);
}
export function flushRow(query: usize): void {
  pushRows(query, slotList, numPushed, rowState);
  numPushed = 0;
}
/** Writes the normalized output of the query. */
export function closeRow(y: usize): void {
  finishState(floatAt(rowState, 1), rowState + ROW_STATE, y, cache.valueDim);
}

export function setRow(list: usize, index: i32, key: usize, value: usize, bias: f32): void {
  setInt(list, index, <i32>key);
  setInt(list + LIST_VALUES, index, <i32>value);
  setFloat(list + BIASES, index, bias);
}

/** The weight of a row in the last `pushRows`. */
export function weightOfRow(list: usize, index: i32): f32 {
  return floatAt(list + WEIGHTS, index);
}

export function clearRow(state: usize): void {
  setFloat(state, 0, -Infinity);
  setFloat(state, 1, 0);
  memory.fill(state + ROW_STATE, 0, cache.valueStride + 16);
}

/** Attends to the `count` rows of a list. */
export function pushRows(query: usize, list: usize, count: i32, state: usize): void {
  if (count <= 0) return;
  const weights = list + WEIGHTS;
  const bytes = (<usize>count) << 2;
  // the last vector is padded with copies of the last row, which are masked
  v128.store(list + BIASES + bytes, minusInfinity());
  const old = floatAt(state, 0);
  const last = count - 1;
  let tops = f32x4.splat(old);
  let isNaN = i32x4.splat(0);
  for (let i = 0; i < count; i += 4) {
    const at = (<usize>i) << 2;
    const second = <usize>intAt(list, min<i32>(i + 1, last));
    const third = <usize>intAt(list, min<i32>(i + 2, last));
    const products = logits4(query, <usize>intAt(list, i), second, third, <usize>intAt(list, min<i32>(i + 3, last)));
    const logits = f32x4.add(products, v128.load(list + BIASES + at));
    tops = f32x4.pmax(tops, logits);
    isNaN = v128.or(isNaN, f32x4.ne(logits, logits));
    v128.store(weights + at, logits);
  }
  const top = maxLane<f32>(tops);
  if (top === -Infinity) {
    // all keys are hidden, unless a logit is NaN, which makes the sum NaN
    if (v128.any_true(isNaN)) setFloat(state, 1, NaN);
    return;
  }
  const factor: f32 = old === -Infinity ? 0 : f32x4.extract_lane(weight4(f32x4.splat(old - top)), 0);
  let sum = floatAt(state, 1) * factor;
  for (let at: usize = 0; at < bytes; at += 16) {
    const v = weight4(f32x4.sub(v128.load(weights + at), f32x4.splat(top)));
    v128.store(weights + at, v);
    sum =
      sum + f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3);
  }
  setFloat(state, 0, top);
  setFloat(state, 1, sum);
  const out = state + ROW_STATE;
  const size = cache.valueStride;
  axpyIndirect(out, out, factor, list + LIST_VALUES, weights, 4, count, size & ~63, size);
}

/** Logits of one query with four keys. */
export function logits4(query: usize, k0: usize, k1: usize, k2: usize, k3: usize): v128 {
  return cache.capLogits(f32x4.mul(dot4(query, k0, k1, k2, k3, cache.keyStride), f32x4.splat(cache.scale)));
}
