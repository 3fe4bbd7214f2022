/**
 * Panels of eight queries whose keys are all rows of one step of the softmax: window, landmarks and globals, which the
 * queries share, and the distances beyond the window, where every query has a key of its own. For causal models without a
 * window of their own, rows of f32, numbers of columns that are multiples of four; other panels do without.
 */
import { isPlain, keyRowAt, positionAt, positionsAt, slotIndex, slotsInBlock, valueRowAt } from './kv-cache-view';
import { minusInfinity } from '../simd/constants';
import { countSharedGlobals, isThere, pivotOf, sharesGlobals } from './landmarks';
import { idot4, igemm4x8Split, igemm6x8, igemmT4x8, igemmT6x8 } from '../gemm/f32-igemm.generated';
import { hidePivot, layPivots, listPivot, raisePivots, sizeOfPivot, takePivot } from './landmark-pivots';
import {
  PANEL_ROWS,
  capRows,
  capScores,
  firstLaneOf,
  headOfLane,
  hideRow,
  isPanelOfEight,
  lastLaneOf,
  logitsOf,
  outputsOf,
  positionOfLane,
  queriesOf,
  queryOfLane,
  sumOfLane,
  tokenOfLane,
  weighRows,
} from './query-panels';
import { attributeF, attributeI, dim } from '../runtime/record';
import { countGlobals, globalAt, isGlobal } from './subquadratic-edges';
import { turn, writeRow } from './store-outputs';

/** Most distances beyond the window. */
const MAX_DISTANCES: i32 = 32;
/** Lanes of a vector, and rows that a half of a panel sees and the other one does not. */
const HALF: i32 = 4;

/** Lanes behind, and lanes before, the i-th one. */
const afterLane = memory.data<i32>([0, -1, -1, -1, 0, 0, -1, -1, 0, 0, 0, -1, 0, 0, 0, 0], 16);
const beforeLane = memory.data<i32>([0, 0, 0, 0, -1, 0, 0, 0, -1, -1, 0, 0, -1, -1, -1, 0], 16);

let isPossible: bool = false;
let hasStride: bool = false;
let local: i32 = 0;
let headDim: i32 = 0;
let valueDim: i32 = 0;

// scratch: addresses of rows, u32
let rowKeys: usize = 0;
let rowValues: usize = 0;
let queryRows: usize = 0;
let farKeys: usize = 0; // [distance, 8]
let farValues: usize = 0;
let farHidden: usize = 0; // i32, -1 where a query has no such key
let farCounts: usize = 0; // i32[8]
let noRow: usize = 0;
let sums: usize = 0; // [8, valueDim]

let heldBegin: i32 = 0;
let heldEnd: i32 = 0;
let heldSequence: i32 = -1;

let numFar: i32 = 0;
let farRow: i32 = 0;

/** Lays out scratch, after `layEdges` and `layLandmarks`; `wholeBytes` of the host is its size. */
export function layWhole(scratch: usize): void {
  local = min<i32>(attributeI(4), i32.MAX_VALUE - 1); // a window and one more is a distance too
  hasStride = attributeI(5) !== 0;
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  isPossible = sharesGlobals() && isPlain() && ((headDim | valueDim) & 3) === 0;
  rowKeys = scratch;
  rowValues = rowKeys + (<usize>PANEL_ROWS + 16) * 4;
  queryRows = rowValues + (<usize>PANEL_ROWS + 16) * 4;
  farKeys = queryRows + 32;
  farValues = farKeys + <usize>MAX_DISTANCES * 32;
  farHidden = farValues + <usize>MAX_DISTANCES * 32;
  farCounts = farHidden + <usize>MAX_DISTANCES * 32;
  noRow = layPivots(farCounts + 32);
  sums = noRow + ((<usize>max<i32>(headDim, valueDim)) << 2);
  if (isPossible) memory.fill(noRow, 0, (<usize>max<i32>(headDim, valueDim)) << 2);
  heldSequence = -1;
}

/** Computes the weights and sums of a panel; false where it is not one of these, and then nothing was done. */
export function attendWhole(panel: i32, sequence: i32, context: i32, kvHead: i32, back: i32): bool {
  if (!isPossible || !isPanelOfEight()) return false;
  const first = firstLaneOf(panel);
  const last = lastLaneOf(panel);
  let low = positionOfLane(first);
  let high = low;
  let isRun = last - first === 8;
  for (let lane = first + 1; lane < last; lane++) {
    const position = positionOfLane(lane);
    if (position !== positionOfLane(lane - 1) + 1) isRun = false;
    low = min<i32>(low, position);
    high = max<i32>(high, position);
  }
  const begin = max<i32>(0, low - back);
  if (high >= context || high - low > PANEL_ROWS) return false;
  const pivot = pivotOf(low);
  const lastPivot = pivotOf(high);
  if (lastPivot > pivot + 1) return false;
  const landmarks = listPivot(pivot, sequence, context, kvHead);
  const lastLandmarks = lastPivot === pivot ? 0 : listPivot(lastPivot, sequence, context, kvHead);
  const count = high + 1 - begin + landmarks + lastLandmarks + countGlobals();
  if (count + MAX_DISTANCES > PANEL_ROWS) return false;
  if (!holdsWindow(begin, high + 1, sequence)) return false;
  listFar(first, low, high, isRun, sequence, context, kvHead);

  // rows [0, shared) are those of all lanes, `splits` follow
  const splits = isRun && low >= back && back >= HALF ? HALF : 0;
  const windowRows = high + 1 - begin - 2 * splits;
  listRows(0, begin + splits, high + 1 - splits, sequence, kvHead);
  takePivot(pivot, rowKeys, rowValues, windowRows);
  if (lastPivot !== pivot) takePivot(lastPivot, rowKeys, rowValues, windowRows + landmarks);
  const shared = takeGlobals(windowRows + landmarks + lastLandmarks, sequence, context, kvHead);
  const queries = queriesOf(panel);
  const splitKeys = rowKeys + ((<usize>shared) << 2);
  for (let i: usize = 0; i < 6; i++) store<u32>(splitKeys + (i << 2), load<u32>(splitKeys - 4));
  for (let i = 0; i < shared; i += 6) igemm6x8(logitsOf(i), rowKeys + ((<usize>i) << 2), queries, headDim);
  farRow = shared + splits;
  if (splits > 0) {
    // in this order: addresses behind the last one of a list are written too
    listRows(shared, begin, begin + HALF, sequence, kvHead);
    listRows(shared + HALF, high + 1 - HALF, high + 1, sequence, kvHead);
    igemm4x8Split(logitsOf(shared), splitKeys, splitKeys + 4 * HALF, queries, headDim);
  }
  capRows(farRow);
  if (splits > 0) {
    hideEnds(windowRows, shared);
  } else {
    // rows that all lanes see are [high - back, low]
    for (let j = begin; j < high - back; j++) hideRow(panel, j - begin, j, 0, back);
    for (let j = max<i32>(begin, low + 1); j <= high; j++) hideRow(panel, j - begin, j, 0, back);
  }
  raisePivots(windowRows, landmarks + lastLandmarks);
  if (lastPivot !== pivot) {
    hidePivot(panel, windowRows, landmarks, pivot);
    hidePivot(panel, windowRows + landmarks, lastLandmarks, lastPivot);
  }
  for (let i = windowRows + landmarks + lastLandmarks, g = 0; i < shared; g++) {
    const global = globalAt(g);
    if (!isThere(global, sequence, context)) continue;
    if (low - global <= local) hideRow(panel, i, global, local + 1, i32.MAX_VALUE);
    i += 1;
  }
  scoreFar(first);
  weighRows(panel, farRow + numFar);

  const outputs = outputsOf(panel);
  const weights = logitsOf(0);
  const highs = rowValues + ((<usize>(shared + HALF)) << 2);
  const wide = (valueDim / 12) * 12;
  let d = 0;
  for (; d < wide; d += 6) {
    igemmT6x8(outputs + ((<usize>d) << 5), rowValues, (<usize>d) << 2, weights, shared, highs, splits);
  }
  for (; d < valueDim; d += 4) {
    igemmT4x8(outputs + ((<usize>d) << 5), rowValues, (<usize>d) << 2, weights, shared, highs, splits);
  }
  return true;
}

/** The window's ends in panels of neighbours: three rows on either side, and rows that are split. */
function hideEnds(windowRows: i32, splitRow: i32): void {
  const none = minusInfinity();
  for (let i = 0; i < HALF; i++) {
    const after = v128.load(afterLane + ((<usize>i) << 4));
    const before = v128.load(beforeLane + ((<usize>i) << 4));
    hide(logitsOf(i) + 16, none, after);
    hide(logitsOf(windowRows - HALF + i), none, before);
    hide(logitsOf(splitRow + i), none, after);
    hide(logitsOf(splitRow + i) + 16, none, before);
  }
}

function hide(at: usize, none: v128, mask: v128): void {
  v128.store(at, v128.bitselect(none, v128.load(at), mask));
}

/** Keys that a query of the panel just attended to has. */
export function countWhole(lane: i32, sequence: i32, context: i32, back: i32): i32 {
  const position = positionOfLane(lane);
  const far = load<i32>(farCounts + ((<usize>(lane & 7)) << 2));
  const landmarks = sizeOfPivot(pivotOf(position));
  return far + landmarks + countSharedGlobals(position, sequence, context) + min<i32>(position, back) + 1;
}

/** Globals become rows from `row` on; returns where they end. */
function takeGlobals(row: i32, sequence: i32, context: i32, kvHead: i32): i32 {
  for (let i = 0; i < countGlobals(); i++) {
    if (!isThere(globalAt(i), sequence, context)) continue;
    const index = slotIndex(sequence, globalAt(i));
    store<u32>(rowKeys + ((<usize>row) << 2), <u32>keyRowAt(index, kvHead));
    store<u32>(rowValues + ((<usize>row) << 2), <u32>valueRowAt(index, kvHead));
    row += 1;
  }
  return row;
}

/** Whether the slots `[begin, end)` hold their positions; what was found once is true until the record ends. */
function holdsWindow(begin: i32, end: i32, sequence: i32): bool {
  if (sequence !== heldSequence || begin < heldBegin || begin > heldEnd) {
    heldSequence = sequence;
    heldBegin = begin;
    heldEnd = begin;
  }
  while (heldEnd < end) {
    const count = slotsInBlock(heldEnd, end - heldEnd);
    if (!holdsRun(slotIndex(sequence, heldEnd), count, heldEnd)) return false;
    heldEnd += count;
  }
  return true;
}

/** The slots `[begin, end)` become rows from `row` on. */
function listRows(row: i32, begin: i32, end: i32, sequence: i32, kvHead: i32): void {
  let at = (<usize>row) << 2;
  for (let slot = begin; slot < end;) {
    const count = slotsInBlock(slot, end - slot);
    const index = slotIndex(sequence, slot);
    listRun(rowKeys + at, keyRowAt(index, kvHead), (<usize>headDim) << 2, count);
    listRun(rowValues + at, valueRowAt(index, kvHead), (<usize>valueDim) << 2, count);
    at += (<usize>count) << 2;
    slot += count;
  }
}

/** Addresses of rows side by side, some more than `count`. */
function listRun(to: usize, row: usize, stride: usize, count: i32): void {
  let rows = i32x4.add(i32x4.splat(<i32>row), i32x4.mul(i32x4.splat(<i32>stride), i32x4(0, 1, 2, 3)));
  const step = i32x4.splat((<i32>stride) << 2);
  for (const end = to + ((<usize>count) << 2); to < end; to += 16) {
    v128.store(to, rows);
    rows = i32x4.add(rows, step);
  }
}

/** Whether slots side by side hold the positions from `position` on. */
function holdsRun(index: i32, count: i32, position: i32): bool {
  let at = positionsAt(index);
  let expected = i32x4.add(i32x4.splat(position), i32x4(0, 1, 2, 3));
  const four = i32x4.splat(4);
  let differs = i32x4.splat(0);
  let i = 0;
  for (; i + 4 <= count; i += 4, at += 16) {
    differs = v128.or(differs, v128.xor(v128.load(at), expected));
    expected = i32x4.add(expected, four);
  }
  for (; i < count; i++, at += 4) if (load<i32>(at) !== position + i) return false;
  return !v128.any_true(differs);
}

/** Finds the keys at distances beyond the window. */
function listFar(first: i32, low: i32, high: i32, isRun: bool, sequence: i32, context: i32, kvHead: i32): void {
  let count = 0;
  let seenLow = i32x4.splat(0);
  let seenHigh = seenLow;
  for (let s = local < 1 ? 1 : 1 << (32 - clz(local)); hasStride && s <= high && s > 0; s <<= 1) {
    const at = (<usize>count) << 5;
    if (!isRun || !listFarRun(at, low - s, sequence, context, kvHead)) {
      listFarLanes(at, first, s, sequence, context, kvHead);
    }
    // a hidden one counts -1
    seenLow = i32x4.add(seenLow, i32x4.add(i32x4.splat(1), v128.load(farHidden + at)));
    seenHigh = i32x4.add(seenHigh, i32x4.add(i32x4.splat(1), v128.load(farHidden + at, 16)));
    count += 1;
  }
  v128.store(farCounts, seenLow);
  v128.store(farCounts, seenHigh, 16);
  numFar = count;
}

/** Eight keys side by side, none of them a global. */
function listFarRun(at: usize, key: i32, sequence: i32, context: i32, kvHead: i32): bool {
  if (key < 0 || key + 8 > context || slotsInBlock(key, 8) < 8) return false;
  for (let i = 0; i < countGlobals(); i++) if (globalAt(i) >= key && globalAt(i) < key + 8) return false;
  const index = slotIndex(sequence, key);
  if (!holdsRun(index, 8, key)) return false;
  listRun(farKeys + at, keyRowAt(index, kvHead), (<usize>headDim) << 2, 8);
  listRun(farValues + at, valueRowAt(index, kvHead), (<usize>valueDim) << 2, 8);
  v128.store(farHidden + at, i32x4.splat(0));
  v128.store(farHidden + at, i32x4.splat(0), 16);
  return true;
}

function listFarLanes(at: usize, first: i32, distance: i32, sequence: i32, context: i32, kvHead: i32): void {
  for (let i = 0; i < 8; i++, at += 4) {
    const key = positionOfLane(first + i) - distance;
    let index = -1;
    if (key >= 0 && key < context && !isGlobal(key)) {
      index = slotIndex(sequence, key);
      if (positionAt(index) !== key) index = -1;
    }
    store<u32>(farKeys + at, <u32>(index < 0 ? noRow : keyRowAt(index, kvHead)));
    store<u32>(farValues + at, <u32>(index < 0 ? noRow : valueRowAt(index, kvHead)));
    store<i32>(farHidden + at, index < 0 ? -1 : 0);
  }
}

/** Their scores are rows behind the shared ones. */
function scoreFar(first: i32): void {
  for (let i = 0; i < 8; i++) store<u32>(queryRows + ((<usize>i) << 2), <u32>queryOfLane(first + i));
  const scale = f32x4.splat(attributeF(0));
  const none = minusInfinity();
  for (let i = 0; i < numFar; i++) {
    const at = (<usize>i) << 5;
    for (let part: usize = 0; part < 32; part += 16) {
      const score = capScores(f32x4.mul(idot4(queryRows + part, farKeys + at + part, headDim), scale));
      v128.store(logitsOf(farRow + i) + part, v128.bitselect(none, score, v128.load(farHidden + at + part)));
    }
  }
}

/** Writes the outputs of the panel just attended to, to rows `[T, N, D]`; false where something is not finite. */
export function writeWhole(panel: i32, outputs: usize): bool {
  const first = firstLaneOf(panel);
  const stride = (<usize>valueDim) << 2;
  turn(outputsOf(panel), sums, stride);
  turn(outputsOf(panel) + 16, sums + 4 * stride, stride);
  let check = f32x4.splat(0);
  for (let lane = first; lane < lastLaneOf(panel); lane++) {
    const at = <usize>(lane - first);
    const sum = sumOfLane(lane);
    const inverse = f32x4.splat(sum === 0 ? 0 : 1 / sum);
    check = f32x4.add(check, f32x4.splat(sum * 0));
    const y = outputs + <usize>(tokenOfLane(lane) * dim(0, 1) + headOfLane(lane)) * stride;
    const weights = logitsOf(farRow) + (at << 2);
    check = writeRow(sums + at * stride, farValues + (at << 2), weights, numFar, inverse, y, stride, check);
  }
  return !v128.any_true(f32x4.ne(check, check));
}
