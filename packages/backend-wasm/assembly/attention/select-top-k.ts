/** Top-k selection in linear expected time; of equal scores the lower index wins. */

/** Writes the indices of the `k` largest of `count` f32 scores to `out`, ascending; `work` has room for `count` f32. NaN ranks last. */
export function selectLargest(scores: usize, count: i32, k: i32, work: usize, out: usize): i32 {
  if (k >= count) {
    for (let i = 0; i < count; i++) store<i32>(out + ((<usize>i) << 2), i);
    return count;
  }
  if (k <= 0) return 0;
  const threshold = count > BINS ? thresholdByBins(scores, count, k, work) : thresholdOf(scores, count, k, work);
  let numAbove = 0;
  for (let i: usize = 0; i < (<usize>count) << 2; i += 4) if (load<f32>(scores + i) > threshold) numAbove += 1;
  let numEqual = k - numAbove;
  let found = 0;
  for (let i = 0; i < count && found < k; i++) {
    const score = load<f32>(scores + ((<usize>i) << 2));
    if (!(score > threshold)) {
      const isEqual = score === threshold || (threshold === -Infinity && score !== score);
      if (numEqual <= 0 || !isEqual) continue;
      numEqual -= 1;
    }
    store<i32>(out + ((<usize>found) << 2), i);
    found += 1;
  }
  return found;
}

/** The k-th largest score. */
function thresholdOf(scores: usize, count: i32, k: i32, work: usize): f32 {
  for (let i: usize = 0; i < (<usize>count) << 2; i += 4) {
    const score = load<f32>(scores + i);
    store<f32>(work + i, score === score ? score : -Infinity);
  }
  return kthLargest(work, count, k);
}

/** The bin of a score is given by its leading bits: sign, exponent, three bits of the mantissa. */
const BIN_BITS: i32 = 12;
const BINS: i32 = 1 << BIN_BITS;
const NAN_KEY: u32 = 0x007fffff; // that of -Infinity

/** An integer that orders like the score. */
function keyOf(score: f32): u32 {
  const bits = reinterpret<u32>(score);
  const key = bits ^ (<u32>(<i32>bits >> 31) | 0x80000000);
  return score === score ? key : NAN_KEY;
}

/** The same with a histogram of leading bits first, so that the search is limited to one bin; `work` holds the bins. */
function thresholdByBins(scores: usize, count: i32, k: i32, work: usize): f32 {
  memory.fill(work, 0, (<usize>BINS) << 2);
  const end = scores + ((<usize>count) << 2);
  for (let at = scores; at < end; at += 4) {
    const bin = work + ((<usize>(keyOf(load<f32>(at)) >> (32 - BIN_BITS))) << 2);
    store<i32>(bin, load<i32>(bin) + 1);
  }
  let bin = BINS - 1;
  let left = k;
  for (; ; bin--) {
    const inBin = load<i32>(work + ((<usize>bin) << 2));
    if (inBin >= left) break;
    left -= inBin;
  }
  let found = work;
  for (let at = scores; at < end; at += 4) {
    const score = load<f32>(at);
    if (<i32>(keyOf(score) >> (32 - BIN_BITS)) !== bin) continue;
    store<f32>(found, score === score ? score : -Infinity);
    found += 4;
  }
  return kthLargest(work, <i32>((found - work) >> 2), left);
}

/** Quickselect with a three-way partition. */
function kthLargest(values: usize, count: i32, k: i32): f32 {
  let begin = 0;
  let end = count;
  let wanted = k - 1; // in descending order
  while (end - begin > 1) {
    const pivot = middle(
      load<f32>(values + ((<usize>begin) << 2)),
      load<f32>(values + ((<usize>((begin + end) >> 1)) << 2)),
      load<f32>(values + ((<usize>(end - 1)) << 2)),
    );
    let above = begin; // [begin, above) > pivot, [above, i) = pivot, [below, end) < pivot
    let below = end;
    let i = begin;
    while (i < below) {
      const at = values + ((<usize>i) << 2);
      const value = load<f32>(at);
      if (value > pivot) {
        const other = values + ((<usize>above) << 2);
        store<f32>(at, load<f32>(other));
        store<f32>(other, value);
        above += 1;
        i += 1;
      } else if (value < pivot) {
        below -= 1;
        const other = values + ((<usize>below) << 2);
        store<f32>(at, load<f32>(other));
        store<f32>(other, value);
      } else {
        i += 1;
      }
    }
    if (wanted < above - begin) {
      end = above;
    } else if (wanted < below - begin) {
      return pivot;
    } else {
      wanted -= below - begin;
      begin = below;
    }
  }
  return load<f32>(values + ((<usize>begin) << 2));
}

function middle(a: f32, b: f32, c: f32): f32 {
  return max<f32>(min<f32>(a, b), min<f32>(max<f32>(a, b), c));
}
