/**
 * Attention to a window, to globals, to distances 1, 2, 4, ... and to landmarks. The windows of a tile
 * of queries are a small dense problem: each panel of eight queries attends to the rows of its windows. The few other keys
 * are found query by query, without a list over the context, and join the same softmax. Work items: (KV
 * heads, token tile, head tile), all head tiles in one where masses are asked for.
 */
import { addMass, addMassOfRows, clearMass, enterMass, massOf } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as landmarks from '../attention/landmarks';
import { ENTRY_BYTES, ROW_STATE, clearRow, pushRows } from '../attention/online-softmax-row';
import { finishState } from '../attention/partial-states';
import * as panels from '../attention/query-panels';
import { writeMerged } from '../attention/store-outputs';
import * as edges from '../attention/subquadratic-edges';
import { attendWhole, countWhole, laneRows, layWhole, wholeBytes, writeWhole } from '../attention/subquadratic-panels';
import * as op from '../operands/subquadratic-attention.generated';
import { localScratch } from '../runtime/record';
import { takeUnits, threads } from '../runtime/threads';
import { ALIGNMENT_BYTES, rowPairBytes } from '../attention/scratch-sizes';

/** Number of rows of keys that are dequantized at a time. */
const SPAN: i32 = 512;
/** Number of rows in one step of a single query. */
const ALONE: i32 = 64;
/** KV heads of a work item when there are enough items: their queries are contiguous, and distances reach back less far. */
const ITEM_HEADS: i32 = 4;

// scratch after the panels
let pieces: usize = 0; // first slot, rows, keys, values
let numPieces: i32 = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;
let states: usize = 0;
let stateBytes: usize = 0;
/** How far a window reaches back and ahead. */
let back: i32 = 0;
let ahead: i32 = 0;
/** Whether a slot of the spans so far is empty. */
let hasHoles: bool = false;
let hasMass: bool = false;
/** Bit set of the panels that took the fast path. */
let wholePanels: u32 = 0;
/** Sum of touched numbers, so that the loads are not eliminated. */
let touched: i32 = 0;
/** Whether this pass adds masses instead of outputs. */
let isMeasuring: bool = false;

export function subquadraticAttention(): void {
  cache.enterCache();
  hasMass = enterMass(op.mass.isPresent ? op.mass.address : 0);
  pieces = panels.layPanels(localScratch());
  keyRows = pieces + <usize>SPAN * 16;
  valueRows = keyRows + <usize>SPAN * cache.keyStride;
  states = edges.layEdges(valueRows + <usize>SPAN * cache.valueStride + 64);
  stateBytes = ROW_STATE + ((<usize>((cache.valueDim + 7) & ~3)) << 2);
  layWhole(landmarks.layLandmarks(states + 8 * stateBytes, hasMass));

  const headTile = min<i32>(cache.groupSize, panels.LANES);
  const numHeadTiles = (cache.groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, panels.LANES / headTile);
  const numTokenTiles = (cache.numTokens + tokenTile - 1) / tokenTile;
  const tilesOfItem = hasMass ? numHeadTiles : 1;
  const headItems = numHeadTiles / tilesOfItem;
  const headsOfItem = numTokenTiles * cache.numKvHeads < 16 * threads() ? 1 : min<i32>(cache.numKvHeads, ITEM_HEADS);
  const numItems = numTokenTiles * headItems * ((cache.numKvHeads + headsOfItem - 1) / headsOfItem);
  for (let item = takeUnits(1); item < numItems; item = takeUnits(1)) {
    const firstHead = (item / (numTokenTiles * headItems)) * headsOfItem;
    const lastHead = min<i32>(cache.numKvHeads, firstHead + headsOfItem);
    const firstToken = ((item / headItems) % numTokenTiles) * tokenTile;
    const lastToken = min<i32>(cache.numTokens, firstToken + tokenTile);
    if (headsOfItem > 1) {
      touchRows(
        op.q.address,
        firstToken,
        lastToken,
        firstHead * cache.groupSize,
        lastHead * cache.groupSize,
        cache.headDim,
      );
      touchRows(
        op.y.address,
        firstToken,
        lastToken,
        firstHead * cache.groupSize,
        lastHead * cache.groupSize,
        cache.valueDim,
      );
    }
    for (let head = firstHead; head < lastHead; head++) {
      clearMass(firstToken, lastToken, head);
      for (let i = 0; i < tilesOfItem; i++) {
        const h0 = head * cache.groupSize + ((item % headItems) * tilesOfItem + i) * headTile;
        attendTokens(firstToken, lastToken, head, h0, min<i32>((head + 1) * cache.groupSize, h0 + headTile));
      }
    }
  }
}

/**
 * Touches every cache line of heads `[h0, h1)` in rows `[T, N, length]`: reading row by row is twice as fast as loading or
 * storing eight rows of one head at a time.
 */
function touchRows(rows: usize, t0: i32, t1: i32, h0: i32, h1: i32, length: i32): void {
  const stride = (<usize>(cache.numHeads * length)) << 2;
  const bytes = (<usize>((h1 - h0) * length)) << 2;
  let row = rows + <usize>t0 * stride + ((<usize>(h0 * length)) << 2);
  let sum = 0;
  for (let t = t0; t < t1; t++, row += stride) {
    for (let i: usize = 0; i < bytes; i += 64) sum += load<i32>(row + i);
  }
  touched += sum;
}

/** Attends tokens `[t0, t1)`, one run of a sequence at a time. */
function attendTokens(t0: i32, t1: i32, head: i32, h0: i32, h1: i32): void {
  for (let t = t0; t < t1;) {
    const end = cache.runEnd(t, t1);
    edges.openRun(cache.sequenceOfToken(t), head);
    panels.openPanels(t, end, h0, h1);
    attendRun();
    t = end;
  }
}

/** Attends the panels of a run of one sequence. */
function attendRun(): void {
  panels.scanLanes(0, panels.numLanes);
  const low = panels.lowestLane;
  const high = panels.highestLane;
  back = min<i32>(min<i32>(edges.local, cache.maxDistance), max<i32>(edges.context, high) + 1);
  ahead = cache.minDistance === 0 ? 0 : back;
  const end = min<i32>(edges.context, high + ahead + 1);
  isMeasuring = false;
  landmarks.clearLandmarks();
  wholePanels = 0;
  for (let panel = 0; panel < panels.numPanels; panel++) {
    if (!attendWhole(panel, back)) continue;
    wholePanels |= 1 << panel;
    const isFinite = writeWhole(panel, op.y.address);
    for (let lane = panels.firstLaneOf(panel); lane < panels.lastLaneOf(panel); lane++) {
      if (countsPairs(lane)) storePairs(lane, countWhole(lane, back));
      if (!isFinite) attendAlone(lane);
    }
  }
  if (popcnt(wholePanels) === panels.numPanels) return;
  attendSpans(max<i32>(0, low - back), end);
  for (let panel = 0; panel < panels.numPanels; panel++) if (!isWhole(panel)) completePanel(panel);
  if (!hasMass) return;
  isMeasuring = true;
  attendSpans(max<i32>(0, low - back), end);
}

function isWhole(panel: i32): bool {
  return ((wholePanels >> panel) & 1) !== 0;
}

/** Whether a lane is the one that counts the keys of its token. */
function countsPairs(lane: i32): bool {
  return edges.kvHead === 0 && panels.headOfLane(lane) === 0;
}
function storePairs(lane: i32, count: i32): void {
  store<i32>(op.pairs.address + ((<usize>panels.tokenOfLane(lane)) << 2), count);
}

/** Attends a panel to the keys outside of its windows, and writes its outputs. */
function completePanel(panel: i32): void {
  const first = panels.firstLaneOf(panel);
  const last = panels.lastLaneOf(panel);
  const hasPanels = landmarks.sharesLandmarks && landmarks.hasFewPivots(first, last);
  if (hasPanels && !landmarks.hasLandmarks(panel)) landmarks.attendLandmarks(panel, first, last);
  let lastListed = -1;
  let numEdges = 0;
  for (let lane = first; lane < last; lane++) {
    const token = panels.tokenOfLane(lane);
    const state = states + <usize>(lane - first) * stateBytes;
    if (token !== lastListed) {
      const position = cache.positionOfToken(token);
      // before listing edges, as gathering overwrites the list
      const seen =
        countsPairs(lane) && hasPanels
          ? landmarks.gatherLandmarks(position) + landmarks.countSharedGlobals(position)
          : 0;
      numEdges = edges.listEdges(position, hasPanels, hasPanels && landmarks.sharesGlobals);
      lastListed = token;
      if (countsPairs(lane)) storePairs(lane, seen + numEdges + countWindow(position));
    }
    clearRow(state);
    pushRows(panels.queryOfLane(lane), edges.edgeEntries, numEdges, state);
    if (hasMass) addMassOfEdges(lane, numEdges, state);
  }
  const isFinite = writeMerged(first, last, states, stateBytes, laneRows(), op.y.address);
  for (let lane = first; hasMass && lane < last; lane++) {
    const state = states + <usize>(lane - first) * stateBytes;
    panels.mergeLane(lane, load<f32>(state), load<f32>(state, 4));
  }
  if (!isFinite) for (let lane = first; lane < last; lane++) attendAlone(lane);
}

/** All other panels attend to the slots `[begin, end)` in their windows. */
function attendSpans(begin: i32, end: i32): void {
  hasHoles = false;
  for (let span = begin; span < end; span += SPAN) {
    const spanEnd = min<i32>(end, span + SPAN);
    layPieces(span, spanEnd);
    for (let panel = 0; panel < panels.numPanels; panel++) if (!isWhole(panel)) attendWindow(panel, span, spanEnd);
  }
}

/** Adds the masses of the tokens outside of the window, from the weights of the last `pushRows`. */
function addMassOfEdges(lane: i32, numEdges: i32, state: usize): void {
  const own = panels.maximumOfLane(lane);
  const top = load<f32>(state);
  const most = max<f32>(own, top);
  if (top === -Infinity) return;
  const factor = Math.exp(<f64>top - <f64>most);
  const rest: f64 = own === -Infinity ? 0 : <f64>panels.sumOfLane(lane) * Math.exp(<f64>own - <f64>most);
  const share = <f32>(factor / (rest + <f64>load<f32>(state, 4) * factor));
  const row = massOf(panels.tokenOfLane(lane), edges.kvHead);
  for (let i = 0; i < numEdges; i++) {
    if (edges.slotOfEdge(i) >= 0)
      addMass(row, edges.slotOfEdge(i), load<f32>(edges.edgeEntries + <usize>i * ENTRY_BYTES, 12) * share);
  }
}

/** Finds the rows of the slots `[begin, end)`, block by block. */
function layPieces(begin: i32, end: i32): void {
  numPieces = 0;
  for (let slot = begin; slot < end;) {
    const count = cache.slotsInBlock(slot, end - slot);
    const index = cache.slotIndex(edges.sequence, slot);
    const at = pieces + ((<usize>numPieces) << 4);
    const row = <usize>(slot - begin);
    store<i32>(at, slot);
    store<i32>(at, count, 4);
    store<u32>(at, <u32>cache.keysOf(index, edges.kvHead, count, keyRows + row * cache.keyStride), 8);
    store<u32>(at, <u32>cache.valuesOf(index, edges.kvHead, count, valueRows + row * cache.valueStride), 12);
    for (let i = 0; i < count; i++) if (cache.positionAt(index + i) !== slot + i) hasHoles = true;
    numPieces += 1;
    slot += count;
  }
}

/** A panel attends to the rows of the span that are in a window of its lanes. */
function attendWindow(panel: i32, span: i32, spanEnd: i32): void {
  panels.scanPanel(panel);
  const low = panels.lowestLane;
  const high = panels.highestLane;
  const end = min<i32>(spanEnd, high + ahead + 1);
  const last = min<i32>(edges.context, high + ahead + 1);
  for (let begin = max<i32>(span, low - back); begin < end; begin += panels.PANEL_ROWS) {
    const stop = min<i32>(end, begin + panels.PANEL_ROWS);
    const count = stop - begin;
    visitPieces(panel, begin, stop, false);
    // landmarks and globals follow the last rows of the window
    const hasRoom = stop === last && !isMeasuring && count <= panels.PANEL_ROWS - landmarks.LANDMARK_ROWS;
    const extra = hasRoom ? landmarks.scoreLandmarks(panel, count) : 0;
    panels.capRows(count + extra);
    if (extra > 0) landmarks.completeLandmarks(panel, count);
    // all lanes see rows [high - back, low + ahead]
    for (let j = begin; j < min<i32>(stop, high - back); j++) panels.hideRow(panel, j - begin, j, -ahead, back);
    for (let j = max<i32>(begin, low + ahead + 1); j < stop; j++) panels.hideRow(panel, j - begin, j, -ahead, back);
    for (let j = begin; hasHoles && j < stop; j++) if (!edges.isThere(j)) panels.dropRow(j - begin);
    if (isMeasuring) {
      addMassOfRows(panel, count, edges.kvHead, 0, begin);
      continue;
    }
    panels.softmaxRows(panel, count + extra);
    visitPieces(panel, begin, stop, true);
    if (extra > 0) landmarks.sumLandmarks(panel, extra, count);
  }
}

/** Computes the logits of a panel with the slots `[begin, end)`, or adds their values. */
function visitPieces(panel: i32, begin: i32, end: i32, sums: bool): void {
  for (let piece = 0; piece < numPieces; piece++) {
    const at = pieces + ((<usize>piece) << 4);
    const first = max<i32>(begin, load<i32>(at));
    const count = min<i32>(end, load<i32>(at) + load<i32>(at, 4)) - first;
    if (count <= 0) continue;
    const skipped = <usize>(first - load<i32>(at));
    if (sums) panels.sumRows(panel, <usize>load<u32>(at, 12) + skipped * cache.valueStride, count, first - begin);
    else panels.scoreRows(panel, <usize>load<u32>(at, 8) + skipped * cache.keyStride, count, first - begin);
  }
}

function countWindow(position: i32): i32 {
  const begin = max<i32>(0, position - back);
  const end = min<i32>(edges.context, position + ahead + 1);
  if (!hasHoles) return max<i32>(0, end - begin);
  let count = 0;
  for (let j = begin; j < end; j++) if (edges.isThere(j)) count += 1;
  return count;
}

/** Attends a single query to visible keys only: hidden keys that are not finite must not reach the output. */
function attendAlone(lane: i32): void {
  const position = panels.positionOfLane(lane);
  const query = cache.queryAt(<i32>panels.rowOfLane(lane));
  clearRow(states);
  pushRows(query, edges.edgeEntries, edges.listEdges(position, false, false), states);
  const end = min<i32>(edges.context, position + ahead + 1);
  for (let begin = max<i32>(0, position - back); begin < end; begin += ALONE) {
    let count = 0;
    for (let j = begin; j < min<i32>(end, begin + ALONE); j++) count = edges.listSlot(j, count);
    pushRows(query, edges.edgeEntries, count, states);
  }
  finishState(
    load<f32>(states, 4),
    states + ROW_STATE,
    op.y.address + panels.rowOfLane(lane) * cache.valueStride,
    cache.valueDim,
  );
}

export function subquadraticAttentionLocalBytes(): u64 {
  cache.enterCache();
  const span = SPAN * (16 + rowPairBytes()) + 64;
  const rowStates = 8 * (ROW_STATE + cache.valueStride + 32);
  const lists = edges.edgesBytes() + landmarks.landmarksBytes() + wholeBytes();
  return panels.layPanels(0) + span + rowStates + lists + ALIGNMENT_BYTES;
}
