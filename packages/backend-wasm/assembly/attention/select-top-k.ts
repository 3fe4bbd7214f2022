/** Top-k selection in linear time; ties go to the lower index. */
import { floatAt, intAt, setInt } from '../runtime/arrays';

/** Bits per digit of the radix select; few scores get the shorter digits, so that bins do not outnumber them. */
const DIGIT_BITS: i32 = 8;
const LONG_DIGIT_BITS: i32 = 12;
/** Scratch of a selection in bytes, besides four bytes per score. */
export const BINS_BYTES: usize = 4 << LONG_DIGIT_BITS;

/** Number of scores equal to the threshold that are among the k largest. */
let numEqual: i32 = 0;

/** Writes the indices of the `k` largest of `count` f32 scores to `out`, ascending. NaN ranks last. */
export function selectLargest(scores: usize, count: i32, k: i32, work: usize, out: usize): i32 {
  if (k >= count) {
    for (let i = 0; i < count; i++) setInt(out, i, i);
    return count;
  }
  if (k <= 0) return 0;
  const threshold = thresholdOf(scores, count, k, work);
  let found = 0;
  for (let i = 0; i < count && found < k; i++) {
    const score = floatAt(scores, i);
    if (!(score > threshold)) {
      const isEqual = score === threshold || (threshold === -Infinity && score !== score);
      if (numEqual <= 0 || !isEqual) continue;
      numEqual -= 1;
    }
    setInt(out, found, i);
    found += 1;
  }
  return found;
}

/** The k-th largest score by radix select: each digit narrows the candidates to those that share its leading digits. */
function thresholdOf(scores: usize, count: i32, k: i32, work: usize): f32 {
  const keys = work + BINS_BYTES;
  for (let i = 0; i < count; i++) setInt(keys, i, keyOf(floatAt(scores, i)));
  const width = count > 1 << LONG_DIGIT_BITS ? LONG_DIGIT_BITS : DIGIT_BITS;
  for (let shift = 32; shift > 0;) {
    const bits = min<i32>(width, shift);
    shift -= bits;
    const mask = (1 << bits) - 1;
    memory.fill(work, 0, (<usize>4) << bits);
    for (let i = 0; i < count; i++) {
      const digit = (intAt(keys, i) >>> shift) & mask;
      setInt(work, digit, intAt(work, digit) + 1);
    }
    let digit = mask;
    for (; intAt(work, digit) < k; digit--) k -= intAt(work, digit);
    let numLeft = 0;
    for (let i = 0; i < count; i++) {
      const key = intAt(keys, i);
      if (((key >>> shift) & mask) !== digit) continue;
      setInt(keys, numLeft, key);
      numLeft += 1;
    }
    count = numLeft;
  }
  numEqual = k;
  const key = intAt(keys, 0);
  return reinterpret<f32>(key < 0 ? key ^ i32.MIN_VALUE : ~key);
}

/** Maps a score to an integer whose unsigned order is that of scores; -0 equals 0, and NaN counts as -Infinity. */
function keyOf(score: f32): i32 {
  const bits = reinterpret<i32>(score === score ? score + 0 : -Infinity);
  return bits ^ ((bits >> 31) | i32.MIN_VALUE);
}
