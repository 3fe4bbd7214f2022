/**
 * Every thread compacts the active neurons of its own share of all; once all counts are known they go to their places, so that
 * their order is that of one thread.
 */
import { attributes, count, ids, scores, thresholds } from '../operands/active-neurons.generated';
import { sharedScratch } from '../runtime/record';
import { phaseBarrier, sharers, thread } from '../runtime/threads';
import { MAX_THREADS } from '../runtime/layout.generated';

/** For the four bits of a vector of comparisons: which lanes they are of, in order, then zeros. */
const lanes = memory.data<i32>([
  0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 3, 0, 0, 0, 0, 3, 0,
  0, 1, 3, 0, 0, 0, 1, 3, 0, 2, 3, 0, 0, 0, 2, 3, 0, 1, 2, 3, 0, 0, 1, 2, 3,
]);

/** Threads share the neurons evenly, sixteens of them. */
export function activeNeurons(): void {
  const numTokens = scores.numTokens;
  const numNeurons = scores.numNeurons;
  const list = ids.address;
  const numShares = sharers();
  if (numShares === 1) {
    const numActive = compact(0, numNeurons, numTokens, numNeurons, list);
    finish(numActive, 0, numNeurons, numNeurons, list);
    return;
  }
  // counts one cache line apart, then ids
  const counts = sharedScratch();
  const found = counts + ((<usize>numShares) << 6);
  const own = thread();
  const begin = shareBegin(own, numShares, numNeurons);
  const end = shareBegin(own + 1, numShares, numNeurons);
  const from = found + ((<usize>begin) << 2);
  store<i32>(counts + ((<usize>own) << 6), compact(begin, end, numTokens, numNeurons, from));
  phaseBarrier();
  let place = 0;
  let total = 0;
  for (let share = 0; share < numShares; share++) {
    if (share === own) place = total;
    total += load<i32>(counts + ((<usize>share) << 6));
  }
  const numActive = load<i32>(counts + ((<usize>own) << 6));
  if (!finish(total, begin, end, numNeurons, list))
    memory.copy(list + ((<usize>place) << 2), from, (<usize>numActive) << 2);
}

/** Where the share of a thread begins. */
function shareBegin(share: i32, numShares: i32, numNeurons: i32): i32 {
  return share === numShares ? numNeurons : (((numNeurons >> 4) * share) / numShares) << 4;
}

/**
 * Writes the count and what is known of places `[begin, end)` once it is: zeros beyond the count, or all neurons where too many are
 * active. True where these were all.
 */
function finish(total: i32, begin: i32, end: i32, numNeurons: i32, list: usize): bool {
  const isAll = <f64>total > <f64>attributes.maxRatio * <f64>numNeurons;
  store<i32>(count.address, isAll ? numNeurons : total);
  if (isAll) {
    for (let f = begin; f < end; f++) store<i32>(list + ((<usize>f) << 2), f);
    return true;
  }
  const rest = max<i32>(begin, total);
  if (rest < end) memory.fill(list + ((<usize>rest) << 2), 0, (<usize>(end - rest)) << 2);
  return false;
}

/** Writes the active ones of neurons `[begin, end)` to `to`, which has room for all of them, and returns how many they are. */
function compact(begin: i32, end: i32, numTokens: i32, numNeurons: i32, to: usize): i32 {
  const first = to;
  const sign: u32 = attributes.absolute ? 0x7fffffff : 0xffffffff;
  const mask = i32x4.splat(sign);
  const row = (<usize>numNeurons) << 2;
  let score = scores.address + ((<usize>begin) << 2);
  let threshold = thresholds.address + ((<usize>begin) << 2);
  let four = i32x4.splat(begin);
  const step = i32x4.splat(4);
  let f = begin;
  for (; f + 16 <= end; f += 16, score += 64, threshold += 64) {
    const t0 = v128.load(threshold);
    const t1 = v128.load(threshold, 16);
    const t2 = v128.load(threshold, 32);
    const t3 = v128.load(threshold, 48);
    let idle = i8x16.splat(-1);
    let from = score;
    for (let t = 0; t < numTokens; t++, from += row) {
      const low = i16x8.narrow_i32x4_s(
        f32x4.lt(v128.and(v128.load(from), mask), t0),
        f32x4.lt(v128.and(v128.load(from, 16), mask), t1),
      );
      const high = i16x8.narrow_i32x4_s(
        f32x4.lt(v128.and(v128.load(from, 32), mask), t2),
        f32x4.lt(v128.and(v128.load(from, 48), mask), t3),
      );
      idle = v128.and(idle, i8x16.narrow_i16x8_s(low, high));
    }
    const active = i8x16.bitmask(idle) ^ 0xffff;
    // what is stored beyond the active ones of four is overwritten by the next
    storeLanes(to, four, active & 15);
    four = i32x4.add(four, step);
    storeLanes(to + ((<usize>popcnt(active & 15)) << 2), four, (active >> 4) & 15);
    four = i32x4.add(four, step);
    storeLanes(to + ((<usize>popcnt(active & 255)) << 2), four, (active >> 8) & 15);
    four = i32x4.add(four, step);
    storeLanes(to + ((<usize>popcnt(active & 4095)) << 2), four, active >> 12);
    four = i32x4.add(four, step);
    to += (<usize>popcnt(active)) << 2;
  }
  for (; f < end; f++, score += 4, threshold += 4) {
    const limit = load<f32>(threshold);
    let from = score;
    let isActive = false;
    for (let t = 0; t < numTokens; t++, from += row) {
      if (!(reinterpret<f32>(load<u32>(from) & sign) < limit)) isActive = true;
    }
    store<i32>(to, f);
    to += isActive ? 4 : 0;
  }
  return <i32>((to - first) >> 2);
}

/** Stores `base` plus the lanes whose bits are set, one after the other. */
function storeLanes(to: usize, base: v128, bits: i32): void {
  v128.store(to, i32x4.add(base, v128.load(lanes + ((<usize>bits) << 4))));
}

/** A cache line for the count of each thread, then what they found. */
export function activeNeuronsSharedBytes(): u64 {
  return 64 * MAX_THREADS + ((<u64>thresholds.numNeurons) << 2);
}
