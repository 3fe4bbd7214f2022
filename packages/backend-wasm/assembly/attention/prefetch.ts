/**
 * Fetches rows of keys and values before they are needed, a few lines between one tile of products and the next. Halves of
 * both are walked in turn: processors fetch ahead by themselves, but for every page apart and a few lines at a time, so that
 * from four pages at once more is on its way; lines of one page after the other would have to be waited for.
 */

/** Bytes of a line. */
const LINE: usize = 64;
/** Bytes of every half that one step fetches. */
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

/** What `prefetchSome` fetches in the next `turns` calls. */
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
  const both = min<usize>(stop, min<usize>(keysEnd, valuesEnd));
  // the sum is stored, so that the loads count as used
  let sum = sink;
  for (; at + STEP <= both; at += STEP) {
    const a = keysLow + at;
    const b = keysHigh + at;
    const c = valuesLow + at;
    const d = valuesHigh + at;
    sum += load<i32>(a) + load<i32>(b) + load<i32>(c) + load<i32>(d);
    sum += load<i32>(a, 64) + load<i32>(b, 64) + load<i32>(c, 64) + load<i32>(d, 64);
  }
  for (; at < stop; at += LINE) {
    if (at < keysEnd) sum += load<i32>(keysLow + at) + load<i32>(keysHigh + at);
    if (at < valuesEnd) sum += load<i32>(valuesLow + at) + load<i32>(valuesHigh + at);
  }
  sink = sum;
}

/** Fetches everything at once. */
export function prefetchAll(keys: usize, keyBytes: usize, values: usize, valueBytes: usize): void {
  prefetchLater(keys, keyBytes, values, valueBytes, 1);
  prefetchSome();
}
