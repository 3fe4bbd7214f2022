/** One query, one key after the other, in f64: the definition in @winnow/ops, for rows where something is not finite. */
import * as cache from './kv-cache-view';
import { isVisible } from './slot-positions';

/** Attends to slots `[begin, end)`: m and l to `state`, o to `output`. Scratch follows `state`: key, value, sums in f64. */
export function attendF64(token: i32, head: i32, kvHead: i32, begin: i32, end: i32, output: usize, state: usize): void {
  const query = cache.queryAt(token * cache.numHeads + head);
  const position = cache.positionOfToken(token);
  const sequence = cache.sequenceOfToken(token);
  const key = state + 16;
  const value = key + ((<usize>cache.headDim) << 2);
  const sums = (value + ((<usize>cache.valueDim) << 2) + 7) & ~7;
  memory.fill(sums, 0, (<usize>cache.valueDim) << 3);
  let top: f64 = -Infinity;
  let denominator: f64 = 0;
  for (let slot = begin; slot < end; slot++) {
    const index = cache.slotIndex(sequence, slot);
    if (!isVisible(position, cache.positionAt(index), cache.minDistance, cache.maxDistance)) continue;
    let logit = dotF64(query, cache.keyOf(index, kvHead, key), cache.headDim) * <f64>cache.scale;
    if (cache.softCap !== 0) logit = <f64>cache.softCap * Math.tanh(logit / <f64>cache.softCap);
    if (logit === -Infinity) continue;
    if (logit > top || logit !== logit) {
      const shrink = top === -Infinity ? 0 : Math.exp(top - logit);
      denominator *= shrink;
      for (let i: usize = 0; i < <usize>cache.valueDim; i++)
        store<f64>(sums + (i << 3), load<f64>(sums + (i << 3)) * shrink);
      top = logit;
    }
    const weight = Math.exp(logit - top);
    denominator += weight;
    const row = cache.valueOf(index, kvHead, value);
    for (let i: usize = 0; i < <usize>cache.valueDim; i++) {
      const at = sums + (i << 3);
      store<f64>(at, load<f64>(at) + weight * <f64>load<f32>(row + (i << 2)));
    }
  }
  store<f32>(state, <f32>top);
  // the sums are relative to the maximum as it is stored
  const rounding = top === -Infinity ? 0 : Math.exp(top - <f64>(<f32>top));
  store<f32>(state, <f32>(denominator * rounding), 4);
  for (let i: usize = 0; i < <usize>cache.valueDim; i++) {
    store<f32>(output + (i << 2), <f32>(load<f64>(sums + (i << 3)) * rounding));
  }
}

function dotF64(a: usize, b: usize, count: i32): f64 {
  let sum: f64 = 0;
  for (const end = a + ((<usize>count) << 2); a < end; a += 4, b += 4) sum += <f64>load<f32>(a) * <f64>load<f32>(b);
  return sum;
}
