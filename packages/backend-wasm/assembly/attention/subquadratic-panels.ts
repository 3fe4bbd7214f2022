/**
 * Fast path for panels of eight queries whose keys fit one softmax step: shared rows (window, landmarks, globals) and far rows
 * (power-of-two distances beyond the window), where every query has a key of its own. It requires a causal model without a
 * sliding window, an f32 cache, and head dims that are multiples of four.
 */
import { idot4, igemm4x8Split, igemm6x8, igemmT4x8, igemmT6x8 } from '../gemm/f32-igemm.generated';
import { minusInfinity } from '../simd/constants.generated';
import { storeColumns } from '../simd/transpose';
import { fma, weight4 } from '../simd/vector';
import { axpyIndirect } from './microkernels.generated';
import * as cache from './kv-cache-view';
import { ROW_STATE } from './online-softmax-row';
import * as panels from './query-panels';
import * as edges from './subquadratic-edges';
import * as tile from './query-tiles';
import * as op from '../operands/subquadratic-attention.generated';
import { intAt, setInt } from '../runtime/arrays';

/** Maximum number of power-of-two distances beyond the window. */
const MAX_DISTANCES: i32 = 32;
/** Lanes of a vector, and number of rows at either end of a window that only half of a panel sees. */
const HALF: i32 = 4;

let isPossible: bool = false;

// scratch: addresses of rows, u32
let rowKeys: usize = 0;
let rowValues: usize = 0;
let queryRows: usize = 0;
let farKeys: usize = 0; // [distance, 8]
let farValues: usize = 0;
let farHidden: usize = 0; // i32, -1 where a query has no such key
let noRow: usize = 0;
/** Scratch for the outputs of eight lanes. */
export let laneOutputs: usize = 0;

let heldBegin: i32 = 0;
let heldEnd: i32 = 0;
let heldSequence: i32 = -1;

// the current panel
let firstPosition: i32 = 0;
let lastPosition: i32 = 0;
/** Whether its lanes hold consecutive positions. */
let isConsecutive: bool = false;
let windowBegin: i32 = 0;
/** Number of rows at either end of the window that only half of the panel sees: HALF or 0. */
let splits: i32 = 0;
let windowRows: i32 = 0;
/** Number of rows that all lanes share; half-panel rows and far rows follow them. */
let sharedRows: i32 = 0;
let farRow: i32 = 0;
let numFar: i32 = 0;

/** Lays out scratch and returns its end. */
export function layWhole(scratch: usize): usize {
  rowKeys = scratch;
  rowValues = rowKeys + (<usize>panels.PANEL_ROWS + 16) * 4;
  queryRows = rowValues + (<usize>panels.PANEL_ROWS + 16) * 4;
  farKeys = queryRows + 32;
  farValues = farKeys + <usize>MAX_DISTANCES * 32;
  farHidden = farValues + <usize>MAX_DISTANCES * 32;
  laneOutputs = farHidden + <usize>MAX_DISTANCES * 32;
  noRow = laneOutputs + 8 * cache.valueStride;
  return noRow + max<usize>(cache.keyStride, cache.valueStride);
}

/** Reads the record, after `enterEdges`. */
export function enterWhole(): void {
  isPossible = edges.sharesGlobals && cache.isPlain() && ((cache.headDim | cache.valueDim) & 3) === 0;
  if (isPossible) memory.fill(noRow, 0, max<usize>(cache.keyStride, cache.valueStride));
  heldSequence = -1;
}

/** Attends a panel to all of its keys; returns false and leaves the panel unchanged when it does not meet the conditions. */
export function attendWhole(panel: i32, back: i32): bool {
  if (!isPossible || !panels.isPanelOfEight()) return false;
  findPositions(panel);
  windowBegin = max<i32>(0, firstPosition - back);
  if (lastPosition >= tile.context || lastPosition - firstPosition > panels.PANEL_ROWS) return false;
  const pivot = edges.pivotOf(firstPosition);
  const lastPivot = edges.pivotOf(lastPosition);
  if (lastPivot > pivot + 1) return false;
  const numLandmarks = edges.gatherPivot(pivot);
  const numLast = lastPivot === pivot ? 0 : edges.gatherPivot(lastPivot);
  const count = lastPosition + 1 - windowBegin + numLandmarks + numLast + edges.numGlobals;
  if (count + MAX_DISTANCES > panels.PANEL_ROWS || !holdsWindow(windowBegin, lastPosition + 1)) return false;
  listFar(panels.firstLaneOf(panel));

  // all lanes share rows [0, sharedRows); `splits` half-panel rows follow
  splits = isConsecutive && firstPosition >= back && back >= HALF ? HALF : 0;
  windowRows = lastPosition + 1 - windowBegin - 2 * splits;
  storeRowAddresses(0, windowBegin + splits, lastPosition + 1 - splits);
  takePivot(pivot, numLandmarks, windowRows);
  takePivot(lastPivot, numLast, windowRows + numLandmarks);
  sharedRows = takeGlobals(windowRows + numLandmarks + numLast);
  scoreShared(panel);
  hideWindow(panel, back);
  edges.biasLandmarks(windowRows, numLandmarks + numLast);
  if (lastPivot !== pivot) {
    edges.hidePivot(panel, windowRows, numLandmarks, pivot);
    edges.hidePivot(panel, windowRows + numLandmarks, numLast, lastPivot);
  }
  hideGlobals(panel, windowRows + numLandmarks + numLast);
  scoreFar(panels.firstLaneOf(panel));
  panels.softmaxRows(panel, farRow + numFar);
  sumShared(panels.outputsOf(panel));
  return true;
}

function findPositions(panel: i32): void {
  panels.scanPanel(panel);
  firstPosition = panels.lowestLane;
  lastPosition = panels.highestLane;
  const first = panels.firstLaneOf(panel);
  isConsecutive = panels.lastLaneOf(panel) - first === 8;
  for (let i = 0; i < 8 && isConsecutive; i++) isConsecutive = panels.positionOfLane(first + i) === firstPosition + i;
}

/** Computes the capped logits of the shared rows and of the half-panel rows. */
function scoreShared(panel: i32): void {
  const queries = panels.queriesOf(panel);
  const splitKeys = rowKeys + ((<usize>sharedRows) << 2);
  for (let i: usize = 0; i < 6; i++) store<u32>(splitKeys + (i << 2), load<u32>(splitKeys - 4));
  for (let i = 0; i < sharedRows; i += 6)
    igemm6x8(panels.logitsOf(i), rowKeys + ((<usize>i) << 2), queries, cache.headDim);
  farRow = sharedRows + splits;
  if (splits > 0) {
    // in this order, because `storeRowAddresses` also writes a few addresses past its last row
    storeRowAddresses(sharedRows, windowBegin, windowBegin + HALF);
    storeRowAddresses(sharedRows + HALF, lastPosition + 1 - HALF, lastPosition + 1);
    igemm4x8Split(panels.logitsOf(sharedRows), splitKeys, splitKeys + 4 * HALF, queries, cache.headDim);
  }
  panels.capRows(farRow);
}

/** Hides the rows at the ends of the window from the lanes that do not see them. */
function hideWindow(panel: i32, back: i32): void {
  if (splits === 0) {
    panels.hideOutside(panel, windowBegin, lastPosition + 1, back, 0);
    return;
  }
  // consecutive positions: rows at either end, and the half-panel rows
  for (let i = 0; i < HALF; i++) {
    panels.hideRow(panel, i, windowBegin + HALF + i, 0, back);
    panels.hideRow(panel, windowRows - HALF + i, lastPosition + 1 - 2 * HALF + i, 0, back);
    panels.hideLanes(panel, sharedRows + i, 0, windowBegin + i, 0, back);
    panels.hideLanes(panel, sharedRows + i, 16, lastPosition + 1 - HALF + i, 0, back);
  }
}

/** Hides globals, which are rows from `row` on, from lanes whose windows contain them. */
function hideGlobals(panel: i32, row: i32): void {
  for (let g = 0; row < sharedRows; g++) {
    const global = edges.globalAt(g);
    if (!edges.isCached(global)) continue;
    if (firstPosition - global <= edges.local) panels.hideRow(panel, row, global, edges.local + 1, i32.MAX_VALUE);
    row += 1;
  }
}

/** Adds the weighted values of the shared rows and of the half-panel rows. */
function sumShared(outputs: usize): void {
  const weights = panels.logitsOf(0);
  const highs = rowValues + ((<usize>(sharedRows + HALF)) << 2);
  const wide = (cache.valueStride / 48) * 48;
  let at: usize = 0; // of a column in a row of values
  for (; at < wide; at += 24) igemmT6x8(outputs + (at << 3), rowValues, at, weights, sharedRows, highs, splits);
  for (; at < cache.valueStride; at += 16)
    igemmT4x8(outputs + (at << 3), rowValues, at, weights, sharedRows, highs, splits);
}

/** Number of keys that a query of the last panel attended to. */
export function countWhole(lane: i32, back: i32): i32 {
  const position = panels.positionOfLane(lane);
  let count = edges.countShared(position) + min<i32>(position, back) + 1;
  for (let i = 0; i < numFar; i++) if (intAt(farHidden, 8 * i + (lane & 7)) === 0) count += 1;
  return count;
}

/** Appends the landmarks of a pivot to the list of rows, from `row` on. */
function takePivot(pivot: i32, count: i32, row: i32): void {
  storeAddressRun(rowKeys + ((<usize>row) << 2), edges.keysOfPivot(pivot), cache.keyStride, count);
  storeAddressRun(rowValues + ((<usize>row) << 2), edges.valuesOfPivot(pivot), cache.valueStride, count);
}

/** Appends the globals to the list of rows, from `row` on; returns its end. */
function takeGlobals(row: i32): i32 {
  for (let i = 0; i < edges.numGlobals; i++) {
    const index = cache.indexOfPosition(tile.sequence, edges.globalAt(i));
    if (index < 0) continue;
    setInt(rowKeys, row, <i32>cache.keyRowAt(index, tile.kvHead));
    setInt(rowValues, row, <i32>cache.valueRowAt(index, tile.kvHead));
    row += 1;
  }
  return row;
}

/** Whether each of the slots `[begin, end)` holds its own position. Remembers the range found so far for the whole record. */
function holdsWindow(begin: i32, end: i32): bool {
  if (tile.sequence !== heldSequence || begin < heldBegin || begin > heldEnd) {
    heldSequence = tile.sequence;
    heldBegin = begin;
    heldEnd = begin;
  }
  while (heldEnd < end) {
    const count = cache.slotsInBlock(heldEnd, end - heldEnd);
    if (!cache.holdsPositions(cache.slotIndex(tile.sequence, heldEnd), count, heldEnd)) return false;
    heldEnd += count;
  }
  return true;
}

/** Stores the addresses of the slots `[begin, end)` from row `row` on. */
function storeRowAddresses(row: i32, begin: i32, end: i32): void {
  let at = (<usize>row) << 2;
  for (let slot = begin; slot < end;) {
    const count = cache.slotsInBlock(slot, end - slot);
    const index = cache.slotIndex(tile.sequence, slot);
    storeAddressRun(rowKeys + at, cache.keyRowAt(index, tile.kvHead), cache.keyStride, count);
    storeAddressRun(rowValues + at, cache.valueRowAt(index, tile.kvHead), cache.valueStride, count);
    at += (<usize>count) << 2;
    slot += count;
  }
}

/** Stores the addresses of `count` rows that follow each other, rounded up to a multiple of four. */
function storeAddressRun(to: usize, row: usize, stride: usize, count: i32): void {
  let rows = i32x4.add(i32x4.splat(<i32>row), i32x4.mul(i32x4.splat(<i32>stride), i32x4(0, 1, 2, 3)));
  const step = i32x4.splat((<i32>stride) << 2);
  for (const end = to + ((<usize>count) << 2); to < end; to += 16) {
    v128.store(to, rows);
    rows = i32x4.add(rows, step);
  }
}

/** Lists the far keys of the eight lanes from `first` on. */
function listFar(first: i32): void {
  numFar = 0;
  for (let s = edges.firstStride(); op.attributes.logStride && s <= lastPosition && s > 0; s <<= 1) {
    const at = (<usize>numFar) << 5;
    if (!isConsecutive || !listFarRun(at, firstPosition - s)) listFarLanes(at, first, s);
    numFar += 1;
  }
}

/** Lists eight consecutive keys; false when they are not contiguous in the cache or one of them is a global. */
function listFarRun(at: usize, key: i32): bool {
  if (key < 0 || key + 8 > tile.context || cache.slotsInBlock(key, 8) < 8) return false;
  for (let i = 0; i < edges.numGlobals; i++) if (edges.globalAt(i) >= key && edges.globalAt(i) < key + 8) return false;
  const index = cache.slotIndex(tile.sequence, key);
  if (!cache.holdsPositions(index, 8, key)) return false;
  storeAddressRun(farKeys + at, cache.keyRowAt(index, tile.kvHead), cache.keyStride, 8);
  storeAddressRun(farValues + at, cache.valueRowAt(index, tile.kvHead), cache.valueStride, 8);
  v128.store(farHidden + at, i32x4.splat(0));
  v128.store(farHidden + at, i32x4.splat(0), 16);
  return true;
}

function listFarLanes(at: usize, first: i32, distance: i32): void {
  for (let i = 0; i < 8; i++) {
    const key = panels.positionOfLane(first + i) - distance;
    const index = edges.isGlobal(key) ? -1 : cache.indexOfPosition(tile.sequence, key);
    setInt(farKeys + at, i, <i32>(index < 0 ? noRow : cache.keyRowAt(index, tile.kvHead)));
    setInt(farValues + at, i, <i32>(index < 0 ? noRow : cache.valueRowAt(index, tile.kvHead)));
    setInt(farHidden + at, i, index < 0 ? -1 : 0);
  }
}

/** Computes the logits of the far rows. */
function scoreFar(first: i32): void {
  for (let i = 0; i < 8; i++) setInt(queryRows, i, <i32>panels.queryOfLane(first + i));
  const factor = f32x4.splat(cache.scale);
  const none = minusInfinity();
  for (let i = 0; i < numFar; i++) {
    const at = (<usize>i) << 5;
    for (let part: usize = 0; part < 32; part += 16) {
      const logit = cache.capLogits(f32x4.mul(idot4(queryRows + part, farKeys + at + part, cache.headDim), factor));
      v128.store(panels.logitsOf(farRow + i) + part, v128.bitselect(none, logit, v128.load(farHidden + at + part)));
    }
  }
}

/** Adds the far values of the last panel and writes its outputs to rows `[T, N, D]`; false when a number is not finite. */
export function writeWhole(panel: i32, outputs: usize): bool {
  const first = panels.firstLaneOf(panel);
  const stride = cache.valueStride;
  transposeLanes(panels.outputsOf(panel), 32, laneOutputs);
  transposeLanes(panels.outputsOf(panel) + 16, 32, laneOutputs + 4 * stride);
  let check = f32x4.splat(0);
  for (let lane = first; lane < panels.lastLaneOf(panel); lane++) {
    const at = <usize>(lane - first);
    const sum = panels.sumOfLane(lane);
    const y = outputs + panels.rowOfLane(lane) * stride;
    const weights = panels.logitsOf(farRow) + (at << 2);
    axpyIndirect(y, laneOutputs + at * stride, 1, farValues + (at << 2), weights, 32, numFar, stride, stride);
    check = scaleOutput(y, sum === 0 ? 0 : 1 / sum, f32x4.add(check, f32x4.splat(sum * 0)));
  }
  return !v128.any_true(f32x4.ne(check, check));
}

/** Transposes four lanes, whose numbers are `stride` bytes apart, into rows. */
function transposeLanes(from: usize, stride: usize, to: usize): void {
  let i: usize = 0;
  for (; i + 16 <= cache.valueStride; i += 16, from += 4 * stride) {
    const a = v128.load(from);
    const b = v128.load(from + stride);
    const c = v128.load(from + 2 * stride);
    const d = v128.load(from + 3 * stride);
    storeColumns(a, b, c, d, to + i, cache.valueStride, 2 * cache.valueStride);
  }
  for (; i < cache.valueStride; i += 4, from += stride) {
    for (let lane: usize = 0; lane < 4; lane++) {
      store<f32>(to + lane * cache.valueStride + i, load<f32>(from + (lane << 2)));
    }
  }
}

/**
 * Merges the states of the lanes of a panel with those of `online-softmax-row.ts` at `states`, one per lane, and writes the
 * outputs to rows `[T, N, D]`; returns false when a number is not finite.
 * @param rows scratch for four rows of values
 */
export function writeMerged(panel: i32, states: usize, stateBytes: usize, rows: usize, outputs: usize): bool {
  let check = f32x4.splat(0);
  const first = panels.firstLaneOf(panel);
  for (let lane = first; lane < panels.lastLaneOf(panel); lane++) {
    const i = <usize>(lane - first);
    if ((i & 3) === 0) transposeLanes(panels.outputOfLane(lane), panels.rowBytes, rows);
    check = writeLaneMerged(lane, states + i * stateBytes, rows + (i & 3) * cache.valueStride, outputs, check);
  }
  return !v128.any_true(f32x4.ne(check, check));
}

/** `check` becomes NaN when a number is not finite. */
function writeLaneMerged(lane: i32, state: usize, values: usize, outputs: usize, check: v128): v128 {
  const y = outputs + panels.rowOfLane(lane) * cache.valueStride;
  const top = panels.maximumOfLane(lane);
  const other = load<f32>(state);
  let shift: f32 = top < other ? other : top;
  if (shift === -Infinity) shift = 0;
  const weights = weight4(f32x4(top - shift, other - shift, 0, 0));
  const weight = f32x4.extract_lane(weights, 0);
  const otherWeight = f32x4.extract_lane(weights, 1);
  const all = panels.sumOfLane(lane) * weight + load<f32>(state, 4) * otherWeight;
  // the output of a query without keys is zero
  const inverse: f32 = all === 0 ? 0 : 1 / all;
  const factor = f32x4.splat(weight * inverse);
  const otherFactor = f32x4.splat(otherWeight * inverse);
  const zero = f32x4.splat(0);
  const others = state + ROW_STATE;
  check = f32x4.add(check, f32x4.splat((panels.sumOfLane(lane) + load<f32>(state, 4) + inverse) * 0));
  let i: usize = 0;
  for (; i + 16 <= cache.valueStride; i += 16) {
    const value = f32x4.add(f32x4.mul(v128.load(values + i), factor), f32x4.mul(v128.load(others + i), otherFactor));
    v128.store(y + i, value);
    check = f32x4.add(check, f32x4.mul(value, zero));
  }
  for (; i < cache.valueStride; i += 4) {
    const value = load<f32>(values + i) * (weight * inverse) + load<f32>(others + i) * (otherWeight * inverse);
    store<f32>(y + i, value);
    check = f32x4.add(check, f32x4.splat(value * 0));
  }
  return check;
}

/** Scales a row of whole vectors; `check` becomes NaN when a number is not finite. */
function scaleOutput(y: usize, factor: f32, check: v128): v128 {
  for (let i: usize = 0; i < cache.valueStride; i += 16) {
    const value = f32x4.mul(v128.load(y + i), f32x4.splat(factor));
    v128.store(y + i, value);
    check = fma(value, f32x4.splat(0), check);
  }
  return check;
}
