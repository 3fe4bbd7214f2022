/**
 * Attention to a window, to globals, to distances 1, 2, 4, ... and to landmarks. The window of a tile of queries is a small
 * dense problem: rows of keys meet panels of eight queries, each panel only the rows of its own windows. The few keys elsewhere
 * are found query by query, without a list over the context, and join the same softmax.
 * Units: (KV heads, token tile, head tile), all head tiles in one where masses are asked for.
 * Tensors: as in `kv-cache-view.ts`, 8 keyMeans, 9 valueMeans, 10 meanCounts, 11 y, 12 pairs, 13 mass.
 * Attributes: 4 local, 5 logStride, 6 landmarks (0 off, 1 compat, 2 outside-window), 7 logCount, 8... globals.
 */
import {
  contextOfSequence,
  enterCache,
  keysOf,
  modelReach,
  positionAt,
  positionOfToken,
  runEnd,
  sequenceOfToken,
  slotIndex,
  slotsInBlock,
  valuesOf,
} from '../attention/kv-cache-view';
import { addMass, addMassOfRows, clearMass, enterMass, massOf } from '../attention/key-mass';
import {
  LANDMARK_ROWS,
  attendLandmarks,
  clearLandmarks,
  countSharedGlobals,
  gatherLandmarks,
  hasFewPivots,
  hasLandmarks,
  layLandmarks,
  raiseLandmarks,
  scoreLandmarks,
  sharesGlobals,
  sharesLandmarks,
  sumLandmarks,
} from '../attention/landmarks';
import { writeMerged } from '../attention/merge-states';
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
  mergeLane,
  numPanels,
  openPanels,
  positionOfLane,
  scoreRows,
  sumOfLane,
  sumRows,
  tokenOfLane,
  weighRows,
} from '../attention/query-panels';
import { addressOf, attributeF, attributeI, dim, localScratch } from '../runtime/record';
import { ENTRY_BYTES, ROW_STATE, clearRow, pushRows, setRowSoftmax } from '../attention/online-softmax-row';
import { edgeEntries, layEdges, listEdges, listSlot, slotOfEdge } from '../attention/subquadratic-edges';
import { takeUnits, threads } from '../runtime/threads';
import { attendWhole, countWhole, layWhole, writeWhole } from '../attention/subquadratic-panels';

/** Rows of keys that are decoded at a time. */
const SPAN: i32 = 512;
/** Rows taken at a time where a query is computed alone. */
const ALONE: i32 = 64;
/** KV heads of a unit, where there are units enough: their queries and outputs are neighbours, and distances reach back less far. */
const UNIT_HEADS: i32 = 4;

let isCausal: bool = true;
let local: i32 = 0;
let reach: i32 = 0; // of the model
let headDim: i32 = 0;
let valueDim: i32 = 0;

// scratch behind the panels
let pieces: usize = 0; // first slot, rows, keys, values
let numPieces: i32 = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;
let entries: usize = 0;
let states: usize = 0;
let stateBytes: usize = 0;
/** Whether a slot of the spans so far holds something else. */
let hasHoles: bool = false;
let hasMass: bool = false;
/** Panels that are done in one step, a bit each. */
let wholePanels: u32 = 0;
/** Sum of what was read for nothing, so that it is read. */
let touched: i32 = 0;
/** Whether windows give masses and not outputs. */
let isMeasuring: bool = false;

export function subquadraticAttention(): void {
  enterCache();
  isCausal = attributeI(1) !== 0;
  local = attributeI(4);
  reach = modelReach();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  hasMass = enterMass(13);
  setRowSoftmax(attributeF(0), attributeF(3));
  pieces = layPanels(localScratch());
  keyRows = pieces + <usize>SPAN * 16;
  valueRows = keyRows + <usize>SPAN * ((<usize>headDim) << 2);
  states = layEdges(valueRows + <usize>SPAN * ((<usize>valueDim) << 2) + 64);
  entries = edgeEntries();
  stateBytes = ROW_STATE + ((<usize>((valueDim + 7) & ~3)) << 2);
  layWhole(layLandmarks(states + 8 * stateBytes, hasMass));

  const numTokens = dim(0, 0);
  const numKvHeads = dim(3, 1);
  const groupSize = dim(0, 1) / numKvHeads;
  const headTile = min<i32>(groupSize, LANES);
  const numHeadTiles = (groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, LANES / headTile);
  const numTokenTiles = (numTokens + tokenTile - 1) / tokenTile;
  const tilesOfUnit = hasMass ? numHeadTiles : 1;
  const headUnits = numHeadTiles / tilesOfUnit;
  const headsOfUnit = numTokenTiles * numKvHeads < 16 * threads() ? 1 : min<i32>(numKvHeads, UNIT_HEADS);
  const numUnits = numTokenTiles * headUnits * ((numKvHeads + headsOfUnit - 1) / headsOfUnit);
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const firstHead = (unit / (numTokenTiles * headUnits)) * headsOfUnit;
    const lastHead = min<i32>(numKvHeads, firstHead + headsOfUnit);
    const firstToken = ((unit / headUnits) % numTokenTiles) * tokenTile;
    const lastToken = min<i32>(numTokens, firstToken + tokenTile);
    if (headsOfUnit > 1) {
      touchRows(addressOf(0), firstToken, lastToken, firstHead * groupSize, lastHead * groupSize, headDim);
      touchRows(addressOf(11), firstToken, lastToken, firstHead * groupSize, lastHead * groupSize, valueDim);
    }
    for (let kvHead = firstHead; kvHead < lastHead; kvHead++) {
      clearMass(firstToken, lastToken, kvHead);
      for (let i = 0; i < tilesOfUnit; i++) {
        const h0 = kvHead * groupSize + ((unit % headUnits) * tilesOfUnit + i) * headTile;
        const h1 = min<i32>((kvHead + 1) * groupSize, h0 + headTile);
        for (let t = firstToken; t < lastToken;) {
          const end = runEnd(t, lastToken);
          attendRun(t, end, kvHead, h0, h1);
          t = end;
        }
      }
    }
  }
}

/**
 * Reads a number of every line of heads `[h0, h1)` in rows `[T, N, length]`: row after row memory is twice as fast as where
 * eight rows of one head are loaded, or written, at a time.
 */
function touchRows(rows: usize, t0: i32, t1: i32, h0: i32, h1: i32, length: i32): void {
  const stride = (<usize>(dim(0, 1) * length)) << 2;
  const bytes = (<usize>((h1 - h0) * length)) << 2;
  let row = rows + <usize>t0 * stride + ((<usize>(h0 * length)) << 2);
  let sum = 0;
  for (let t = t0; t < t1; t++, row += stride) {
    for (let i: usize = 0; i < bytes; i += 64) sum += load<i32>(row + i);
  }
  touched += sum;
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
  isMeasuring = false;
  clearLandmarks();
  wholePanels = 0;
  for (let panel = 0; panel < numPanels; panel++) {
    if (!attendWhole(panel, sequence, context, kvHead, back)) continue;
    wholePanels |= 1 << panel;
    const isFinite = writeWhole(panel, addressOf(11));
    for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
      if (kvHead === 0 && headOfLane(lane) === 0) {
        store<i32>(addressOf(12) + ((<usize>tokenOfLane(lane)) << 2), countWhole(lane, sequence, context, back));
      }
      if (!isFinite) attendAlone(lane, sequence, context, kvHead, back, ahead);
    }
  }
  if (popcnt(wholePanels) === numPanels) return;
  attendSpans(sequence, context, kvHead, max<i32>(0, low - back), end, back, ahead);
  let lastListed = -1;
  let numEdges = 0;
  for (let panel = 0; panel < numPanels; panel++) {
    if (isWhole(panel)) continue;
    const first = firstLaneOf(panel);
    const last = lastLaneOf(panel);
    const inPanels = sharesLandmarks() && hasFewPivots(first, last);
    lastListed = -1; // gathering landmarks takes the place of the list
    if (inPanels && !hasLandmarks(panel)) attendLandmarks(panel, first, last, sequence, context, kvHead);
    for (let lane = first; lane < last; lane++) {
      const token = tokenOfLane(lane);
      if (token !== lastListed) {
        const position = positionOfToken(token);
        const counts = kvHead === 0 && headOfLane(lane) === 0;
        let seen = 0;
        if (counts && inPanels) {
          seen = gatherLandmarks(position, sequence, context, kvHead) + countSharedGlobals(position, sequence, context);
        }
        numEdges = listEdges(position, sequence, context, kvHead, inPanels, inPanels && sharesGlobals());
        lastListed = token;
        if (counts) {
          seen += numEdges + countWindow(position, sequence, context, back, ahead);
          store<i32>(addressOf(12) + ((<usize>token) << 2), seen);
        }
      }
      const state = states + <usize>(lane - first) * stateBytes;
      clearRow(state, valueDim);
      pushRows(queryOf(lane), headDim, valueDim, entries, numEdges, state);
      if (hasMass) addMassOfEdges(lane, numEdges, state, kvHead);
    }
    const isFinite = writeMerged(first, last, states, stateBytes, addressOf(11));
    for (let lane = first; hasMass && lane < last; lane++) {
      const state = states + <usize>(lane - first) * stateBytes;
      mergeLane(lane, load<f32>(state), load<f32>(state, 4));
    }
    if (isFinite) continue;
    for (let lane = first; lane < last; lane++) attendAlone(lane, sequence, context, kvHead, back, ahead);
    lastListed = -1;
  }
  if (!hasMass) return;
  isMeasuring = true;
  attendSpans(sequence, context, kvHead, max<i32>(0, low - back), end, back, ahead);
}

function isWhole(panel: i32): bool {
  return ((wholePanels >> panel) & 1) !== 0;
}

/** All other panels meet the slots `[begin, end)` in their windows. */
function attendSpans(sequence: i32, context: i32, kvHead: i32, begin: i32, end: i32, back: i32, ahead: i32): void {
  hasHoles = false;
  for (let span = begin; span < end; span += SPAN) {
    const spanEnd = min<i32>(end, span + SPAN);
    layPieces(sequence, kvHead, span, spanEnd);
    for (let panel = 0; panel < numPanels; panel++) {
      if (!isWhole(panel)) attendWindow(panel, sequence, context, span, spanEnd, back, ahead, kvHead);
    }
  }
}

/** Masses of the tokens outside of the window, whose weights in `state` were just computed. */
function addMassOfEdges(lane: i32, numEdges: i32, state: usize, kvHead: i32): void {
  const own = maximumOfLane(lane);
  const top = load<f32>(state);
  const most = max<f32>(own, top);
  if (top === -Infinity) return;
  const factor = Math.exp(<f64>top - <f64>most);
  const rest: f64 = own === -Infinity ? 0 : <f64>sumOfLane(lane) * Math.exp(<f64>own - <f64>most);
  const share = <f32>(factor / (rest + <f64>load<f32>(state, 4) * factor));
  const row = massOf(tokenOfLane(lane), kvHead);
  for (let i = 0; i < numEdges; i++) {
    if (slotOfEdge(i) >= 0) addMass(row, slotOfEdge(i), load<f32>(entries + <usize>i * ENTRY_BYTES, 12) * share);
  }
}

function queryOf(lane: i32): usize {
  return addressOf(0) + ((<usize>(tokenOfLane(lane) * dim(0, 1) + headOfLane(lane)) * <usize>headDim) << 2);
}

/** Rows of the slots `[begin, end)`, block by block. */
function layPieces(sequence: i32, kvHead: i32, begin: i32, end: i32): void {
  numPieces = 0;
  for (let slot = begin; slot < end;) {
    const count = slotsInBlock(slot, end - slot);
    const index = slotIndex(sequence, slot);
    const at = pieces + ((<usize>numPieces) << 4);
    const row = <usize>(slot - begin);
    store<i32>(at, slot);
    store<i32>(at, count, 4);
    store<u32>(at, <u32>keysOf(index, kvHead, count, keyRows + row * ((<usize>headDim) << 2)), 8);
    store<u32>(at, <u32>valuesOf(index, kvHead, count, valueRows + row * ((<usize>valueDim) << 2)), 12);
    for (let i = 0; i < count; i++) if (positionAt(index + i) !== slot + i) hasHoles = true;
    numPieces += 1;
    slot += count;
  }
}

/** One panel meets the rows of the span that lie in a window of its lanes. */
function attendWindow(
  panel: i32,
  sequence: i32,
  context: i32,
  span: i32,
  spanEnd: i32,
  back: i32,
  ahead: i32,
  kvHead: i32,
): void {
  let low = i32.MAX_VALUE;
  let high = 0;
  for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
    low = min<i32>(low, positionOfLane(lane));
    high = max<i32>(high, positionOfLane(lane));
  }
  const end = min<i32>(spanEnd, high + ahead + 1);
  const last = min<i32>(context, high + ahead + 1);
  for (let begin = max<i32>(span, low - back); begin < end; begin += PANEL_ROWS) {
    const stop = min<i32>(end, begin + PANEL_ROWS);
    const count = stop - begin;
    for (let piece = 0; piece < numPieces; piece++) {
      const at = pieces + ((<usize>piece) << 4);
      const first = max<i32>(begin, load<i32>(at));
      const upTo = min<i32>(stop, load<i32>(at) + load<i32>(at, 4));
      if (first >= upTo) continue;
      const skipped = <usize>(first - load<i32>(at)) * ((<usize>headDim) << 2);
      scoreRows(panel, <usize>load<u32>(at, 8) + skipped, upTo - first, first - begin);
    }
    // landmarks and globals follow the last rows of the window
    const extra =
      stop === last && !isMeasuring && count <= PANEL_ROWS - LANDMARK_ROWS
        ? scoreLandmarks(panel, count, sequence, context, kvHead)
        : 0;
    capRows(count + extra);
    if (extra > 0) raiseLandmarks(panel, count, sequence, context);
    // rows that all lanes see are [high - back, low + ahead]
    for (let j = begin; j < min<i32>(stop, high - back); j++) hideRow(panel, j - begin, j, -ahead, back);
    for (let j = max<i32>(begin, low + ahead + 1); j < stop; j++) hideRow(panel, j - begin, j, -ahead, back);
    if (hasHoles) {
      for (let j = begin; j < stop; j++) if (positionAt(slotIndex(sequence, j)) !== j) dropRow(j - begin);
    }
    if (isMeasuring) {
      addMassOfRows(panel, count, kvHead, 0, begin);
      continue;
    }
    weighRows(panel, count + extra);
    for (let piece = 0; piece < numPieces; piece++) {
      const at = pieces + ((<usize>piece) << 4);
      const first = max<i32>(begin, load<i32>(at));
      const upTo = min<i32>(stop, load<i32>(at) + load<i32>(at, 4));
      if (first >= upTo) continue;
      const skipped = <usize>(first - load<i32>(at)) * ((<usize>valueDim) << 2);
      sumRows(panel, <usize>load<u32>(at, 12) + skipped, upTo - first, first - begin);
    }
    if (extra > 0) sumLandmarks(panel, extra, count);
  }
}

function countWindow(position: i32, sequence: i32, context: i32, back: i32, ahead: i32): i32 {
  const begin = max<i32>(0, position - back);
  const end = min<i32>(context, position + ahead + 1);
  if (!hasHoles) return max<i32>(0, end - begin);
  let count = 0;
  for (let j = begin; j < end; j++) if (positionAt(slotIndex(sequence, j)) === j) count += 1;
  return count;
}

/** One query, only keys that it sees: where something is not finite, nothing of other keys may come in. */
function attendAlone(lane: i32, sequence: i32, context: i32, kvHead: i32, back: i32, ahead: i32): void {
  const position = positionOfLane(lane);
  const query = queryOf(lane);
  clearRow(states, valueDim);
  pushRows(query, headDim, valueDim, entries, listEdges(position, sequence, context, kvHead, false, false), states);
  const end = min<i32>(context, position + ahead + 1);
  for (let begin = max<i32>(0, position - back); begin < end; begin += ALONE) {
    let count = 0;
    for (let j = begin; j < min<i32>(end, begin + ALONE); j++) {
      count = listSlot(j, sequence, kvHead, count);
    }
    pushRows(query, headDim, valueDim, entries, count, states);
  }
  const row = tokenOfLane(lane) * dim(0, 1) + headOfLane(lane);
  const y = addressOf(11) + ((<usize>row * <usize>valueDim) << 2);
  const sum = load<f32>(states, 4);
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  for (let i: usize = 0; i < (<usize>valueDim) << 2; i += 4)
    store<f32>(y + i, load<f32>(states + ROW_STATE + i) * factor);
}
