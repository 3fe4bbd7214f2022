/**
 * Prefetches rows of keys and values, a few cache lines between one register tile and the next. The two halves of both are
 * touched in turn: hardware prefetchers work page by page, so that four streams keep more lines in flight than one.
 */

/** Bytes of a cache line. */
const LINE: usize = 64;
/** Bytes of each half that one step prefetches. */
const STEP: usize = 2 * LINE;

let keysLow: usize = 0;
let keysHigh: usize = 0;
let valuesLow: usize = 0;
let valuesHigh: usize = 0;
/** Bytes of a half of the keys, and of the values. */
let keysEnd: usize = 0;
let valuesEnd: usize = 0;
let at: usize = 0;
let end: usize = 0;
let bytesOfTurn: usize = 0;
let sink: i32 = 0;

/** Sets what the next `turns` calls of `prefetchSome` prefetch. */
export function prefetchLater(keys: usize, keyBytes: usize, values: usize, valueBytes: usize, turns: i32): void {
  keysEnd = (keyBytes >> 1) & ~(LINE - 1);
  valuesEnd = (valueBytes >> 1) & ~(LINE - 1);
  keysLow = keys;
  keysHigh = keys + keysEnd;
  valuesLow = values;
  valuesHigh = values + valuesEnd;
  at = 0;
  end = max<usize>(keysEnd, valuesEnd);
  const steps = (end + STEP - 1) / STEP;
  bytesOfTurn = ((steps + <usize>turns - 1) / <usize>turns) * STEP;
}

export function prefetchSome(): void {
  const stop = min<usize>(end, at + bytesOfTurn);
  // the sum is stored, so that the loads are not eliminated
  let sum = sink;
  for (; at < stop; at += LINE) {
    if (at < keysEnd) sum += load<i32>(keysLow + at) + load<i32>(keysHigh + at);
    if (at < valuesEnd) sum += load<i32>(valuesLow + at) + load<i32>(valuesHigh + at);
  }
  sink = sum;
}
