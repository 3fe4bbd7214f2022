/**
 * A tile of queries of one KV head, side by side in panels of eight (of four when there are no more): all rows of keys and
 * values are f32 and lie side by side. Per panel: scores of some rows, a step of the online softmax over them, their values.
 */
import { minusInfinity } from '../simd/constants';
import { gemm4x8, gemm6x8, gemm8x4, gemmT4x8, gemmT6x8, gemmT8x4 } from '../gemm/f32-gemm.generated';
import { addressOf, attributeF, dim } from '../runtime/record';
import { tanh4 } from '../simd/vector';
import { setSoftmax, softmaxStep } from './online-softmax';
import { positionOfToken } from './kv-cache-view';
import { highFactor, lowFactor, weigh8 } from './softmax-weights';

/** Most queries of a tile. */
export const LANES: i32 = 64;
/** Most rows of one step of the softmax. */
export const PANEL_ROWS: i32 = 256;

let headDim: i32 = 0;
let valueDim: i32 = 0;
let panelShift: i32 = 3;
let rowBytes: usize = 32;
let queryBytes: usize = 0;
let outputBytes: usize = 0;
let queries: usize = 0;
let outputs: usize = 0;
let maxima: usize = 0;
let sums: usize = 0;
let lanePositions: usize = 0;
let logits: usize = 0;
let cap: f32 = 0;
let firstToken: i32 = 0;
let firstHead: i32 = 0;
let tileHeads: i32 = 1;
let factorOfFour: v128 = f32x4.splat(1);

export let numLanes: i32 = 0;
export let numPanels: i32 = 0;

/** Lays out the scratch of a tile for steps of `rows` rows and returns its end; `panelBytes` of the host is its size. */
export function layPanels(scratch: usize, rows: i32 = PANEL_ROWS): usize {
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  queries = scratch;
  outputs = queries + <usize>headDim * <usize>LANES * 4;
  maxima = outputs + <usize>((valueDim + 7) & ~7) * <usize>LANES * 4;
  sums = maxima + <usize>LANES * 4;
  lanePositions = sums + <usize>LANES * 4;
  logits = lanePositions + <usize>LANES * 4;
  return logits + <usize>(rows + 8) * 32;
}

/** Opens the tile of tokens `[t0, t1)` and heads `[h0, h1)`: states are empty, queries come from tensor 0. */
export function openPanels(t0: i32, t1: i32, h0: i32, h1: i32): void {
  firstToken = t0;
  firstHead = h0;
  tileHeads = h1 - h0;
  numLanes = (t1 - t0) * tileHeads;
  panelShift = numLanes <= 4 ? 2 : 3;
  rowBytes = (<usize>4) << panelShift;
  numPanels = (numLanes + (1 << panelShift) - 1) >> panelShift;
  queryBytes = <usize>headDim * rowBytes;
  outputBytes = <usize>((valueDim + 7) & ~7) * rowBytes;
  for (let lane = 0; lane < numPanels << panelShift; lane++) {
    const at = (<usize>lane) << 2;
    store<f32>(maxima + at, -Infinity);
    store<f32>(sums + at, 0);
    store<i32>(lanePositions + at, positionOfToken(tokenOfLane(min<i32>(lane, numLanes - 1))));
  }
  memory.fill(outputs, 0, <usize>numPanels * outputBytes);
  loadQueries(addressOf(0));
}

/** Goes on with other queries `[T, N, H]` for further keys. */
export function loadQueries(from: usize): void {
  const scale = attributeF(0);
  cap = attributeF(3);
  setSoftmax(1, 0, 0, 0);
  for (let lane = 0; lane < numPanels << panelShift; lane += 4) {
    const to = queries + <usize>(lane >> panelShift) * queryBytes + ((<usize>(lane & ((1 << panelShift) - 1))) << 2);
    loadFour(from, lane, to, f32x4.splat(scale));
  }
}

/** Four lanes: rows of the source become columns; lanes beyond the last repeat it. */
function loadFour(from: usize, lane: i32, to: usize, scale: v128): void {
  const q0 = from + queryOffset(lane);
  const q1 = from + queryOffset(lane + 1);
  const q2 = from + queryOffset(lane + 2);
  const q3 = from + queryOffset(lane + 3);
  const bytes = (<usize>headDim) << 2;
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16, to += 4 * rowBytes) {
    const a = f32x4.mul(v128.load(q0 + i), scale);
    const b = f32x4.mul(v128.load(q1 + i), scale);
    const c = f32x4.mul(v128.load(q2 + i), scale);
    const d = f32x4.mul(v128.load(q3 + i), scale);
    const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const ab2 = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    const cd = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const cd2 = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    v128.store(to, i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
    v128.store(to + rowBytes, i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    v128.store(to + 2 * rowBytes, i8x16.shuffle(ab2, cd2, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
    v128.store(
      to + 3 * rowBytes,
      i8x16.shuffle(ab2, cd2, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
    );
  }
  for (; i < bytes; i += 4, to += rowBytes) {
    v128.store(to, f32x4.mul(f32x4(load<f32>(q0 + i), load<f32>(q1 + i), load<f32>(q2 + i), load<f32>(q3 + i)), scale));
  }
}

function queryOffset(lane: i32): usize {
  const real = min<i32>(lane, numLanes - 1);
  return <usize>(tokenOfLane(real) * dim(0, 1) + headOfLane(real)) * ((<usize>headDim) << 2);
}

export function tokenOfLane(lane: i32): i32 {
  return firstToken + lane / tileHeads;
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
  return load<i32>(lanePositions + ((<usize>lane) << 2));
}
export function maximumOfLane(lane: i32): f32 {
  return load<f32>(maxima + ((<usize>lane) << 2));
}
export function sumOfLane(lane: i32): f32 {
  return load<f32>(sums + ((<usize>lane) << 2));
}
/** Takes another state into that of a lane, but not its values: what `addMassOfRows` needs to know. */
export function mergeLane(lane: i32, top: f32, sum: f32): void {
  const at = (<usize>lane) << 2;
  const own = load<f32>(maxima + at);
  const most = max<f32>(own, top);
  if (most === -Infinity) return;
  const factor: f32 = own === -Infinity ? 0 : <f32>Math.exp(<f64>own - <f64>most);
  const other: f32 = top === -Infinity ? 0 : <f32>Math.exp(<f64>top - <f64>most);
  store<f32>(maxima + at, most);
  store<f32>(sums + at, load<f32>(sums + at) * factor + sum * other);
}
/** The weighted sum of values of a lane; number `i` lies `i * outputStride()` bytes further. */
export function outputOfLane(lane: i32): usize {
  return outputs + <usize>(lane >> panelShift) * outputBytes + ((<usize>(lane & ((1 << panelShift) - 1))) << 2);
}
export function outputStride(): usize {
  return rowBytes;
}
/** Score, later weight, of the first lane of the panel for a row; other lanes lie beside it. */
export function logitsOf(row: i32): usize {
  return logits + <usize>row * rowBytes;
}

/** Whether panels have eight lanes; those beyond the last query repeat it. */
export function isPanelOfEight(): bool {
  return panelShift === 3;
}
/** Queries of a panel, scaled, and its weighted sums of values: the lanes of a number side by side. */
export function queriesOf(panel: i32): usize {
  return queries + <usize>panel * queryBytes;
}
export function outputsOf(panel: i32): usize {
  return outputs + <usize>panel * outputBytes;
}
/** The query of a lane as it came, in tensor 0. */
export function queryOfLane(lane: i32): usize {
  return addressOf(0) + queryOffset(lane);
}

/** Empties the state of a panel, also of one that has no queries of its own. */
export function clearPanel(panel: i32): void {
  const at = ((<usize>panel) << 2) << panelShift;
  for (let part: usize = 0; part < rowBytes; part += 16) {
    v128.store(maxima + at + part, minusInfinity());
    v128.store(sums + at + part, f32x4.splat(0));
  }
  memory.fill(outputs + <usize>panel * outputBytes, 0, outputBytes);
}

/** Writes `y = o / l` of a lane; false where it is not finite. */
export function writeLane(lane: i32, y: usize): bool {
  const sum = sumOfLane(lane);
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  const from = outputOfLane(lane);
  let check: f32 = sum;
  for (let i: usize = 0; i < <usize>valueDim; i++) {
    const value = load<f32>(from + i * rowBytes) * factor;
    check += value * 0;
    store<f32>(y + (i << 2), value);
  }
  return abs<f32>(check) < Infinity;
}

/** Scores of `count` rows of keys, from row `row` of the step on. Call in ascending order of rows. */
export function scoreRows(panel: i32, keys: usize, count: i32, row: i32): void {
  const q = queries + <usize>panel * queryBytes;
  const stride = (<usize>headDim) << 2;
  let to = logits + <usize>row * rowBytes;
  if (panelShift === 2) {
    for (let j = 0; j < count; j += 8, to += 128) {
      gemm8x4(to, keys + <usize>j * stride, stride, count - j, q, headDim);
    }
  } else {
    const last = keys + <usize>(count - 1) * stride;
    let j = 0;
    for (; j + 6 <= count; j += 6, to += 192) gemm6x8(to, keys + <usize>j * stride, stride, q, headDim);
    for (; j < count; j += 4, to += 128) {
      const at = keys + <usize>j * stride;
      const b = min<usize>(at + stride, last);
      const c = min<usize>(b + stride, last);
      gemm4x8(to, at, b, c, min<usize>(c + stride, last), q, headDim, false);
    }
  }
}

/** Caps the scores of rows `[0, count)`; to be called after they are all there, before any is hidden. */
export function capRows(count: i32): void {
  if (cap === 0) return;
  const end = logits + <usize>count * rowBytes;
  for (let at = logits; at < end; at += 16) v128.store(at, capScores(v128.load(at)));
}

/** Caps four scores that are no rows yet. */
export function capScores(scores: v128): v128 {
  if (cap === 0) return scores;
  const bound = f32x4.splat(cap);
  return f32x4.mul(bound, tanh4(f32x4.div(scores, bound)));
}

/** Hides a row from the lanes of a panel whose distance to `position` is not in `[low, high]`. */
export function hideRow(panel: i32, row: i32, position: i32, low: i32, high: i32): void {
  const none = minusInfinity();
  const at = logits + <usize>row * rowBytes;
  for (let part: usize = 0; part < rowBytes; part += 16) {
    const lanes = v128.load(lanePositions + (((<usize>panel) << 2) << panelShift) + part);
    const distance = i32x4.sub(lanes, i32x4.splat(position));
    const hidden = v128.or(i32x4.lt_s(distance, i32x4.splat(low)), i32x4.gt_s(distance, i32x4.splat(high)));
    v128.store(at + part, v128.bitselect(none, v128.load(at + part), hidden));
  }
}

/** Adds to the scores of a row. */
export function raiseRow(row: i32, amount: f32): void {
  const at = logits + <usize>row * rowBytes;
  for (let part: usize = 0; part < rowBytes; part += 16) {
    v128.store(at + part, f32x4.add(v128.load(at + part), f32x4.splat(amount)));
  }
}

/** Hides a row from all lanes. */
export function dropRow(row: i32): void {
  const at = logits + <usize>row * rowBytes;
  for (let part: usize = 0; part < rowBytes; part += 16) v128.store(at + part, minusInfinity());
}

/** Scores of rows `[0, count)` become weights. */
export function weighRows(panel: i32, count: i32): void {
  const state = maxima + (((<usize>panel) << 2) << panelShift);
  if (panelShift === 2) {
    factorOfFour = softmaxStep(logits, rowBytes, count, 0, 0, state, LANES * 4);
  } else {
    weigh8(logits, count, state, LANES * 4);
  }
}

/** Adds the values of `count` rows, weighed by rows `row...`; the first call after `weighRows` has row 0. */
export function sumRows(panel: i32, values: usize, count: i32, row: i32): void {
  const out = outputs + <usize>panel * outputBytes;
  const weights = logits + <usize>row * rowBytes;
  const stride = (<usize>valueDim) << 2;
  if (panelShift === 2) {
    const low = row === 0 ? factorOfFour : f32x4.splat(1);
    for (let d = 0; d < valueDim; d += 8) {
      const column = (<usize>d) << 2;
      gemmT8x4(out + (column << 2), values + column, stride, weights, count, low);
    }
    return;
  }
  const low = row === 0 ? lowFactor() : f32x4.splat(1);
  const high = row === 0 ? highFactor() : f32x4.splat(1);
  // pairs of wide tiles, so that tiles of four end where columns do: others lie beyond
  const wide = (valueDim / 12) * 12;
  let d = 0;
  for (; d < wide; d += 6) {
    const column = (<usize>d) << 2;
    gemmT6x8(out + (column << 3), values + column, stride, weights, count, low, high);
  }
  for (; d < valueDim; d += 4) {
    const column = (<usize>d) << 2;
    gemmT4x8(out + (column << 3), values + column, stride, weights, count, low, high);
  }
}
