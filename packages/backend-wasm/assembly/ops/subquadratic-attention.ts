/**
 * Attention to a window, globals, keys at distances 1, 2, 4, ... and landmarks. The windows of a tile of queries are a small
 * dense problem: each panel of eight queries attends to the rows of its windows. The few other keys are found query by query,
 * without a list over the context, and join the same softmax.
 */
import { addMass, addMassOfRows, enterMass, hasMass, massOf } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as single from '../attention/online-softmax-row';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import * as edges from '../attention/subquadratic-edges';
import * as whole from '../attention/subquadratic-panels';
import * as op from '../operands/subquadratic-attention.generated';
import { floatAt, intAt, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { threads } from '../runtime/threads';

/** Number of rows of keys that are dequantized at a time. */
const SPAN: i32 = 512;
/** KV heads of a work item when there are enough items: their queries are contiguous, and distances reach back less far. */
const ITEM_HEADS: i32 = 4;

// scratch after the panels
let pieces: usize = 0; // per piece: first slot, number of rows, addresses of keys and values
let numPieces: i32 = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;
let states: usize = 0;
let stateBytes: usize = 0;
/** How far a window reaches back and ahead. */
let back: i32 = 0;
let ahead: i32 = 0;
/** Whether any slot of the spans so far is empty. */
let hasHoles: bool = false;
/** Bit sets: panels that took the fast path, and panels that attended to landmarks together with their windows. */
let wholePanels: u32 = 0;
let landmarkPanels: u32 = 0;
/** Whether this pass adds masses instead of outputs. */
let isMeasuring: bool = false;

export function subquadraticAttention(): void {
  subquadraticAttentionScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  edges.enterEdges();
  whole.enterWhole();
  const numTiles = (cache.numTokens / tile.tokensOfTile(panels.LANES)) * cache.numKvHeads;
  const headsOfItem = numTiles < 16 * threads() ? 1 : min<i32>(cache.numKvHeads, ITEM_HEADS);
  tile.attendTiles(headsOfItem, 1, false, op.y.address, attendTile);
}

/** Reads the record, lays out scratch and returns its end. */
export function subquadraticAttentionScratch(base: usize): usize {
  cache.enterCache();
  pieces = panels.layPanels(base);
  keyRows = pieces + <usize>SPAN * 16;
  valueRows = keyRows + <usize>SPAN * cache.keyStride;
  states = valueRows + <usize>SPAN * cache.valueStride + 64;
  stateBytes = single.ROW_STATE + ((<usize>((cache.valueDim + 7) & ~3)) << 2);
  const end = single.layRow(states + 8 * stateBytes, keyRows, valueRows);
  return whole.layWhole(edges.layEdges(end));
}

function attendTile(): void {
  panels.scanLanes(0, panels.numLanes);
  const low = panels.lowestLane;
  const high = panels.highestLane;
  back = min<i32>(min<i32>(edges.local, cache.maxDistance), max<i32>(tile.context, high) + 1);
  ahead = cache.minDistance === 0 ? 0 : back;
  const end = min<i32>(tile.context, high + ahead + 1);
  isMeasuring = false;
  wholePanels = 0;
  landmarkPanels = 0;
  for (let panel = 0; panel < panels.numPanels; panel++) {
    if (!whole.attendWhole(panel, back)) continue;
    wholePanels |= 1 << panel;
    const isFinite = whole.writeWhole(panel, op.y.address);
    for (let lane = panels.firstLaneOf(panel); lane < panels.lastLaneOf(panel); lane++) {
      if (countsPairs(lane)) storePairs(lane, whole.countWhole(lane, back));
      if (!isFinite) attendAlone(lane);
    }
  }
  if (popcnt(wholePanels) === panels.numPanels) return;
  attendSpans(max<i32>(0, low - back), end);
  for (let panel = 0; panel < panels.numPanels; panel++) if (!contains(wholePanels, panel)) completePanel(panel);
  if (!hasMass) return;
  isMeasuring = true;
  attendSpans(max<i32>(0, low - back), end);
}

function contains(panelSet: u32, panel: i32): bool {
  return ((panelSet >> panel) & 1) !== 0;
}

/** Whether this lane counts the keys of its token: exactly one lane per token does. */
function countsPairs(lane: i32): bool {
  return panels.headOfLane(lane) === 0;
}
function storePairs(lane: i32, count: i32): void {
  setInt(op.pairs.address, panels.tokenOfLane(lane), count);
}

/** Attends a panel to the keys outside its windows, and writes its outputs. */
function completePanel(panel: i32): void {
  const first = panels.firstLaneOf(panel);
  const last = panels.lastLaneOf(panel);
  // consecutive tokens have at most two pivots
  const hasPanels = edges.sharesLandmarks && edges.countChanges(panel) <= 1;
  if (hasPanels && !contains(landmarkPanels, panel)) edges.attendLandmarks(panel);
  let lastListed = -1;
  let numEdges = 0;
  for (let lane = first; lane < last; lane++) {
    const token = panels.tokenOfLane(lane);
    const state = states + <usize>(lane - first) * stateBytes;
    if (token !== lastListed) {
      const position = cache.positionOfToken(token);
      // before listing edges, as gathering landmarks overwrites the list
      const seen = countsPairs(lane) && hasPanels ? edges.countShared(position) : 0;
      numEdges = edges.listEdges(position, hasPanels, hasPanels && edges.sharesGlobals);
      lastListed = token;
      if (countsPairs(lane)) storePairs(lane, seen + numEdges + countWindow(position));
    }
    single.clearRow(state);
    single.pushRows(panels.queryOfLane(lane), edges.edgeList, numEdges, state);
    if (hasMass) addMassOfEdges(lane, numEdges, state);
  }
  const isFinite = whole.writeMerged(panel, states, stateBytes, whole.laneOutputs, op.y.address);
  for (let lane = first; hasMass && lane < last; lane++) {
    const state = states + <usize>(lane - first) * stateBytes;
    panels.mergeLane(lane, floatAt(state, 0), floatAt(state, 1));
  }
  if (!isFinite) for (let lane = first; lane < last; lane++) attendAlone(lane);
}

/** All panels that did not take the fast path attend to the slots `[begin, end)` in their windows. */
function attendSpans(begin: i32, end: i32): void {
  hasHoles = false;
  for (let span = begin; span < end; span += SPAN) {
    const spanEnd = min<i32>(end, span + SPAN);
    layPieces(span, spanEnd);
    for (let panel = 0; panel < panels.numPanels; panel++)
      if (!contains(wholePanels, panel)) attendWindow(panel, span, spanEnd);
  }
}

/** Adds the masses of the tokens outside the window, from the weights of the last `pushRows`. */
function addMassOfEdges(lane: i32, numEdges: i32, state: usize): void {
  const own = panels.maximumOfLane(lane);
  const top = load<f32>(state);
  const maximum = max<f32>(own, top);
  if (top === -Infinity) return;
  const factor = Math.exp(<f64>top - <f64>maximum);
  const rest: f64 = own === -Infinity ? 0 : <f64>panels.sumOfLane(lane) * Math.exp(<f64>own - <f64>maximum);
  const share = <f32>(factor / (rest + <f64>load<f32>(state, 4) * factor));
  const row = massOf(panels.tokenOfLane(lane), tile.kvHead);
  for (let i = 0; i < numEdges; i++) {
    const slot = edges.slotOfEdge(i);
    if (slot >= 0) addMass(row, slot, single.weightOfRow(edges.edgeList, i) * share);
  }
}

/** Finds the rows of the slots `[begin, end)`, block by block. */
function layPieces(begin: i32, end: i32): void {
  numPieces = 0;
  for (let slot = begin; slot < end;) {
    const count = cache.slotsInBlock(slot, end - slot);
    const index = cache.slotIndex(tile.sequence, slot);
    const piece = pieces + ((<usize>numPieces) << 4);
    const row = <usize>(slot - begin);
    setInt(piece, 0, slot);
    setInt(piece, 1, count);
    setInt(piece, 2, <i32>cache.keysOf(index, tile.kvHead, count, keyRows + row * cache.keyStride));
    setInt(piece, 3, <i32>cache.valuesOf(index, tile.kvHead, count, valueRows + row * cache.valueStride));
    if (!cache.holdsPositions(index, count, slot)) hasHoles = true;
    numPieces += 1;
    slot += count;
  }
}

/** A panel attends to the rows of the span that are in a window of its lanes. */
function attendWindow(panel: i32, span: i32, spanEnd: i32): void {
  panels.scanPanel(panel);
  const end = min<i32>(spanEnd, panels.highestLane + ahead + 1);
  const last = min<i32>(tile.context, panels.highestLane + ahead + 1);
  for (let begin = max<i32>(span, panels.lowestLane - back); begin < end; begin += panels.PANEL_ROWS) {
    const stop = min<i32>(end, begin + panels.PANEL_ROWS);
    const count = stop - begin;
    visitPieces(panel, begin, stop, false);
    // landmarks and globals follow the last rows of the window
    const hasRoom = stop === last && !isMeasuring && count <= panels.PANEL_ROWS - edges.LANDMARK_ROWS;
    const extra = hasRoom ? edges.scoreLandmarks(panel, count) : 0;
    panels.capRows(count + extra);
    if (extra > 0) {
      edges.completeLandmarks(panel, count);
      landmarkPanels |= 1 << panel;
    }
    panels.hideOutside(panel, begin, stop, back, ahead);
    for (let j = begin; hasHoles && j < stop; j++) if (!edges.isCached(j)) panels.dropRow(j - begin);
    if (isMeasuring) {
      addMassOfRows(panel, count, tile.kvHead, 0, begin);
      continue;
    }
    panels.softmaxRows(panel, count + extra);
    visitPieces(panel, begin, stop, true);
    if (extra > 0) panels.sumRows(panel, edges.panelValues, extra, count);
  }
}

/** Computes the logits of a panel with the slots `[begin, end)`, or adds their values. */
function visitPieces(panel: i32, begin: i32, end: i32, sums: bool): void {
  for (let i = 0; i < numPieces; i++) {
    const piece = pieces + ((<usize>i) << 4);
    const first = max<i32>(begin, intAt(piece, 0));
    const count = min<i32>(end, intAt(piece, 0) + intAt(piece, 1)) - first;
    const skipped = <usize>(first - intAt(piece, 0));
    if (count <= 0) continue;
    if (sums) panels.sumRows(panel, <usize>intAt(piece, 3) + skipped * cache.valueStride, count, first - begin);
    else panels.scoreRows(panel, <usize>intAt(piece, 2) + skipped * cache.keyStride, count, first - begin);
  }
}

function countWindow(position: i32): i32 {
  const begin = max<i32>(0, position - back);
  const end = min<i32>(tile.context, position + ahead + 1);
  if (!hasHoles) return max<i32>(0, end - begin);
  let count = 0;
  for (let j = begin; j < end; j++) if (edges.isCached(j)) count += 1;
  return count;
}

/** Attends a single query to visible keys only: hidden keys that are not finite must not reach the output. */
function attendAlone(lane: i32): void {
  const position = panels.positionOfLane(lane);
  const query = panels.queryOfLane(lane);
  single.openRow();
  single.pushRows(query, edges.edgeList, edges.listEdges(position, false, false), single.rowState);
  const end = min<i32>(tile.context, position + ahead + 1);
  for (let j = max<i32>(0, position - back); j < end; j++) {
    const index = cache.indexOfPosition(tile.sequence, j);
    if (index >= 0) single.pushSlot(query, index, tile.kvHead);
  }
  single.flushRow(query);
  single.closeRow(op.y.address + panels.rowOfLane(lane) * cache.valueStride);
}
