/** The end of queries that are in a panel and in rows of their own: both states become one output. */
import { headOfLane, maximumOfLane, outputOfLane, outputStride, sumOfLane, tokenOfLane } from './query-panels';
import { dim } from '../runtime/record';
import { ROW_STATE } from './online-softmax-row';
import { weight4, withLane } from '../simd/vector';

/**
 * Merges the states of the lanes `[first, last)` of a panel with those of `online-softmax-row.ts` at `states`, one per lane, and
 * writes the quotients to the rows of `outputs` `[T, N, D]`; false where something is not finite.
 */
export function writeMerged(first: i32, last: i32, states: usize, stateBytes: usize, outputs: usize): bool {
  const valueDim = dim(4, 3);
  let check = f32x4.splat(0);
  const zero = f32x4.splat(0);
  const stride = outputStride();
  const numHeads = dim(0, 1);
  for (let base = first; base < last; base += 4) {
    const from = outputOfLane(base);
    const count = min<i32>(4, last - base);
    let y0: usize = 0;
    let y1: usize = 0;
    let y2: usize = 0;
    let y3: usize = 0;
    let s0: usize = 0;
    let s1: usize = 0;
    let s2: usize = 0;
    let s3: usize = 0;
    let top = f32x4.splat(-Infinity);
    let sum = zero;
    let edgeTop = top;
    let edgeSum = zero;
    for (let i = 0; i < count; i++) {
      const lane = base + i;
      const state = states + <usize>(lane - first) * stateBytes;
      const row = tokenOfLane(lane) * numHeads + headOfLane(lane);
      const y = outputs + ((<usize>row * <usize>valueDim) << 2);
      if (i === 0) {
        y0 = y;
        s0 = state;
      } else if (i === 1) {
        y1 = y;
        s1 = state;
      } else if (i === 2) {
        y2 = y;
        s2 = state;
      } else {
        y3 = y;
        s3 = state;
      }
      top = withLane(top, i, maximumOfLane(lane));
      sum = withLane(sum, i, sumOfLane(lane));
      edgeTop = withLane(edgeTop, i, load<f32>(state));
      edgeSum = withLane(edgeSum, i, load<f32>(state, 4));
    }
    let shift = f32x4.pmax(top, edgeTop);
    shift = v128.andnot(shift, f32x4.eq(shift, f32x4.splat(-Infinity)));
    let factor = weight4(f32x4.sub(top, shift));
    let edgeFactor = weight4(f32x4.sub(edgeTop, shift));
    const all = f32x4.add(f32x4.mul(sum, factor), f32x4.mul(edgeSum, edgeFactor));
    // a query without keys gives zeros
    const inverse = v128.andnot(f32x4.div(f32x4.splat(1), all), f32x4.eq(all, zero));
    factor = f32x4.mul(factor, inverse);
    edgeFactor = f32x4.mul(edgeFactor, inverse);
    check = f32x4.add(check, f32x4.mul(f32x4.add(f32x4.add(sum, edgeSum), inverse), zero));
    let d = 0;
    for (; d + 4 <= valueDim; d += 4) {
      const at = from + <usize>d * stride;
      const a = f32x4.mul(v128.load(at), factor);
      const b = f32x4.mul(v128.load(at + stride), factor);
      const c = f32x4.mul(v128.load(at + 2 * stride), factor);
      const e = f32x4.mul(v128.load(at + 3 * stride), factor);
      const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const ab2 = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      const ce = i8x16.shuffle(c, e, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const ce2 = i8x16.shuffle(c, e, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      const column = (<usize>d) << 2;
      check = put(
        i8x16.shuffle(ab, ce, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
        y0 + column,
        s0 + ROW_STATE + column,
        f32x4.extract_lane(edgeFactor, 0),
        check,
      );
      if (count > 1) {
        check = put(
          i8x16.shuffle(ab, ce, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
          y1 + column,
          s1 + ROW_STATE + column,
          f32x4.extract_lane(edgeFactor, 1),
          check,
        );
      }
      if (count > 2) {
        check = put(
          i8x16.shuffle(ab2, ce2, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
          y2 + column,
          s2 + ROW_STATE + column,
          f32x4.extract_lane(edgeFactor, 2),
          check,
        );
      }
      if (count > 3) {
        check = put(
          i8x16.shuffle(ab2, ce2, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
          y3 + column,
          s3 + ROW_STATE + column,
          f32x4.extract_lane(edgeFactor, 3),
          check,
        );
      }
    }
    for (; d < valueDim; d++) {
      const a = f32x4.mul(v128.load(from + <usize>d * stride), factor);
      const column = (<usize>d) << 2;
      check = put1(f32x4.extract_lane(a, 0), y0 + column, s0 + column, f32x4.extract_lane(edgeFactor, 0), check);
      if (count > 1)
        check = put1(f32x4.extract_lane(a, 1), y1 + column, s1 + column, f32x4.extract_lane(edgeFactor, 1), check);
      if (count > 2)
        check = put1(f32x4.extract_lane(a, 2), y2 + column, s2 + column, f32x4.extract_lane(edgeFactor, 2), check);
      if (count > 3)
        check = put1(f32x4.extract_lane(a, 3), y3 + column, s3 + column, f32x4.extract_lane(edgeFactor, 3), check);
    }
  }
  return !v128.any_true(f32x4.ne(check, check));
}

/** Writes four numbers; `check` becomes NaN when one is not finite. */
function put(window: v128, y: usize, edges: usize, factor: f32, check: v128): v128 {
  const value = f32x4.add(window, f32x4.mul(v128.load(edges), f32x4.splat(factor)));
  v128.store(y, value);
  return f32x4.add(check, f32x4.mul(value, f32x4.splat(0)));
}

function put1(window: f32, y: usize, state: usize, factor: f32, check: v128): v128 {
  const value = window + load<f32>(state + ROW_STATE) * factor;
  store<f32>(y, value);
  return f32x4.add(check, f32x4.splat(value * 0));
}
