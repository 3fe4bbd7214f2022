/** Reductions over rows: softmax, log-sum-exp, arg-max. Units: rows. */
import { loadTail, storeTail } from '../simd/tail';
import { addressOf, countRows, lastDim } from '../runtime/record';
import { exp4, max4, promoteHigh, sum2 } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

/** Largest value of a row, NaN when there is one. */
function maxOf(x: usize, length: i32): f32 {
  let best = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) best = f32x4.max(best, v128.load(x));
  let result = max4(best);
  for (; i < length; i++, x += 4) result = max<f32>(result, load<f32>(x));
  return result;
}

/** `y = exp(x - shift)` and the sum in f64; y may be 0 when only the sum is wanted. */
function expSum(x: usize, y: usize, shift: f32, length: i32): f64 {
  const offset = f32x4.splat(shift);
  let a = f64x2.splat(0);
  let b = f64x2.splat(0);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) {
    const e = exp4(f32x4.sub(v128.load(x), offset));
    if (y !== 0) {
      v128.store(y, e);
      y += 16;
    }
    a = f64x2.add(a, f64x2.promote_low_f32x4(e));
    b = f64x2.add(b, promoteHigh(e));
  }
  if (i < length) {
    let e = exp4(f32x4.sub(loadTail(x, length - i), offset));
    if (y !== 0) storeTail(y, e, length - i);
    // lanes beyond the row hold exp of something else
    if (length - i < 2) e = f32x4.replace_lane(e, 1, 0);
    if (length - i < 3) e = f32x4.replace_lane(e, 2, 0);
    e = f32x4.replace_lane(e, 3, 0);
    a = f64x2.add(a, f64x2.promote_low_f32x4(e));
    b = f64x2.add(b, promoteHigh(e));
  }
  return sum2(f64x2.add(a, b));
}

/** Tensors: x, y. */
export function softmax(): void {
  const length = lastDim(0);
  const numRows = countRows(0);
  const rowBytes = (<usize>length) << 2;
  for (let row = takeUnits(1); row < numRows; row = takeUnits(1)) {
    const x = addressOf(0) + <usize>row * rowBytes;
    const y = addressOf(1) + <usize>row * rowBytes;
    const top = maxOf(x, length);
    if (top === -Infinity) {
      memory.fill(y, 0, rowBytes);
      continue;
    }
    const factor = 1 / expSum(x, y, top, length);
    for (let at = y; at < y + rowBytes; at += 4) store<f32>(at, <f32>(<f64>load<f32>(at) * factor));
  }
}

/** Tensors: x, y. */
export function logSumExp(): void {
  const length = lastDim(0);
  const numRows = countRows(0);
  for (let row = takeUnits(1); row < numRows; row = takeUnits(1)) {
    const x = addressOf(0) + ((<usize>row * <usize>length) << 2);
    const top = maxOf(x, length);
    const result = top === -Infinity ? top : <f32>(<f64>top + Math.log(expSum(x, 0, top, length)));
    store<f32>(addressOf(1) + ((<usize>row) << 2), result);
  }
}

/** Tensors: x, index. NaN is smaller than everything; the lowest index among equals. */
export function argMax(): void {
  const length = lastDim(0);
  const numRows = countRows(0);
  for (let row = takeUnits(1); row < numRows; row = takeUnits(1)) {
    const x = addressOf(0) + ((<usize>row * <usize>length) << 2);
    store<i32>(addressOf(1) + ((<usize>row) << 2), argMaxOf(x, length));
  }
}

function argMaxOf(x: usize, length: i32): i32 {
  // pmax(a, b) is b where a < b: a NaN in b loses
  let best = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= length; i += 4) best = f32x4.pmax(best, v128.load(x + ((<usize>i) << 2)));
  let top = max4(best);
  for (; i < length; i++) {
    const value = load<f32>(x + ((<usize>i) << 2));
    if (value > top) top = value;
  }
  for (let index = 0; index < length; index++) if (load<f32>(x + ((<usize>index) << 2)) === top) return index;
  return 0; // only NaN; a row of NaN and -Infinity was found above
}
