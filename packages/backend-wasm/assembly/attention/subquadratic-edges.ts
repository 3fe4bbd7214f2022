/**
 * The keys of a query outside its window: globals, keys at distances 1, 2, 4, ..., and landmarks (means of blocks). They are
 * listed per query, except that queries of a panel can share landmarks and globals as rows if they have the same pivot, the
 * last block complete at their position. These rows join the softmax step of the window or take a step of their own. Logical
 * slot `j` of a sequence holds position `j` or is empty.
 */
import { hasMass } from './key-mass';
import * as cache from './kv-cache-view';
import { LIST_BYTES, LIST_ROWS, LIST_VALUES, setRow } from './online-softmax-row';
import * as panels from './query-panels';
import * as tile from './query-tiles';
import * as op from '../operands/subquadratic-attention.generated';
import { intAt, setInt } from '../runtime/arrays';
import { MAX_GLOBALS } from '../runtime/layout.generated';

/** Maximum number of landmarks of a pivot (itself and blocks at power-of-two distances), and of globals after them. */
const PIVOT_ROWS: i32 = 32;
const GLOBAL_ROWS: i32 = 8;
export const LANDMARK_ROWS: i32 = PIVOT_ROWS + GLOBAL_ROWS;

/** Keys up to this distance are in the window. */
export let local: i32 = 0;
/** Number of tokens in a landmark's block. */
let partSize: i32 = 1;
/** The list for `pushRows`: globals, then keys at power-of-two distances and landmarks, both in two directions. */
export let edgeList: usize = 0;
export let numGlobals: i32 = 0;
/** Whether landmarks depend on the pivot alone, so that the queries of a panel can share them as rows. */
export let sharesLandmarks: bool = false;
/** Whether the queries of a panel share globals as rows too. */
export let sharesGlobals: bool = false;
let numSharedGlobals: i32 = 0;

let numParts: i32 = 1;
let edgeKeys: usize = 0;
let edgeValues: usize = 0;
let edgeSlots: usize = 0; // i32, -1 for landmarks
let globals: usize = 0;
let pivots: usize = 0; // of the most recent even and odd pivot: sequence, KV head, pivot, number of landmarks
let pivotKeys: usize = 0; // the landmarks of both, each followed by the globals
let pivotValues: usize = 0;

// the landmarks that the current panel attends to
let panelKeys: usize = 0;
export let panelValues: usize = 0;
let numLandmarks: i32 = 0;

/** Lays out scratch and returns its end. */
export function layEdges(scratch: usize): usize {
  edgeList = scratch;
  edgeKeys = edgeList + LIST_BYTES;
  edgeValues = edgeKeys + <usize>LIST_ROWS * cache.keyStride;
  globals = edgeValues + <usize>LIST_ROWS * cache.valueStride;
  edgeSlots = globals + <usize>MAX_GLOBALS * 4;
  pivotKeys = edgeSlots + <usize>LIST_ROWS * 4;
  pivotValues = pivotKeys + <usize>(2 * LANDMARK_ROWS) * cache.keyStride;
  pivots = pivotValues + <usize>(2 * LANDMARK_ROWS) * cache.valueStride;
  return pivots + 32;
}

/** Reads the attributes of the record. With masses, globals stay in the lists of the queries. */
export function enterEdges(): void {
  local = min<i32>(op.attributes.local, i32.MAX_VALUE - 1); // so that local + 1 does not overflow
  numParts = op.attributes.landmarks === 0 ? 1 : op.keyMeans.numParts;
  partSize = cache.blockSize / numParts;
  numGlobals = 0;
  for (let i = 0; i < MAX_GLOBALS; i++) {
    const global = op.attributes.global(i);
    if (global < 0 || isGlobal(global)) continue;
    setInt(globals, numGlobals, global);
    numGlobals += 1;
  }
  sharesLandmarks = op.attributes.landmarks === 1 && op.attributes.causal && cache.maxDistance === i32.MAX_VALUE;
  sharesGlobals = sharesLandmarks && !hasMass && numGlobals <= GLOBAL_ROWS;
  numSharedGlobals = sharesGlobals ? numGlobals : 0;
  for (let pivot = 0; pivot < 2; pivot++) setInt(pivotAt(pivot), 0, -1);
}

/** The logical slot of a row of the list, -1 for a landmark. */
export function slotOfEdge(row: i32): i32 {
  return intAt(edgeSlots, row);
}

export function globalAt(index: i32): i32 {
  return intAt(globals, index);
}
export function isGlobal(position: i32): bool {
  for (let i = 0; i < numGlobals; i++) if (globalAt(i) === position) return true;
  return false;
}

/** Whether the cache holds a position. */
export function isCached(position: i32): bool {
  return cache.indexOfPosition(tile.sequence, position) >= 0;
}

/** The smallest power-of-two distance beyond the window. */
export function firstStride(): i32 {
  return local < 1 ? 1 : 1 << (32 - clz(local));
}

/** Lists the key of a position as row `count` unless its slot is empty; returns the new count. */
function listSlot(position: i32, count: i32): i32 {
  const index = cache.indexOfPosition(tile.sequence, position);
  if (index < 0) return count;
  const key = cache.keysOf(index, tile.kvHead, 1, edgeKeys + <usize>count * cache.keyStride);
  const value = cache.valuesOf(index, tile.kvHead, 1, edgeValues + <usize>count * cache.valueStride);
  return listEdge(count, key, value, 0, position);
}

function listEdge(count: i32, key: usize, value: usize, bias: f32, slot: i32): i32 {
  setRow(edgeList, count, key, value, bias);
  setInt(edgeSlots, count, slot);
  return count + 1;
}

/** Lists the keys outside the window, except landmarks and globals that are rows of panels; returns their number. */
export function listEdges(query: i32, hasPanels: bool, hasGlobalsInPanels: bool): i32 {
  let count = 0;
  for (let i = 0; i < numGlobals && !hasGlobalsInPanels; i++) count = addToken(globalAt(i), query, count);
  const farthest = max<i32>(query, tile.context - 1 - query);
  for (let s = firstStride(); op.attributes.logStride && s <= farthest && s > 0; s <<= 1) {
    if (!isGlobal(query - s)) count = addToken(query - s, query, count);
    if (!op.attributes.causal && !isGlobal(query + s)) count = addToken(query + s, query, count);
  }
  return op.attributes.landmarks === 0 || hasPanels ? count : listLandmarks(query, count);
}

/** Appends the landmarks of a query; returns the new count. */
function listLandmarks(query: i32, count: i32): i32 {
  const farthest = max<i32>(query, tile.context - 1 - query);
  const isCausal = op.attributes.causal;
  const pivot = isCausal ? (query + 1) / partSize - 1 : query / partSize;
  if (isCausal) count = addLandmark(pivot, query, count);
  for (let s = 1; s === 1 || (op.attributes.logStride && s <= farthest / partSize + 1 && s > 0); s <<= 1) {
    count = addLandmark(pivot - s, query, count);
    if (!isCausal) count = addLandmark(pivot + s, query, count);
  }
  return count;
}

/** Whether the causal mask and the sliding window of the model let the query see a position. */
function isAllowed(query: i32, position: i32): bool {
  return query - position >= cache.minDistance && query - position <= cache.maxDistance;
}

function addToken(position: i32, query: i32, count: i32): i32 {
  if (position < 0 || abs<i32>(query - position) <= local || !isAllowed(query, position)) return count;
  return listSlot(position, count);
}

function addLandmark(block: i32, query: i32, count: i32): i32 {
  const first = block * partSize;
  if (block < 0 || first >= tile.context) return count;
  const last = min<i32>(tile.context, first + partSize) - 1;
  if (op.attributes.causal && last !== first + partSize - 1) return count;
  if (!isAllowed(query, first) || !isAllowed(query, last)) return count;
  if (op.attributes.landmarks === 2 && isCovered(query, first, last)) return count;
  const part = cache.cacheBlock(tile.sequence, first) * numParts + (block % numParts);
  const summary = <usize>(part * cache.numKvHeads + tile.kvHead);
  if (load<i32>(op.meanCounts.address + (summary << 2)) !== last - first + 1) return count;
  const bias: f32 = !op.attributes.logCount ? 0 : <f32>Math.log(<f64>(last - first + 1));
  const key = op.keyMeans.address + summary * cache.keyStride;
  return listEdge(count, key, op.valueMeans.address + summary * cache.valueStride, bias, -1);
}

/** Whether the query sees every token of a block as a key of its own, so that it needs no landmark. */
function isCovered(query: i32, first: i32, last: i32): bool {
  for (let j = first; j <= last; j++) {
    const distance = abs<i32>(query - j);
    if (distance <= local) {
      // skip to the end of the window
      if (j < query) j = min<i32>(last, query);
      continue;
    }
    if (op.attributes.logStride && (distance & (distance - 1)) === 0) continue;
    if (!isGlobal(j)) return false;
  }
  return true;
}

/** The last block that is complete at a position; -1 when there is none. */
export function pivotOf(position: i32): i32 {
  return (position + 1) / partSize - 1;
}

/** Number of neighboring lanes of a panel with different pivots. */
export function countChanges(panel: i32): i32 {
  let changes = 0;
  for (let lane = panels.firstLaneOf(panel) + 1; lane < panels.lastLaneOf(panel); lane++) {
    if (pivotOf(panels.positionOfLane(lane)) !== pivotOf(panels.positionOfLane(lane - 1))) changes += 1;
  }
  return changes;
}

function pivotAt(pivot: i32): usize {
  return pivots + ((<usize>(pivot & 1)) << 4);
}
/** The landmarks of one of the two most recent pivots, followed by the shared globals. */
export function keysOfPivot(pivot: i32): usize {
  return pivotKeys + <usize>((pivot & 1) * LANDMARK_ROWS) * cache.keyStride;
}
export function valuesOfPivot(pivot: i32): usize {
  return pivotValues + <usize>((pivot & 1) * LANDMARK_ROWS) * cache.valueStride;
}

/** Gathers the landmarks of a pivot and the shared globals, once for all panels; returns the number of landmarks. */
export function gatherPivot(pivot: i32): i32 {
  const at = pivotAt(pivot);
  const isGathered = intAt(at, 0) === tile.sequence && intAt(at, 1) === tile.kvHead && intAt(at, 2) === pivot;
  if (isGathered) return intAt(at, 3);
  const count = pivot < 0 ? 0 : listLandmarks((pivot + 1) * partSize - 1, 0);
  let key = keysOfPivot(pivot);
  let value = valuesOfPivot(pivot);
  for (let i = 0; i < count + numSharedGlobals; i++, key += cache.keyStride, value += cache.valueStride) {
    if (i < count) {
      memory.copy(key, <usize>intAt(edgeList, i), cache.keyStride);
      memory.copy(value, <usize>intAt(edgeList + LIST_VALUES, i), cache.valueStride);
    } else cache.gatherRow(cache.indexOfPosition(tile.sequence, globalAt(i - count)), tile.kvHead, key, value);
  }
  setInt(at, 0, tile.sequence);
  setInt(at, 1, tile.kvHead);
  setInt(at, 2, pivot);
  setInt(at, 3, count);
  return count;
}

/** Adds log(partSize), the bias of complete blocks, to the logits of landmarks. */
export function biasLandmarks(row: i32, count: i32): void {
  if (!op.attributes.logCount) return;
  const logCount = <f32>Math.log(<f64>partSize);
  for (let i = 0; i < count; i++) panels.raiseRow(row + i, logCount);
}

/** Hides the landmarks of a pivot from lanes with another pivot. */
export function hidePivot(panel: i32, row: i32, count: i32, pivot: i32): void {
  // positions of the lanes with this pivot: [(pivot + 1) * partSize - 1, (pivot + 2) * partSize - 1)
  const first = (pivot + 1) * partSize - 1;
  for (let i = 0; i < count; i++) panels.hideRow(panel, row + i, first, 0, partSize - 1);
}

/** Computes logits of landmarks and globals as rows from `row` on, if the lanes share a pivot; returns the number of rows. */
export function scoreLandmarks(panel: i32, row: i32): i32 {
  if (!sharesLandmarks || countChanges(panel) > 0) return 0;
  const count = openLandmarks(panels.positionOfLane(panels.firstLaneOf(panel))) + numSharedGlobals;
  if (count > 0) panels.scoreRows(panel, panelKeys, count, row);
  return count;
}

/** Biases the capped logits of landmarks, and hides globals from lanes whose windows contain them. */
export function completeLandmarks(panel: i32, row: i32): void {
  biasLandmarks(row, numLandmarks);
  for (let i = 0; i < numSharedGlobals; i++) {
    const at = row + numLandmarks + i;
    if (!isCached(globalAt(i))) panels.dropRow(at);
    else panels.hideRow(panel, at, globalAt(i), local + 1, i32.MAX_VALUE);
  }
}

/** Attends a panel to landmarks and globals in separate softmax steps, one per pivot of its lanes. */
export function attendLandmarks(panel: i32): void {
  const first = panels.firstLaneOf(panel);
  for (let lane = first; lane < panels.lastLaneOf(panel); lane++) {
    const position = panels.positionOfLane(lane);
    const pivot = pivotOf(position);
    if (lane > first && pivot === pivotOf(panels.positionOfLane(lane - 1))) continue;
    // globals join the step of the first pivot
    const count = openLandmarks(position) + (lane > first ? 0 : numSharedGlobals);
    if (count === 0) continue;
    panels.scoreRows(panel, panelKeys, count, 0);
    panels.capRows(count);
    completeLandmarks(panel, 0);
    hidePivot(panel, 0, numLandmarks, pivot);
    panels.softmaxRows(panel, count);
    panels.sumRows(panel, panelValues, count, 0);
  }
}

/** Number of landmarks and globals that a position sees as rows of its panel. */
export function countShared(position: i32): i32 {
  let count = gatherPivot(pivotOf(position));
  for (let i = 0; i < numSharedGlobals; i++) {
    if (position - globalAt(i) > local && isCached(globalAt(i))) count += 1;
  }
  return count;
}

/** Selects the landmarks of a position, which the shared globals follow; returns the number of landmarks. */
function openLandmarks(position: i32): i32 {
  const pivot = pivotOf(position);
  numLandmarks = gatherPivot(pivot);
  panelKeys = keysOfPivot(pivot);
  panelValues = valuesOfPivot(pivot);
  return numLandmarks;
}
