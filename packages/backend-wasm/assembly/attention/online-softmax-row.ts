/** Online softmax of a single query over scattered keys; keys that the query does not see are never computed. */
import { weight4 } from '../simd/vector';
import { axpyListed, dot4 } from './microkernels.generated';
import * as cache from './kv-cache-view';
import { finishState } from './partial-states';

/** Entry: key, value, bias, weight. */
export const ENTRY_BYTES: usize = 16;
/** State: maximum, sum, then the weighted sum of the values. */
export const ROW_STATE: usize = 16;
/** Number of slots in one step. */
export const ROW_SLOTS: i32 = 64;

let keyRows: usize = 0;
let valueRows: usize = 0;
let slotEntries: usize = 0;
let slotState: usize = 0;
let numPushed: i32 = 0;

/** Lays out scratch for `pushSlot`, which also needs room for ROW_SLOTS keys and values; returns its end. */
export function layRow(scratch: usize, keyScratch: usize, valueScratch: usize): usize {
  keyRows = keyScratch;
  valueRows = valueScratch;
  slotEntries = scratch;
  slotState = slotEntries + <usize>ROW_SLOTS * ENTRY_BYTES;
  return slotState + ROW_STATE + cache.valueStride + 16;
}

/** Starts with an empty state. */
export function openRow(): void {
  clearRow(slotState);
  numPushed = 0;
}
/** Attends to a slot of the cache; slots are taken in batches, and `flushRow` takes the rest. */
export function pushSlot(query: usize, index: i32, kvHead: i32): void {
  const key = cache.keyOf(index, kvHead, keyRows + <usize>numPushed * cache.keyStride);
  setEntry(
    slotEntries,
    numPushed,
    key,
    cache.valueOf(index, kvHead, valueRows + <usize>numPushed * cache.valueStride),
    0,
  );
  numPushed += 1;
  if (numPushed === ROW_SLOTS) flushRow(query);
}
export function flushRow(query: usize): void {
  pushRows(query, slotEntries, numPushed, slotState);
  numPushed = 0;
}
/** The state of the query. */
export function stateOfRow(): usize {
  return slotState;
}
/** Writes the output of the query. */
export function closeRow(y: usize): void {
  finishState(load<f32>(slotState, 4), slotState + ROW_STATE, y, <i32>(cache.valueStride >> 2));
}

export function setEntry(entries: usize, index: i32, key: usize, value: usize, bias: f32): void {
  const at = entries + <usize>index * ENTRY_BYTES;
  store<u32>(at, <u32>key);
  store<u32>(at, <u32>value, 4);
  store<f32>(at, bias, 8);
}

export function clearRow(state: usize): void {
  store<f32>(state, -Infinity);
  store<f32>(state, 0, 4);
  memory.fill(state + ROW_STATE, 0, cache.valueStride + 16);
}

/** Attends to the `count` keys in `entries`. */
export function pushRows(query: usize, entries: usize, count: i32, state: usize): void {
  if (count <= 0) return;
  const old = load<f32>(state);
  let top = old;
  const last = entries + <usize>(count - 1) * ENTRY_BYTES;
  for (let at = entries; at <= last; at += 4 * ENTRY_BYTES) {
    const b = min<usize>(at + ENTRY_BYTES, last);
    const c = min<usize>(at + 2 * ENTRY_BYTES, last);
    const d = min<usize>(at + 3 * ENTRY_BYTES, last);
    const v = logits4(query, load<u32>(at), load<u32>(b), load<u32>(c), load<u32>(d));
    top = keep(at, f32x4.extract_lane(v, 0), top);
    top = keep(b, f32x4.extract_lane(v, 1), top);
    top = keep(c, f32x4.extract_lane(v, 2), top);
    top = keep(d, f32x4.extract_lane(v, 3), top);
  }
  if (top === -Infinity) {
    // all keys are hidden, or a logit is NaN: then the sum becomes NaN
    let poison: f32 = 0;
    for (let at = entries; at <= last; at += ENTRY_BYTES) {
      const logit = load<f32>(at, 12);
      if (logit !== logit) poison = logit;
    }
    store<f32>(state, load<f32>(state, 4) + poison, 4);
    return;
  }
  const factor: f32 = old === -Infinity ? 0 : f32x4.extract_lane(weight4(f32x4.splat(old - top)), 0);
  let sum = load<f32>(state, 4) * factor;
  for (let at = entries; at <= last; at += 4 * ENTRY_BYTES) {
    let v = f32x4.splat(load<f32>(at, 12));
    const left = <i32>((last - at) / ENTRY_BYTES);
    if (left >= 1) v = f32x4.replace_lane(v, 1, load<f32>(at, 12 + 16));
    if (left >= 2) v = f32x4.replace_lane(v, 2, load<f32>(at, 12 + 32));
    if (left >= 3) v = f32x4.replace_lane(v, 3, load<f32>(at, 12 + 48));
    v = weight4(f32x4.sub(v, f32x4.splat(top)));
    sum += storeWeight(at, f32x4.extract_lane(v, 0));
    if (left >= 1) sum += storeWeight(at + ENTRY_BYTES, f32x4.extract_lane(v, 1));
    if (left >= 2) sum += storeWeight(at + 2 * ENTRY_BYTES, f32x4.extract_lane(v, 2));
    if (left >= 3) sum += storeWeight(at + 3 * ENTRY_BYTES, f32x4.extract_lane(v, 3));
  }
  store<f32>(state, top);
  store<f32>(state, sum, 4);
  const out = state + ROW_STATE;
  axpyListed(
    out,
    out,
    factor,
    entries + 4,
    entries + 12,
    ENTRY_BYTES,
    count,
    cache.valueStride & ~63,
    cache.valueStride,
  );
}

function keep(at: usize, product: f32, top: f32): f32 {
  const logit = product + load<f32>(at, 8);
  store<f32>(at, logit, 12);
  return logit > top ? logit : top;
}

function storeWeight(at: usize, weight: f32): f32 {
  store<f32>(at, weight, 12);
  return weight;
}

/** Logits of one query with four keys. */
export function logits4(query: usize, k0: usize, k1: usize, k2: usize, k3: usize): v128 {
  return cache.capLogits(f32x4.mul(dot4(query, k0, k1, k2, k3, cache.keyStride), f32x4.splat(cache.scale)));
}
