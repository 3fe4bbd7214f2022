/**
 * Attention to a window, to globals, to distances 1, 2, 4, ... and to landmarks. The window of a tile of queries is a small
 * dense problem: rows of keys meet panels of eight queries, each panel only the rows of its own windows. The few keys elsewhere
 * are found query by query, without a list over the context, and join the same softmax.
 * Units: (token tile, KV head and head tile).
 * Tensors: as in `cache-view.ts`, 8 keyMeans, 9 valueMeans, 10 meanCounts, 11 y, 12 pairs.
 * Attributes: 4 local, 5 logStride, 6 landmarks (0 off, 1 compat, 2 outside-window), 7 logCount, 8... globals.
 */
import {
  cacheBlock,
  contextOfSequence,
  enterCache,
  keyOf,
  keysOf,
  modelReach,
  positionAt,
  positionOfToken,
  runEnd,
  sequenceOfToken,
  slotIndex,
  slotsInBlock,
  valueOf,
  valuesOf,
} from '../cache-view';
import {
  LANES,
  PANEL_ROWS,
  capRows,
  dropRow,
  firstLaneOf,
  headOfLane,
  hideRow,
  lastLaneOf,
  layPanels,
  maximumOfLane,
  numPanels,
  openPanels,
  outputOfLane,
  outputStride,
  positionOfLane,
  raiseRow,
  scoreRows,
  sumOfLane,
  sumRows,
  tokenOfLane,
  weighRows,
} from '../query-panels';
import { addressOf, attributeF, attributeI, dim, localScratch } from '../record';
import { ENTRY_BYTES, ROW_STATE, clearRow, pushRows, setEntry, setRowSoftmax } from '../row-softmax';
import { weight4 } from '../simd';
import { takeUnits } from '../threads';

/** Rows of keys that are decoded at a time. */
export const SPAN: i32 = 512;
/** Most keys of a query outside of its window: globals, two sides of distances, two sides of landmarks. */
export const MAX_EDGES: i32 = 160;
const MAX_GLOBALS: i32 = 16;
/** Rows taken at a time where a query is computed alone. */
const ALONE: i32 = 64;

let isCausal: bool = true;
let local: i32 = 0;
let reach: i32 = 0; // of the model
let landmarks: i32 = 0;
let partSize: i32 = 1;
let numParts: i32 = 1;
let headDim: i32 = 0;
let valueDim: i32 = 0;

// scratch behind the panels
let pieces: usize = 0; // first slot, rows, keys, values
let numPieces: i32 = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;
let entries: usize = 0;
let edgeKeys: usize = 0;
let edgeValues: usize = 0;
let states: usize = 0;
let stateBytes: usize = 0;
let hasHoles: bool = false;
let globals: usize = 0;
let numGlobals: i32 = 0;
let hasStride: bool = false;

// landmarks of the pivot they were gathered for, side by side, when they depend on nothing else
let sharesLandmarks: bool = false;
let gatheredPivot: i32 = -1;
let gatheredHead: i32 = -1;
let gatheredSequence: i32 = -1;
let numGathered: i32 = 0;
let gatheredKeys: usize = 0;
let gatheredValues: usize = 0;
/** Most landmarks of a pivot: itself, and distances of powers of two. */
const LANDMARK_ROWS: i32 = 40;

export function subquadraticAttention(): void {
  enterCache();
  isCausal = attributeI(1) != 0;
  local = attributeI(4);
  reach = modelReach();
  landmarks = attributeI(6);
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  numParts = landmarks == 0 ? 1 : dim(8, 1);
  partSize = dim(3, 2) / numParts;
  setRowSoftmax(attributeF(0), attributeF(3));
  pieces = layPanels(localScratch());
  keyRows = pieces + <usize>SPAN * 16;
  valueRows = keyRows + <usize>SPAN * (<usize>headDim << 2);
  entries = valueRows + <usize>SPAN * (<usize>valueDim << 2) + 64;
  edgeKeys = entries + <usize>MAX_EDGES * ENTRY_BYTES;
  edgeValues = edgeKeys + <usize>MAX_EDGES * (<usize>headDim << 2);
  states = edgeValues + <usize>MAX_EDGES * (<usize>valueDim << 2);
  stateBytes = ROW_STATE + (<usize>((valueDim + 7) & ~3) << 2);
  gatheredKeys = states + 8 * stateBytes;
  gatheredValues = gatheredKeys + <usize>LANDMARK_ROWS * (<usize>headDim << 2);
  globals = gatheredValues + <usize>LANDMARK_ROWS * (<usize>valueDim << 2) + 64;
  hasStride = attributeI(5) != 0;
  numGlobals = 0;
  for (let i = 0; i < MAX_GLOBALS; i++) {
    const global = attributeI(8 + i);
    if (global < 0 || isGlobal(global)) continue;
    store<i32>(globals + (<usize>numGlobals << 2), global);
    numGlobals += 1;
  }
  sharesLandmarks = landmarks == 1 && isCausal && reach == i32.MAX_VALUE;
  gatheredPivot = -1;

  const numTokens = dim(0, 0);
  const numKvHeads = dim(3, 1);
  const groupSize = dim(0, 1) / numKvHeads;
  const headTile = min<i32>(groupSize, LANES);
  const numHeadTiles = (groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, LANES / headTile);
  const numTokenTiles = (numTokens + tokenTile - 1) / tokenTile;
  const numUnits = numTokenTiles * numKvHeads * numHeadTiles;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    // one KV head after the other: what distances reach back to stays in the nearest caches
    const tile = unit / (numHeadTiles * numKvHeads);
    const tileOfHead = unit % numHeadTiles;
    const kvHead = (unit / numHeadTiles) % numKvHeads;
    const lastToken = min<i32>(numTokens, (tile + 1) * tokenTile);
    const h0 = kvHead * groupSize + tileOfHead * headTile;
    const h1 = min<i32>((kvHead + 1) * groupSize, h0 + headTile);
    for (let t = tile * tokenTile; t < lastToken; ) {
      const end = runEnd(t, lastToken);
      attendRun(t, end, kvHead, h0, h1);
      t = end;
    }
  }
}

/** Tokens `[t0, t1)` of one sequence. */
function attendRun(t0: i32, t1: i32, kvHead: i32, h0: i32, h1: i32): void {
  const sequence = sequenceOfToken(t0);
  const context = contextOfSequence(sequence);
  let low = i32.MAX_VALUE;
  let high = 0;
  for (let t = t0; t < t1; t++) {
    low = min<i32>(low, positionOfToken(t));
    high = max<i32>(high, positionOfToken(t));
  }
  const back = min<i32>(min<i32>(local, reach), max<i32>(context, high) + 1);
  const ahead = isCausal ? 0 : back;
  openPanels(t0, t1, h0, h1);
  const end = min<i32>(context, high + ahead + 1);
  for (let span = max<i32>(0, low - back); span < end; span += SPAN) {
    const spanEnd = min<i32>(end, span + SPAN);
    layPieces(sequence, kvHead, span, spanEnd);
    for (let panel = 0; panel < numPanels; panel++) attendWindow(panel, sequence, span, spanEnd, back, ahead);
  }
  let lastListed = -1;
  let numEdges = 0;
  for (let panel = 0; panel < numPanels; panel++) {
    const first = firstLaneOf(panel);
    const last = lastLaneOf(panel);
    const inPanels = sharesLandmarks && hasFewPivots(first, last);
    lastListed = -1; // gathering landmarks takes the place of the list
    if (inPanels) attendLandmarks(panel, first, last, sequence, context, kvHead);
    for (let lane = first; lane < last; lane++) {
      const token = tokenOfLane(lane);
      if (token != lastListed) {
        const position = positionOfToken(token);
        const counts = kvHead == 0 && headOfLane(lane) == 0;
        let seen = counts && inPanels ? gatherLandmarks(position, sequence, context, kvHead) : 0;
        numEdges = listEdges(position, sequence, context, kvHead, inPanels);
        lastListed = token;
        if (counts) {
          seen += numEdges + countWindow(position, sequence, context, back, ahead);
          store<i32>(addressOf(12) + (<usize>token << 2), seen);
        }
      }
      const state = states + <usize>(lane - first) * stateBytes;
      clearRow(state, valueDim);
      pushRows(queryOf(lane), headDim, valueDim, entries, numEdges, state);
    }
    if (writePanel(first, last)) continue;
    for (let lane = first; lane < last; lane++) attendAlone(lane, sequence, context, kvHead, back, ahead);
    lastListed = -1;
  }
}

function queryOf(lane: i32): usize {
  return addressOf(0) + (<usize>(tokenOfLane(lane) * dim(0, 1) + headOfLane(lane)) * <usize>headDim << 2);
}

/** Rows of the slots `[begin, end)`, block by block. */
function layPieces(sequence: i32, kvHead: i32, begin: i32, end: i32): void {
  numPieces = 0;
  hasHoles = false;
  for (let slot = begin; slot < end; ) {
    const count = slotsInBlock(slot, end - slot);
    const index = slotIndex(sequence, slot);
    const at = pieces + (<usize>numPieces << 4);
    const row = <usize>(slot - begin);
    store<i32>(at, slot);
    store<i32>(at, count, 4);
    store<u32>(at, <u32>keysOf(index, kvHead, count, keyRows + row * (<usize>headDim << 2)), 8);
    store<u32>(at, <u32>valuesOf(index, kvHead, count, valueRows + row * (<usize>valueDim << 2)), 12);
    for (let i = 0; i < count; i++) if (positionAt(index + i) != slot + i) hasHoles = true;
    numPieces += 1;
    slot += count;
  }
}

/** One panel meets the rows of the span that lie in a window of its lanes. */
function attendWindow(panel: i32, sequence: i32, span: i32, spanEnd: i32, back: i32, ahead: i32): void {
  let low = i32.MAX_VALUE;
  let high = 0;
  for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
    low = min<i32>(low, positionOfLane(lane));
    high = max<i32>(high, positionOfLane(lane));
  }
  const end = min<i32>(spanEnd, high + ahead + 1);
  for (let begin = max<i32>(span, low - back); begin < end; begin += PANEL_ROWS) {
    const stop = min<i32>(end, begin + PANEL_ROWS);
    const count = stop - begin;
    for (let piece = 0; piece < numPieces; piece++) {
      const at = pieces + (<usize>piece << 4);
      const first = max<i32>(begin, load<i32>(at));
      const last = min<i32>(stop, load<i32>(at) + load<i32>(at, 4));
      if (first >= last) continue;
      const skipped = <usize>(first - load<i32>(at)) * (<usize>headDim << 2);
      scoreRows(panel, <usize>load<u32>(at, 8) + skipped, last - first, first - begin);
    }
    capRows(count);
    // rows that all lanes see are [high - back, low + ahead]
    for (let j = begin; j < min<i32>(stop, high - back); j++) hideRow(panel, j - begin, j, -ahead, back);
    for (let j = max<i32>(begin, low + ahead + 1); j < stop; j++) hideRow(panel, j - begin, j, -ahead, back);
    if (hasHoles) {
      for (let j = begin; j < stop; j++) if (positionAt(slotIndex(sequence, j)) != j) dropRow(j - begin);
    }
    weighRows(panel, count);
    for (let piece = 0; piece < numPieces; piece++) {
      const at = pieces + (<usize>piece << 4);
      const first = max<i32>(begin, load<i32>(at));
      const last = min<i32>(stop, load<i32>(at) + load<i32>(at, 4));
      if (first >= last) continue;
      const skipped = <usize>(first - load<i32>(at)) * (<usize>valueDim << 2);
      sumRows(panel, <usize>load<u32>(at, 12) + skipped, last - first, first - begin);
    }
  }
}

function countWindow(position: i32, sequence: i32, context: i32, back: i32, ahead: i32): i32 {
  const begin = max<i32>(0, position - back);
  const end = min<i32>(context, position + ahead + 1);
  if (!hasHoles) return max<i32>(0, end - begin);
  let count = 0;
  for (let j = begin; j < end; j++) if (positionAt(slotIndex(sequence, j)) == j) count += 1;
  return count;
}

/** Lists the keys outside of the window, and returns their number. */
function listEdges(position: i32, sequence: i32, context: i32, kvHead: i32, inPanels: bool): i32 {
  let count = 0;
  for (let i = 0; i < numGlobals; i++) {
    const global = load<i32>(globals + (<usize>i << 2));
    count = addToken(global, position, sequence, context, kvHead, count);
  }
  const farthest = max<i32>(position, context - 1 - position);
  if (hasStride) {
    // the first power of two beyond the window
    for (let s = local < 1 ? 1 : 1 << (32 - clz(local)); s <= farthest && s > 0; s <<= 1) {
      if (position >= s && !isGlobal(position - s)) {
        count = addToken(position - s, position, sequence, context, kvHead, count);
      }
      if (!isCausal && !isGlobal(position + s)) {
        count = addToken(position + s, position, sequence, context, kvHead, count);
      }
    }
  }
  if (landmarks == 0 || (sharesLandmarks && inPanels)) return count;
  return listLandmarks(position, sequence, context, kvHead, count);
}

function listLandmarks(position: i32, sequence: i32, context: i32, kvHead: i32, begin: i32): i32 {
  let count = begin;
  const farthest = max<i32>(position, context - 1 - position);
  const pivot = isCausal ? (position + 1) / partSize - 1 : position / partSize;
  if (isCausal) count = addLandmark(pivot, position, sequence, context, kvHead, count);
  for (let s = 1; s == 1 || (hasStride && s <= farthest / partSize + 1 && s > 0); s <<= 1) {
    count = addLandmark(pivot - s, position, sequence, context, kvHead, count);
    if (!isCausal) count = addLandmark(pivot + s, position, sequence, context, kvHead, count);
  }
  return count;
}

function isGlobal(position: i32): bool {
  for (let i = 0; i < numGlobals; i++) if (load<i32>(globals + (<usize>i << 2)) == position) return true;
  return false;
}

function pivotOf(position: i32): i32 {
  return (position + 1) / partSize - 1;
}

/** Whether the lanes of a panel have at most two pivots, as neighbours in a sequence do. */
function hasFewPivots(first: i32, last: i32): bool {
  let changes = 0;
  for (let lane = first + 1; lane < last; lane++) {
    if (pivotOf(positionOfLane(lane)) != pivotOf(positionOfLane(lane - 1))) changes += 1;
  }
  return changes <= 1;
}

/** All lanes of a pivot see the same landmarks: these are rows of one more step of the panel. */
function attendLandmarks(panel: i32, first: i32, last: i32, sequence: i32, context: i32, kvHead: i32): void {
  for (let lane = first; lane < last; lane++) {
    const position = positionOfLane(lane);
    const pivot = pivotOf(position);
    if (lane > first && pivot == pivotOf(positionOfLane(lane - 1))) continue;
    const count = gatherLandmarks(position, sequence, context, kvHead);
    if (count == 0) continue;
    scoreRows(panel, gatheredKeys, count, 0);
    capRows(count);
    const logCount: f32 = attributeI(7) == 0 ? 0 : <f32>Math.log(<f64>partSize);
    for (let row = 0; row < count; row++) {
      if (logCount != 0) raiseRow(row, logCount);
      // positions of the lanes with this pivot: [(pivot + 1) * partSize - 1, (pivot + 2) * partSize - 1)
      hideRow(panel, row, (pivot + 1) * partSize - 1, 0, partSize - 1);
    }
    weighRows(panel, count);
    sumRows(panel, gatheredValues, count, 0);
  }
}

/** The landmarks of the pivot of a position, side by side; returns their number. */
function gatherLandmarks(position: i32, sequence: i32, context: i32, kvHead: i32): i32 {
  const pivot = pivotOf(position);
  if (pivot == gatheredPivot && sequence == gatheredSequence && kvHead == gatheredHead) return numGathered;
  numGathered = listLandmarks(position, sequence, context, kvHead, 0);
  for (let i = 0; i < numGathered; i++) {
    const at = entries + <usize>i * ENTRY_BYTES;
    memory.copy(gatheredKeys + <usize>i * (<usize>headDim << 2), load<u32>(at), <usize>headDim << 2);
    memory.copy(gatheredValues + <usize>i * (<usize>valueDim << 2), load<u32>(at, 4), <usize>valueDim << 2);
  }
  gatheredPivot = pivot;
  gatheredSequence = sequence;
  gatheredHead = kvHead;
  return numGathered;
}

/** Whether the model lets the query see a position. */
function isVisible(position: i32, key: i32): bool {
  const distance = position - key;
  return isCausal ? distance >= 0 && distance <= reach : abs<i32>(distance) <= reach;
}

function addToken(key: i32, position: i32, sequence: i32, context: i32, kvHead: i32, count: i32): i32 {
  if (key < 0 || key >= context || abs<i32>(position - key) <= local || !isVisible(position, key)) return count;
  const index = slotIndex(sequence, key);
  if (positionAt(index) != key) return count;
  const keyAt = keyOf(index, kvHead, edgeKeys + <usize>count * (<usize>headDim << 2));
  const valueAt = valueOf(index, kvHead, edgeValues + <usize>count * (<usize>valueDim << 2));
  setEntry(entries, count, keyAt, valueAt, 0);
  return count + 1;
}

function addLandmark(block: i32, position: i32, sequence: i32, context: i32, kvHead: i32, count: i32): i32 {
  const first = block * partSize;
  if (block < 0 || first >= context) return count;
  const last = min<i32>(context, first + partSize) - 1;
  if (isCausal && last != first + partSize - 1) return count;
  if (!isVisible(position, first) || !isVisible(position, last)) return count;
  if (landmarks == 2 && isCovered(position, first, last)) return count;
  const part = cacheBlock(sequence, first) * numParts + block % numParts;
  const summary = <usize>(part * dim(3, 1) + kvHead);
  if (load<i32>(addressOf(10) + (summary << 2)) != last - first + 1) return count;
  const bias: f32 = attributeI(7) == 0 ? 0 : <f32>Math.log(<f64>(last - first + 1));
  const key = addressOf(8) + summary * (<usize>headDim << 2);
  setEntry(entries, count, key, addressOf(9) + summary * (<usize>valueDim << 2), bias);
  return count + 1;
}

/** Whether every token of a block is a key of its own. */
function isCovered(position: i32, first: i32, last: i32): bool {
  for (let j = first; j <= last; j++) {
    const distance = abs<i32>(position - j);
    if (distance <= local) {
      // the window covers up to here
      if (j < position) j = min<i32>(last, position);
      continue;
    }
    if (hasStride && (distance & (distance - 1)) == 0) continue;
    if (!isGlobal(j)) return false;
  }
  return true;
}

/** Merges window and edges of the lanes of a panel and writes their outputs; false where something is not finite. */
function writePanel(first: i32, last: i32): bool {
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
      const y = addressOf(11) + (<usize>row * <usize>valueDim << 2);
      if (i == 0) {
        y0 = y;
        s0 = state;
        top = f32x4.replace_lane(top, 0, maximumOfLane(lane));
        sum = f32x4.replace_lane(sum, 0, sumOfLane(lane));
        edgeTop = f32x4.replace_lane(edgeTop, 0, load<f32>(state));
        edgeSum = f32x4.replace_lane(edgeSum, 0, load<f32>(state, 4));
      } else if (i == 1) {
        y1 = y;
        s1 = state;
        top = f32x4.replace_lane(top, 1, maximumOfLane(lane));
        sum = f32x4.replace_lane(sum, 1, sumOfLane(lane));
        edgeTop = f32x4.replace_lane(edgeTop, 1, load<f32>(state));
        edgeSum = f32x4.replace_lane(edgeSum, 1, load<f32>(state, 4));
      } else if (i == 2) {
        y2 = y;
        s2 = state;
        top = f32x4.replace_lane(top, 2, maximumOfLane(lane));
        sum = f32x4.replace_lane(sum, 2, sumOfLane(lane));
        edgeTop = f32x4.replace_lane(edgeTop, 2, load<f32>(state));
        edgeSum = f32x4.replace_lane(edgeSum, 2, load<f32>(state, 4));
      } else {
        y3 = y;
        s3 = state;
        top = f32x4.replace_lane(top, 3, maximumOfLane(lane));
        sum = f32x4.replace_lane(sum, 3, sumOfLane(lane));
        edgeTop = f32x4.replace_lane(edgeTop, 3, load<f32>(state));
        edgeSum = f32x4.replace_lane(edgeSum, 3, load<f32>(state, 4));
      }
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
      const column = <usize>d << 2;
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
      const column = <usize>d << 2;
      check = put1(f32x4.extract_lane(a, 0), y0 + column, s0 + column, f32x4.extract_lane(edgeFactor, 0), check);
      if (count > 1) check = put1(f32x4.extract_lane(a, 1), y1 + column, s1 + column, f32x4.extract_lane(edgeFactor, 1), check);
      if (count > 2) check = put1(f32x4.extract_lane(a, 2), y2 + column, s2 + column, f32x4.extract_lane(edgeFactor, 2), check);
      if (count > 3) check = put1(f32x4.extract_lane(a, 3), y3 + column, s3 + column, f32x4.extract_lane(edgeFactor, 3), check);
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

/** One query, only keys that it sees: where something is not finite, nothing of other keys may come in. */
function attendAlone(lane: i32, sequence: i32, context: i32, kvHead: i32, back: i32, ahead: i32): void {
  const position = positionOfLane(lane);
  const query = queryOf(lane);
  clearRow(states, valueDim);
  pushRows(query, headDim, valueDim, entries, listEdges(position, sequence, context, kvHead, false), states);
  const end = min<i32>(context, position + ahead + 1);
  for (let begin = max<i32>(0, position - back); begin < end; begin += ALONE) {
    let count = 0;
    for (let j = begin; j < min<i32>(end, begin + ALONE); j++) {
      const index = slotIndex(sequence, j);
      if (positionAt(index) != j) continue;
      const key = keyOf(index, kvHead, edgeKeys + <usize>count * (<usize>headDim << 2));
      const value = valueOf(index, kvHead, edgeValues + <usize>count * (<usize>valueDim << 2));
      setEntry(entries, count++, key, value, 0);
    }
    pushRows(query, headDim, valueDim, entries, count, states);
  }
  const row = tokenOfLane(lane) * dim(0, 1) + headOfLane(lane);
  const y = addressOf(11) + (<usize>row * <usize>valueDim << 2);
  const sum = load<f32>(states, 4);
  const factor: f32 = sum == 0 ? 0 : 1 / sum;
  for (let i: usize = 0; i < <usize>valueDim << 2; i += 4) store<f32>(y + i, load<f32>(states + ROW_STATE + i) * factor);
}
