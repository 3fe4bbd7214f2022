/**
 * A tile of queries of one KV head as panels of eight lanes (four when the tile has at most four queries), a query per lane.
 * Key and value rows are contiguous f32. A step of a panel computes logits, an online softmax and the weighted sum of values.
 */
import { gemm4x8, gemm6x8, gemm8x4, gemmT4x8, gemmT6x8, gemmT8x4 } from '../gemm/f32-gemm.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { minusInfinity } from '../simd/constants.generated';
import { storeColumns } from '../simd/transpose';
import { weight4 } from '../simd/vector';
import * as cache from './kv-cache-view';
import { softmaxWeights4, softmaxWeights8 } from './microkernels.generated';
import { mergeMaxima, otherFactor, ownFactor } from './partial-states';

/** Maximum number of queries in a tile. */
export const LANES: i32 = 64;
/** Maximum number of rows in one step of the softmax. */
export const PANEL_ROWS: i32 = 256;
/** Byte offset from the maxima of the lanes to their sums. */
const SUMS: usize = LANES * 4;

let canSwizzle: bool = false;
let panelShift: i32 = 3;
/** Bytes of a row of a panel: one f32 per lane. */
export let rowBytes: usize = 32;
let queryBytes: usize = 0;
let outputBytes: usize = 0;
let queries: usize = 0;
let outputs: usize = 0;
let maxima: usize = 0;
let lanePositions: usize = 0;
let logits: usize = 0;
let firstHead: i32 = 0;
let tileHeads: i32 = 1;
/** i32 tokens of the tile's tokens, which are indices in this list; 0 when they are the tokens themselves. */
let tokenList: usize = 0;

/** Rescaling factors of previous sums and outputs, set by `softmaxRows`: lanes 0 to 3, and lanes 4 to 7. */
export let lowFactor: v128 = f32x4.splat(1);
export let highFactor: v128 = f32x4.splat(1);

export let firstToken: i32 = 0;
export let numLanes: i32 = 0;
export let numPanels: i32 = 0;
/** Range of positions found by the last `scanLanes`. */
export let lowestLane: i32 = 0;
export let highestLane: i32 = 0;

/**
 * Lays out the scratch of a tile with steps of `rows` rows and returns its end.
 * @param isSwizzled whether the keys of panels of eight lanes are in the swizzled order of `swizzled-f16.ts`
 */
export function layPanels(scratch: usize, rows: i32 = PANEL_ROWS, isSwizzled: bool = false): usize {
  canSwizzle = isSwizzled;
  queries = scratch;
  outputs = queries + <usize>LANES * cache.keyStride;
  maxima = outputs + <usize>((cache.valueDim + 7) & ~7) * <usize>LANES * 4;
  lanePositions = maxima + 2 * SUMS;
  logits = lanePositions + <usize>LANES * 4;
  return logits + <usize>(rows + 8) * 32;
}

/**
 * Opens the tile of tokens `[t0, t1)` and heads `[h0, h1)` with empty states and the queries of the record.
 * @param list i32 tokens, of which `[t0, t1)` are indices; 0 for none
 */
export function openPanels(t0: i32, t1: i32, h0: i32, h1: i32, list: usize = 0): void {
  tokenList = list;
  firstToken = t0;
  firstHead = h0;
  tileHeads = h1 - h0;
  numLanes = (t1 - t0) * tileHeads;
  panelShift = numLanes <= 4 ? 2 : 3;
  rowBytes = (<usize>4) << panelShift;
  numPanels = (numLanes + (1 << panelShift) - 1) >> panelShift;
  queryBytes = <usize>cache.headDim * rowBytes;
  outputBytes = <usize>((cache.valueDim + 7) & ~7) * rowBytes;
  for (let lane = 0; lane < numPanels << panelShift; lane++) {
    setInt(lanePositions, lane, cache.positionOfToken(tokenOfLane(min<i32>(lane, numLanes - 1))));
  }
  for (let panel = 0; panel < numPanels; panel++) clearPanel(panel);
  loadQueries(cache.queryAt(0));
}

/** Replaces the queries of the lanes by those at `[T, N, H]`; keeps the states. */
export function loadQueries(from: usize): void {
  for (let lane = 0; lane < numPanels << panelShift; lane += 4) {
    const to = queries + <usize>(lane >> panelShift) * queryBytes + ((<usize>(lane & ((1 << panelShift) - 1))) << 2);
    loadFour(from, lane, to, canSwizzle && panelShift === 3);
  }
}

/** Transposes four scaled queries into lanes; padding lanes repeat the last query. */
function loadFour(from: usize, lane: i32, to: usize, isSwizzled: bool): void {
  const q0 = from + rowOfLane(lane) * cache.keyStride;
  const q1 = from + rowOfLane(lane + 1) * cache.keyStride;
  const q2 = from + rowOfLane(lane + 2) * cache.keyStride;
  const q3 = from + rowOfLane(lane + 3) * cache.keyStride;
  const factor = f32x4.splat(cache.scale);
  const bytes = cache.keyStride;
  const row = rowBytes;
  // swizzled: of every eight numbers, the even ones come before the odd ones
  const second = isSwizzled ? 4 * row : row;
  const third = isSwizzled ? row : 2 * row;
  let step = isSwizzled ? 2 * row : 4 * row;
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16, to += step, step = 8 * row - step) {
    const a = f32x4.mul(v128.load(q0 + i), factor);
    const b = f32x4.mul(v128.load(q1 + i), factor);
    const c = f32x4.mul(v128.load(q2 + i), factor);
    const d = f32x4.mul(v128.load(q3 + i), factor);
    storeColumns(a, b, c, d, to, second, third);
  }
  for (; i < bytes; i += 4, to += row) {
    const column = f32x4(load<f32>(q0 + i), load<f32>(q1 + i), load<f32>(q2 + i), load<f32>(q3 + i));
    v128.store(to, f32x4.mul(column, factor));
  }
}

/** Row of a lane in tensors `[T, N, ...]`; padding lanes repeat the last query. */
export function rowOfLane(lane: i32): usize {
  const real = min<i32>(lane, numLanes - 1);
  return <usize>(tokenOfLane(real) * cache.numHeads + headOfLane(real));
}

/** Finds the range of the positions of lanes `[begin, end)`. */
export function scanLanes(begin: i32, end: i32): void {
  lowestLane = i32.MAX_VALUE;
  highestLane = 0;
  for (let lane = begin; lane < end; lane++) {
    lowestLane = min<i32>(lowestLane, positionOfLane(lane));
    highestLane = max<i32>(highestLane, positionOfLane(lane));
  }
}
export function scanPanel(panel: i32): void {
  scanLanes(firstLaneOf(panel), lastLaneOf(panel));
}

export function tokenOfLane(lane: i32): i32 {
  const index = firstToken + lane / tileHeads;
  return tokenList === 0 ? index : intAt(tokenList, index);
}
export function headOfLane(lane: i32): i32 {
  return firstHead + (lane % tileHeads);
}
export function firstLaneOf(panel: i32): i32 {
  return panel << panelShift;
}
export function lastLaneOf(panel: i32): i32 {
  return min<i32>(numLanes, (panel + 1) << panelShift);
}
export function positionOfLane(lane: i32): i32 {
  return intAt(lanePositions, lane);
}
export function maximumOfLane(lane: i32): f32 {
  return floatAt(maxima, lane);
}
export function sumOfLane(lane: i32): f32 {
  return floatAt(maxima + SUMS, lane);
}
/** Maxima of the four lanes from `lane` on, and their reciprocal sums, 0 for a lane that saw no key. */
export function maximaOf(lane: i32): v128 {
  return v128.load(maxima + ((<usize>lane) << 2));
}
export function inverseSums(lane: i32): v128 {
  const sums = v128.load(maxima + SUMS + ((<usize>lane) << 2));
  return v128.andnot(f32x4.div(f32x4.splat(1), sums), f32x4.eq(sums, f32x4.splat(0)));
}
/** Mask of the lanes, out of the four from `lane` on, that are not padding. */
export function ownLanes(lane: i32): v128 {
  return i32x4.lt_s(i32x4(0, 1, 2, 3), i32x4.splat(numLanes - lane));
}
/** Merges the maximum and sum of another state into a lane, but not its values, which `addMassOfRows` does not need. */
export function mergeLane(lane: i32, top: f32, sum: f32): void {
  setFloat(maxima, lane, mergeMaxima(maximumOfLane(lane), top));
  setFloat(maxima + SUMS, lane, sumOfLane(lane) * ownFactor + sum * otherFactor);
}
/** Merges the state of lane `other` into that of `lane`, values included. */
export function mergeLanes(lane: i32, other: i32): void {
  mergeLane(lane, maximumOfLane(other), sumOfLane(other));
  let to = outputOfLane(lane);
  let from = outputOfLane(other);
  for (let i = 0; i < cache.valueDim; i++, to += rowBytes, from += rowBytes) {
    store<f32>(to, load<f32>(to) * ownFactor + load<f32>(from) * otherFactor);
  }
}
/** Address of a lane's weighted sum of values, whose elements are `rowBytes` apart. */
export function outputOfLane(lane: i32): usize {
  return outputs + <usize>(lane >> panelShift) * outputBytes + ((<usize>(lane & ((1 << panelShift) - 1))) << 2);
}
/** Address of a row's logits, later its softmax weights, one per lane of the panel. */
export function logitsOf(row: i32): usize {
  return logits + <usize>row * rowBytes;
}

/** Whether panels have eight lanes. */
export function isPanelOfEight(): bool {
  return panelShift === 3;
}
/** The scaled queries of a panel, and its weighted sums of values, both with the lanes as innermost axis. */
export function queriesOf(panel: i32): usize {
  return queries + <usize>panel * queryBytes;
}
export function outputsOf(panel: i32): usize {
  return outputs + <usize>panel * outputBytes;
}
/** The unscaled query of a lane. */
export function queryOfLane(lane: i32): usize {
  return cache.queryAt(<i32>rowOfLane(lane));
}

/** Resets the state of a panel, which need not have queries of its own. */
export function clearPanel(panel: i32): void {
  const at = ((<usize>panel) << 2) << panelShift;
  for (let part: usize = 0; part < rowBytes; part += 16) {
    v128.store(maxima + at + part, minusInfinity());
    v128.store(maxima + SUMS + at + part, f32x4.splat(0));
  }
  memory.fill(outputsOf(panel), 0, outputBytes);
}

/** Adds the learned sinks of the heads to empty states: keys without values, relative to which the first sums are 1. */
export function addSinks(): void {
  for (let lane = 0; lane < numPanels << panelShift; lane++) {
    setFloat(maxima, lane, floatAt(cache.sinkLogits, headOfLane(lane)));
    setFloat(maxima + SUMS, lane, 1);
  }
}

/** Writes `y = o / l` of a lane; false when an element is not finite. */
export function writeLane(lane: i32, y: usize): bool {
  const sum = sumOfLane(lane);
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  const stride = rowBytes;
  let largest = reinterpret<i32>(abs<f32>(sum));
  for (let i = cache.valueDim, from = outputOfLane(lane); i > 0; i--, from += stride, y += 4) {
    const value = load<f32>(from) * factor;
    largest = max<i32>(largest, reinterpret<i32>(abs<f32>(value)));
    store<f32>(y, value);
  }
  return largest < reinterpret<i32>(<f32>Infinity);
}

/** Computes the logits of `count` keys as rows from `row` on. Call it in ascending order: it may overwrite later rows. */
export function scoreRows(panel: i32, keys: usize, count: i32, row: i32): void {
  const q = queriesOf(panel);
  const stride = cache.keyStride;
  let to = logitsOf(row);
  if (panelShift === 2) {
    for (let j = 0; j < count; j += 8, to += 128) {
      gemm8x4(to, keys + <usize>j * stride, stride, count - j, q, cache.headDim);
    }
  } else {
    const last = keys + <usize>(count - 1) * stride;
    let j = 0;
    for (; j + 6 <= count; j += 6, to += 192) gemm6x8(to, keys + <usize>j * stride, stride, q, cache.headDim);
    for (; j < count; j += 4, to += 128) {
      const at = keys + <usize>j * stride;
      const b = min<usize>(at + stride, last);
      const c = min<usize>(b + stride, last);
      gemm4x8(to, at, b, c, min<usize>(c + stride, last), q, cache.headDim, false);
    }
  }
}

/** Applies the soft cap to rows `[0, count)`, after all logits are computed and before any are masked. */
export function capRows(count: i32): void {
  if (cache.softCap === 0) return;
  const end = logitsOf(count);
  for (let at = logits; at < end; at += 16) v128.store(at, cache.capLogits(v128.load(at)));
}

/** Adds the biases of a panel for keys at `positions` to rows `[0, count)`, after the soft cap. */
export function biasRows(panel: i32, count: i32, positions: usize): void {
  for (let lane = 0; lane < 1 << panelShift; lane++) {
    const own = min<i32>(numLanes - 1, firstLaneOf(panel) + lane);
    const head = headOfLane(own);
    const position = positionOfLane(own);
    let at = logits + ((<usize>lane) << 2);
    for (let j = 0; j < count; j++, at += rowBytes) {
      store<f32>(at, load<f32>(at) + cache.biasOf(head, intAt(positions, j) - position));
    }
  }
}

/** Hides a row from the lanes whose distance to `position` is not in `[low, high]`. */
export function hideRow(panel: i32, row: i32, position: i32, low: i32, high: i32): void {
  for (let part: usize = 0; part < rowBytes; part += 16) hideLanes(panel, row, part, position, low, high);
}

/** The same for only the four lanes at a byte offset of `part`. */
export function hideLanes(panel: i32, row: i32, part: usize, position: i32, low: i32, high: i32): void {
  const at = logitsOf(row) + part;
  const lanes = v128.load(lanePositions + (((<usize>panel) << 2) << panelShift) + part);
  const distance = i32x4.sub(lanes, i32x4.splat(position));
  const hidden = v128.or(i32x4.lt_s(distance, i32x4.splat(low)), i32x4.gt_s(distance, i32x4.splat(high)));
  v128.store(at, v128.bitselect(minusInfinity(), v128.load(at), hidden));
}

/**
 * Hides each row from the scanned lanes that do not see its position; empty slots and positions >= `limit`, from all. Chunks have
 * `high + 1` positions.
 */
export function maskRows(
  panel: i32,
  count: i32,
  positions: usize,
  low: i32,
  high: i32,
  limit: i32 = i32.MAX_VALUE,
): void {
  for (let j = 0; j < count; j++) {
    const position = intAt(positions, j);
    const far = cache.isChunked ? high - (position % (high + 1)) : high;
    if (position < 0 || position >= limit) dropRow(j);
    else if (lowestLane - position < low || highestLane - position > far) hideRow(panel, j, position, low, far);
  }
}

/** Hides rows of positions `[begin, end)` from lanes of the scanned panel more than `back` after or `ahead` before them. */
export function hideOutside(panel: i32, begin: i32, end: i32, back: i32, ahead: i32): void {
  // all lanes see [highestLane - back, lowestLane + ahead]
  for (let j = begin; j < min<i32>(end, highestLane - back); j++) hideRow(panel, j - begin, j, -ahead, back);
  for (let j = max<i32>(begin, lowestLane + ahead + 1); j < end; j++) hideRow(panel, j - begin, j, -ahead, back);
}

/** Adds a bias to the logits of a row. */
export function raiseRow(row: i32, amount: f32): void {
  const at = logitsOf(row);
  for (let part: usize = 0; part < rowBytes; part += 16) {
    v128.store(at + part, f32x4.add(v128.load(at + part), f32x4.splat(amount)));
  }
}

/** Hides a row from all lanes. */
export function dropRow(row: i32): void {
  const at = logitsOf(row);
  for (let part: usize = 0; part < rowBytes; part += 16) v128.store(at + part, minusInfinity());
}

/** One step of the online softmax: the logits of rows `[0, count)` become weights relative to the new maxima. */
export function softmaxRows(panel: i32, count: i32): void {
  const state = maxima + (((<usize>panel) << 2) << panelShift);
  const end = logitsOf(count);
  const oldLow = v128.load(state);
  const oldHigh = v128.load(state, 16);
  if (isPanelOfEight()) {
    maxRows8(end, state);
  } else {
    let top = oldLow;
    for (let at = logits; at < end; at += 16) top = f32x4.pmax(top, v128.load(at)); // skips NaN; the sum becomes NaN
    v128.store(state, top);
  }
  const low = shiftOf(state);
  lowFactor = weight4(f32x4.sub(oldLow, low));
  if (!isPanelOfEight()) {
    softmaxWeights4(logits, end, 16, state + SUMS, low, lowFactor);
    return;
  }
  const high = shiftOf(state + 16);
  highFactor = weight4(f32x4.sub(oldHigh, high));
  softmaxWeights8(logits, end, 32, state + SUMS, low, high, lowFactor, highFactor);
}

/** What softmax subtracts from the logits of four lanes: their maxima, but 0 for -Infinity, lest the result be NaN. */
function shiftOf(state: usize): v128 {
  const top = v128.load(state);
  return v128.andnot(top, f32x4.eq(top, minusInfinity()));
}

/** Updates the maxima of eight lanes with the logits before `end`. */
function maxRows8(end: usize, state: usize): void {
  let low = v128.load(state);
  let high = v128.load(state, 16);
  let nextLow = low;
  let nextHigh = high;
  let at = logits;
  for (; at + 64 <= end; at += 64) {
    low = f32x4.pmax(low, v128.load(at)); // skips NaN; the sum becomes NaN
    high = f32x4.pmax(high, v128.load(at, 16));
    nextLow = f32x4.pmax(nextLow, v128.load(at, 32));
    nextHigh = f32x4.pmax(nextHigh, v128.load(at, 48));
  }
  if (at < end) {
    low = f32x4.pmax(low, v128.load(at));
    high = f32x4.pmax(high, v128.load(at, 16));
  }
  v128.store(state, f32x4.pmax(low, nextLow));
  v128.store(state, f32x4.pmax(high, nextHigh), 16);
}

/** Adds the weighted values of `count` rows from `row` on; row 0, the first after `softmaxRows`, rescales the outputs. */
export function sumRows(panel: i32, values: usize, count: i32, row: i32): void {
  const out = outputsOf(panel);
  const weights = logitsOf(row);
  const low = row === 0 ? lowFactor : f32x4.splat(1);
  const stride = cache.valueStride;
  let at: usize = 0; // byte offset of a column in a row of values
  if (panelShift === 2) {
    for (; at < stride; at += 32) gemmT8x4(out + (at << 2), values + at, stride, weights, count, low);
    return;
  }
  const high = row === 0 ? highFactor : f32x4.splat(1);
  // an even number of six-column tiles, so that four-column tiles cover the rest and stay within the padded columns
  const wide = (stride / 48) * 48;
  for (; at < wide; at += 24) gemmT6x8(out + (at << 3), values + at, stride, weights, count, low, high);
  for (; at < stride; at += 16) gemmT4x8(out + (at << 3), values + at, stride, weights, count, low, high);
}
