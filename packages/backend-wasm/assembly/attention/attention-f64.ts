/** One query, one key after the other, in f64: the definition in @winnow/ops, for rows where something is not finite. */
import { floatAt, setFloat } from '../runtime/arrays';
import * as cache from './kv-cache-view';
import * as panels from './query-panels';
import * as tile from './query-tiles';
import { isVisible } from './slot-positions';

/** A lane attends to slots `[begin, limit)`: m and l to `state`, o to `output`. Scratch follows `state`: key, value, sums in f64. */
export function attendF64(lane: i32, begin: i32, limit: i32, output: usize, state: usize): void {
  const query = panels.queryOfLane(lane);
  const key = state + 16;
  const value = key + ((<usize>cache.headDim) << 2);
  const sums = (value + ((<usize>cache.valueDim) << 2) + 7) & ~7;
  const end = sums + ((<usize>cache.valueDim) << 3);
  memory.fill(sums, 0, end - sums);
  let top: f64 = -Infinity;
  let denominator: f64 = 0;
  for (let slot = begin; slot < limit; slot++) {
    const index = cache.slotIndex(tile.sequence, slot);
    if (!isVisible(panels.positionOfLane(lane), cache.positionAt(index), cache.minDistance, cache.maxDistance))
      continue;
    let logit = dotF64(query, cache.keysOf(index, tile.kvHead, 1, key), cache.headDim) * <f64>cache.scale;
    if (cache.softCap !== 0) logit = <f64>cache.softCap * Math.tanh(logit / <f64>cache.softCap);
    if (logit === -Infinity) continue;
    if (logit > top || logit !== logit) {
      const shrink = top === -Infinity ? 0 : Math.exp(top - logit);
      denominator *= shrink;
      for (let at = sums; at < end; at += 8) store<f64>(at, load<f64>(at) * shrink);
      top = logit;
    }
    const weight = Math.exp(logit - top);
    denominator += weight;
    const row = cache.valuesOf(index, tile.kvHead, 1, value);
    for (let at = sums, i = 0; at < end; at += 8, i++) store<f64>(at, load<f64>(at) + weight * <f64>floatAt(row, i));
  }
  setFloat(state, 0, <f32>top);
  // the sums are relative to the maximum as it is stored
  const rounding = top === -Infinity ? 0 : Math.exp(top - <f64>(<f32>top));
  setFloat(state, 1, <f32>(denominator * rounding));
  for (let at = sums, i = 0; at < end; at += 8, i++) setFloat(output, i, <f32>(load<f64>(at) * rounding));
}

function dotF64(a: usize, b: usize, count: i32): f64 {
  let sum: f64 = 0;
  for (let i = 0; i < count; i++) sum += <f64>floatAt(a, i) * <f64>floatAt(b, i);
  return sum;
}
