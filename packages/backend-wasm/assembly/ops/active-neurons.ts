/**
 * Every thread compacts the active neurons of its own range. Once all counts are known, it copies them to their offset in the
 * list, so that the order is the same for any number of threads.
 */
import { attributes, count, ids, scores, thresholds } from '../operands/active-neurons.generated';
import { setInt } from '../runtime/arrays';
import { sharedScratch } from '../runtime/record';
import { phaseBarrier, sharers, thread } from '../runtime/threads';
import { MAX_THREADS } from '../runtime/layout.generated';

/** For each 4-bit mask of a comparison: the indices of its set lanes in order, then zeros. */
const lanes = memory.data<i32>([
  0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 3, 0, 0, 0, 0, 3, 0,
  0, 1, 3, 0, 0, 0, 1, 3, 0, 2, 3, 0, 0, 0, 2, 3, 0, 1, 2, 3, 0, 0, 1, 2, 3,
]);

/** Threads share the neurons evenly, in multiples of sixteen. */
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

/** First neuron of the share of a thread. */
function shareBegin(share: i32, numShares: i32, numNeurons: i32): i32 {
  return share === numShares ? numNeurons : (((numNeurons >> 4) * share) / numShares) << 4;
}

/**
 * Writes the count, and the list entries `[begin, end)` that follow from it: zeros beyond the count, or all neurons when more
 * than `maxRatio` of them are active, in which case it returns true.
 */
function finish(total: i32, begin: i32, end: i32, numNeurons: i32, list: usize): bool {
  const isAll = <f64>total > <f64>attributes.maxRatio * <f64>numNeurons;
  store<i32>(count.address, isAll ? numNeurons : total);
  if (isAll) {
    for (let f = begin; f < end; f++) setInt(list, f, f);
    return true;
  }
  const rest = max<i32>(begin, total);
  if (rest < end) memory.fill(list + ((<usize>rest) << 2), 0, (<usize>(end - rest)) << 2);
  return false;
}

/** Writes the active neurons of `[begin, end)` to `to`, which has room for all of them, and returns their number. */
function compact(begin: i32, end: i32, numTokens: i32, numNeurons: i32, to: usize): i32 {
  const first = to;
  const sign: u32 = attributes.absolute ? 0x7fffffff : 0xffffffff;
  const mask = i32x4.splat(sign);
  const row = (<usize>numNeurons) << 2;
  let score = scores.address + ((<usize>begin) << 2);
  let threshold = thresholds.address + ((<usize>begin) << 2);
  let four = i32x4.splat(begin);
  let f = begin;
  for (; f + 4 <= end; f += 4, score += 16, threshold += 16) {
    const limits = v128.load(threshold);
    let idle = i32x4.splat(-1);
    for (let t = 0, from = score; t < numTokens; t++, from += row) {
      idle = v128.and(idle, f32x4.lt(v128.and(v128.load(from), mask), limits));
    }
    // the next store overwrites the lanes after the active ones
    const active = i32x4.bitmask(idle) ^ 15;
    v128.store(to, i32x4.add(four, v128.load(lanes + ((<usize>active) << 4))));
    four = i32x4.add(four, i32x4.splat(4));
    to += (<usize>popcnt(active)) << 2;
  }
  for (; f < end; f++, score += 4, threshold += 4) {
    let isActive = false;
    for (let t = 0, from = score; t < numTokens; t++, from += row) {
      if (!(reinterpret<f32>(load<u32>(from) & sign) < load<f32>(threshold))) isActive = true;
    }
    store<i32>(to, f);
    to += isActive ? 4 : 0;
  }
  return <i32>((to - first) >> 2);
}

/** A cache line for the count of each thread, then the active neurons that the threads found. */
export function activeNeuronsSharedBytes(): u64 {
  return 64 * MAX_THREADS + ((<u64>thresholds.numNeurons) << 2);
}
