/**
 * Attention mass of visited keys, `[T, K, M, S]`: a second pass over the keys, once the softmax maximum and sum of each lane
 * are known. A work item owns all query heads of its (token, KV head), so no two threads add to the same element.
 */
import { floatAt, intAt, setFloat } from '../runtime/arrays';
import { minusInfinity } from '../simd/constants.generated';
import { weight4 } from '../simd/vector';
import { maxSlots, numKvHeads } from './kv-cache-view';
import * as panels from './query-panels';

let masses: usize = 0;
/** Whether the record requests masses. */
export let hasMass: bool = false;

/** Sets the address that masses are written to; 0 when the record requests none. */
export function enterMass(address: usize): void {
  masses = address;
  hasMass = address !== 0;
}

/** Address of the masses of a token and a KV head. */
export function massOf(token: i32, kvHead: i32): usize {
  return masses + ((<usize>(token * numKvHeads + kvHead) * <usize>maxSlots) << 2);
}

/** Clears the masses of tokens `[t0, t1)`. */
export function clearMass(t0: i32, t1: i32, kvHead: i32): void {
  for (let t = t0; hasMass && t < t1; t++) memory.fill(massOf(t, kvHead), 0, (<usize>maxSlots) << 2);
}

/** Adds a probability to the mass of a logical slot. */
export function addMass(row: usize, slot: i32, probability: f32): void {
  setFloat(row, slot, floatAt(row, slot) + probability);
}

/**
 * Adds the masses of rows `[0, count)` of the current step, whose logits are already computed and masked. Row `i` is logical
 * slot `slots[i]`, or `firstSlot + i` when `slots` is 0.
 */
export function addMassOfRows(panel: i32, count: i32, kvHead: i32, slots: usize, firstSlot: i32): void {
  const last = panels.lastLaneOf(panel) - 1;
  for (let base = panels.firstLaneOf(panel); base <= last; base += 4) {
    const top = panels.maximaOf(base);
    const factor = panels.inverseSums(base);
    // padding lanes repeat the last query and add nothing
    const repeated = v128.not(panels.ownLanes(base));
    const row0 = massOf(panels.tokenOfLane(base), kvHead);
    const row1 = massOf(panels.tokenOfLane(min<i32>(base + 1, last)), kvHead);
    const row2 = massOf(panels.tokenOfLane(min<i32>(base + 2, last)), kvHead);
    const row3 = massOf(panels.tokenOfLane(min<i32>(base + 3, last)), kvHead);
    const none = minusInfinity();
    let at = panels.logitsOf(0) + ((<usize>(base - panels.firstLaneOf(panel))) << 2);
    for (let j = 0; j < count; j++, at += panels.rowBytes) {
      const logit = v128.load(at);
      const hidden = v128.or(repeated, f32x4.eq(logit, none)); // adds 0 even when the sum is NaN
      const v = v128.andnot(f32x4.mul(weight4(f32x4.sub(logit, top)), factor), hidden);
      const slot = slots === 0 ? firstSlot + j : intAt(slots, j);
      addMass(row0, slot, f32x4.extract_lane(v, 0));
      addMass(row1, slot, f32x4.extract_lane(v, 1));
      addMass(row2, slot, f32x4.extract_lane(v, 2));
      addMass(row3, slot, f32x4.extract_lane(v, 3));
    }
  }
}
