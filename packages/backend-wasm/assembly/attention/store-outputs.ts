/** Stores the outputs of panels: lanes are transposed, merged with the states of single queries, and normalized. */
import { storeColumns } from '../simd/transpose';
import { fma, weight4 } from '../simd/vector';
import { valueStride } from './kv-cache-view';
import { ROW_STATE } from './online-softmax-row';
import * as panels from './query-panels';

/** Transposes four lanes, whose numbers are `stride` bytes apart, into rows. */
export function transposeLanes(from: usize, stride: usize, to: usize): void {
  let i: usize = 0;
  for (; i + 16 <= valueStride; i += 16, from += 4 * stride) {
    const a = v128.load(from);
    const b = v128.load(from + stride);
    const c = v128.load(from + 2 * stride);
    const d = v128.load(from + 3 * stride);
    storeColumns(a, b, c, d, to + i, valueStride, 2 * valueStride);
  }
  for (; i < valueStride; i += 4, from += stride) {
    for (let lane: usize = 0; lane < 4; lane++) {
      store<f32>(to + lane * valueStride + i, load<f32>(from + (lane << 2)));
    }
  }
}

/**
 * Merges the states of the lanes of a panel with those of `online-softmax-row.ts` at `states`, one per lane, and writes the
 * outputs to rows `[T, N, D]`; returns false when a number is not finite.
 * @param rows scratch of four values
 */
export function writeMerged(panel: i32, states: usize, stateBytes: usize, rows: usize, outputs: usize): bool {
  let check = f32x4.splat(0);
  const first = panels.firstLaneOf(panel);
  for (let lane = first; lane < panels.lastLaneOf(panel); lane++) {
    const i = <usize>(lane - first);
    if ((i & 3) === 0) transposeLanes(panels.outputOfLane(lane), panels.outputStride(), rows);
    check = writeLaneMerged(lane, states + i * stateBytes, rows + (i & 3) * valueStride, outputs, check);
  }
  return !v128.any_true(f32x4.ne(check, check));
}

/** `check` becomes NaN when a number is not finite. */
function writeLaneMerged(lane: i32, state: usize, values: usize, outputs: usize, check: v128): v128 {
  const y = outputs + panels.rowOfLane(lane) * valueStride;
  const top = panels.maximumOfLane(lane);
  const other = load<f32>(state);
  let shift: f32 = top < other ? other : top;
  if (shift === -Infinity) shift = 0;
  const weights = weight4(f32x4(top - shift, other - shift, 0, 0));
  const weight = f32x4.extract_lane(weights, 0);
  const otherWeight = f32x4.extract_lane(weights, 1);
  const all = panels.sumOfLane(lane) * weight + load<f32>(state, 4) * otherWeight;
  // a query without keys gives zeros
  const inverse: f32 = all === 0 ? 0 : 1 / all;
  const factor = f32x4.splat(weight * inverse);
  const otherFactor = f32x4.splat(otherWeight * inverse);
  const zero = f32x4.splat(0);
  const others = state + ROW_STATE;
  check = f32x4.add(check, f32x4.splat((panels.sumOfLane(lane) + load<f32>(state, 4) + inverse) * 0));
  let i: usize = 0;
  for (; i + 16 <= valueStride; i += 16) {
    const value = f32x4.add(f32x4.mul(v128.load(values + i), factor), f32x4.mul(v128.load(others + i), otherFactor));
    v128.store(y + i, value);
    check = f32x4.add(check, f32x4.mul(value, zero));
  }
  for (; i < valueStride; i += 4) {
    const value = load<f32>(values + i) * (weight * inverse) + load<f32>(others + i) * (otherWeight * inverse);
    store<f32>(y + i, value);
    check = f32x4.add(check, f32x4.splat(value * 0));
  }
  return check;
}

/** Scales a row of whole vectors; `check` becomes NaN when a number is not finite. */
export function scaleOutput(y: usize, factor: f32, check: v128): v128 {
  for (let i: usize = 0; i < valueStride; i += 16) {
    const value = f32x4.mul(v128.load(y + i), f32x4.splat(factor));
    v128.store(y + i, value);
    check = fma(value, f32x4.splat(0), check);
  }
  return check;
}
