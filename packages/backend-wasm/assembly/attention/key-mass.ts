/**
 * Masses of visited keys, `[T, K, M, S]`: a second pass over the keys, once the maximum and the sum of each lane are known.
 * The unit that does it owns all query heads of its (token, KV head), so that no two threads add to one number.
 */
import { minusInfinity } from '../simd/constants';
import { firstLaneOf, lastLaneOf, logitsOf, maximumOfLane, outputStride, sumOfLane, tokenOfLane } from './query-panels';
import { addressOf, dim, isPresent } from '../runtime/record';
import { weight4, withLane } from '../simd/vector';

let masses: usize = 0;
let rowBytes: usize = 0;
let numKvHeads: i32 = 1;
let hasMass: bool = false;

/** Whether the record asks for masses, in this tensor. */
export function enterMass(tensor: i32): bool {
  hasMass = isPresent(tensor);
  if (!hasMass) return false;
  masses = addressOf(tensor);
  numKvHeads = dim(tensor, 1);
  rowBytes = <usize>dim(tensor, 2) * ((<usize>dim(tensor, 3)) << 2);
  return true;
}

/** Where the masses of a token lie. */
export function massOf(token: i32, kvHead: i32): usize {
  return masses + <usize>(token * numKvHeads + kvHead) * rowBytes;
}

/** Nothing was visited yet by the tokens `[t0, t1)`. */
export function clearMass(t0: i32, t1: i32, kvHead: i32): void {
  if (!hasMass) return;
  for (let t = t0; t < t1; t++) memory.fill(massOf(t, kvHead), 0, rowBytes);
}

/** Adds to the mass of a logical slot. */
export function addMass(row: usize, slot: i32, probability: f32): void {
  const at = row + ((<usize>slot) << 2);
  store<f32>(at, load<f32>(at) + probability);
}

/**
 * Adds what the rows `[0, count)` of the step hold, whose scores are there and hidden where they are not seen. Row `i` is the
 * logical slot `slots[i]`, or `firstSlot + i` where `slots` is 0.
 */
export function addMassOfRows(panel: i32, count: i32, kvHead: i32, slots: usize, firstSlot: i32): void {
  for (let base = firstLaneOf(panel); base < lastLaneOf(panel); base += 4) {
    const lanes = min<i32>(4, lastLaneOf(panel) - base);
    let top = f32x4.splat(0);
    let factor = f32x4.splat(0);
    for (let i = 0; i < lanes; i++) {
      const sum = sumOfLane(base + i);
      const inverse: f32 = sum === 0 ? 0 : 1 / sum;
      const most: f32 = sum === 0 ? 0 : maximumOfLane(base + i);
      top = withLane(top, i, most);
      factor = withLane(factor, i, inverse);
    }
    const row0 = massOf(tokenOfLane(base), kvHead);
    const row1 = lanes > 1 ? massOf(tokenOfLane(base + 1), kvHead) : 0;
    const row2 = lanes > 2 ? massOf(tokenOfLane(base + 2), kvHead) : 0;
    const row3 = lanes > 3 ? massOf(tokenOfLane(base + 3), kvHead) : 0;
    const none = minusInfinity();
    let at = logitsOf(0) + ((<usize>(base - firstLaneOf(panel))) << 2);
    for (let j = 0; j < count; j++, at += outputStride()) {
      const logit = v128.load(at);
      const hidden = f32x4.eq(logit, none); // also where the sum is not a number
      const v = v128.andnot(f32x4.mul(weight4(f32x4.sub(logit, top)), factor), hidden);
      const slot = slots === 0 ? firstSlot + j : load<i32>(slots + ((<usize>j) << 2));
      addMass(row0, slot, f32x4.extract_lane(v, 0));
      if (lanes > 1) addMass(row1, slot, f32x4.extract_lane(v, 1));
      if (lanes > 2) addMass(row2, slot, f32x4.extract_lane(v, 2));
      if (lanes > 3) addMass(row3, slot, f32x4.extract_lane(v, 3));
    }
  }
}
