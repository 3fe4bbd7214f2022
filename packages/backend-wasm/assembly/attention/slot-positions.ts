/** Positions that consecutive slots of the cache hold, negative in empty slots, and which of them a query sees. */
import { maxI4, minU4, sumI4 } from '../simd/vector';

/** Range of the positions that were scanned last; the highest is negative when all slots were empty. */
export let lowestPosition: i32 = 0;
export let highestPosition: i32 = 0;
export let hasEmptySlot: bool = false;

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
  highestPosition = maxI4(high);
  hasEmptySlot = v128.any_true(i32x4.lt_s(top, i32x4.splat(0)));
}

/** Whether a query sees a key at a distance of `near` to `far`. */
export function isVisible(query: i32, key: i32, near: i32, far: i32): bool {
  const distance = query - key;
  return key >= 0 && distance >= near && distance <= far;
}

/** Lanes of four keys that a query does not see. */
export function hiddenLanes(query: i32, keys: v128, near: i32, far: i32): v128 {
  const distance = i32x4.sub(i32x4.splat(query), keys);
  const isOutside = v128.or(i32x4.lt_s(distance, i32x4.splat(near)), i32x4.gt_s(distance, i32x4.splat(far)));
  return v128.or(i32x4.lt_s(keys, i32x4.splat(0)), isOutside);
}

/** How many of `count` keys a query sees at distances of `near` to `far`. */
export function countVisible(query: i32, at: usize, count: i32, near: i32, far: i32): i32 {
  let hidden = i32x4.splat(0); // -1 for each
  let i = 0;
  for (; i + 4 <= count; i += 4, at += 16) hidden = i32x4.add(hidden, hiddenLanes(query, v128.load(at), near, far));
  let seen = i + sumI4(hidden);
  for (; i < count; i++, at += 4) if (isVisible(query, load<i32>(at), near, far)) seen += 1;
  return seen;
}
