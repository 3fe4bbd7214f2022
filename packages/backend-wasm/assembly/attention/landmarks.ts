/**
 * Landmarks and globals of `subquadratic-attention` as rows of panels. Queries share their landmarks when they have the same
 * pivot, the last block that is complete before them. Landmarks follow the rows of a window in one step of the softmax, or
 * take a step of their own.
 */
import { hasMass } from './key-mass';
import * as cache from './kv-cache-view';
import { LIST_VALUES } from './online-softmax-row';
import * as panels from './query-panels';
import * as tile from './query-tiles';
import * as edges from './subquadratic-edges';
import * as op from '../operands/subquadratic-attention.generated';
import { intAt, setInt } from '../runtime/arrays';

/** Maximum number of landmarks of a pivot (itself and distances of powers of two), and of globals after them. */
const PIVOT_ROWS: i32 = 32;
const GLOBAL_ROWS: i32 = 8;
export const LANDMARK_ROWS: i32 = PIVOT_ROWS + GLOBAL_ROWS;

/** Fields of a list: sequence, KV head, pivot and size, then the addresses of keys, then of values. */
const SEQUENCE: i32 = 0;
const KV_HEAD: i32 = 1;
const PIVOT: i32 = 2;
const SIZE: i32 = 3;
const KEYS: i32 = 4;
const VALUES: i32 = KEYS + PIVOT_ROWS;
const LIST_BYTES: usize = <usize>(VALUES + PIVOT_ROWS) * 4;

/** Whether landmarks depend on the pivot alone, so that they can be rows of panels. */
export let sharesLandmarks: bool = false;
/** Whether globals are rows of panels too. */
export let sharesGlobals: bool = false;

/** Lists of the most recent even and odd pivots. */
let lists: usize = 0;
// contiguous copies of the landmarks of one list, followed by the globals
let gatheredKeys: usize = 0;
export let gatheredValues: usize = 0;
let gatheredList: usize = 0;
let numGathered: i32 = 0;
let numSharedGlobals: i32 = 0;

/** Lays out scratch and returns its end. */
export function layLandmarks(scratch: usize): usize {
  gatheredKeys = scratch;
  gatheredValues = gatheredKeys + <usize>LANDMARK_ROWS * cache.keyStride;
  lists = gatheredValues + <usize>LANDMARK_ROWS * cache.valueStride;
  return lists + 2 * LIST_BYTES;
}

/** Reads the record, after `enterEdges`. Masses need globals in the lists of edges. */
export function enterLandmarks(): void {
  sharesLandmarks = op.attributes.landmarks === 1 && op.attributes.causal && cache.maxDistance === i32.MAX_VALUE;
  sharesGlobals = sharesLandmarks && !hasMass && edges.numGlobals <= GLOBAL_ROWS;
  numSharedGlobals = sharesGlobals ? edges.numGlobals : 0;
  gatheredList = 0;
  for (let pivot = 0; pivot < 2; pivot++) setInt(listOf(pivot), SEQUENCE, -1);
}

/** The last block that is complete at a position, -1 before the first. */
export function pivotOf(position: i32): i32 {
  return (position + 1) / edges.partSize - 1;
}

/** How often the pivot changes between neighboring lanes of a panel. */
export function countChanges(panel: i32): i32 {
  let changes = 0;
  for (let lane = panels.firstLaneOf(panel) + 1; lane < panels.lastLaneOf(panel); lane++) {
    if (pivotOf(panels.positionOfLane(lane)) !== pivotOf(panels.positionOfLane(lane - 1))) changes += 1;
  }
  return changes;
}

function listOf(pivot: i32): usize {
  return lists + <usize>(pivot & 1) * LIST_BYTES;
}

/** Number of landmarks of one of the two most recent pivots. */
export function sizeOfPivot(pivot: i32): i32 {
  return intAt(listOf(pivot), SIZE);
}

/** Lists the landmarks of a pivot, once for all panels that share it; returns their number. */
export function listPivot(pivot: i32): i32 {
  const list = listOf(pivot);
  const isListed = intAt(list, SEQUENCE) === tile.sequence && intAt(list, KV_HEAD) === tile.kvHead;
  if (isListed && intAt(list, PIVOT) === pivot) return intAt(list, SIZE);
  const count = pivot < 0 ? 0 : edges.listLandmarks((pivot + 1) * edges.partSize - 1, 0);
  memory.copy(list + KEYS * 4, edges.edgeList, (<usize>count) << 2);
  memory.copy(list + VALUES * 4, edges.edgeList + LIST_VALUES, (<usize>count) << 2);
  setInt(list, SEQUENCE, tile.sequence);
  setInt(list, KV_HEAD, tile.kvHead);
  setInt(list, PIVOT, pivot);
  setInt(list, SIZE, count);
  if (gatheredList === list) gatheredList = 0;
  return count;
}

/** Appends the addresses of the landmarks of a listed pivot to a list of rows, from `row` on. */
export function takePivot(pivot: i32, rowKeys: usize, rowValues: usize, row: i32): void {
  const bytes = (<usize>sizeOfPivot(pivot)) << 2;
  memory.copy(rowKeys + ((<usize>row) << 2), listOf(pivot) + KEYS * 4, bytes);
  memory.copy(rowValues + ((<usize>row) << 2), listOf(pivot) + VALUES * 4, bytes);
}

/** Adds the bias of complete blocks to the logits of landmarks. */
export function biasLandmarks(row: i32, count: i32): void {
  if (!op.attributes.logCount) return;
  const logCount = <f32>Math.log(<f64>edges.partSize);
  for (let i = 0; i < count; i++) panels.raiseRow(row + i, logCount);
}

/** Hides landmarks from the lanes of another pivot. */
export function hidePivot(panel: i32, row: i32, count: i32, pivot: i32): void {
  // positions of the lanes with this pivot: [(pivot + 1) * partSize - 1, (pivot + 2) * partSize - 1)
  const first = (pivot + 1) * edges.partSize - 1;
  for (let i = 0; i < count; i++) panels.hideRow(panel, row + i, first, 0, edges.partSize - 1);
}

/** Logits of the landmarks and globals of a panel whose lanes have one pivot, from row `row` on; returns their number. */
export function scoreLandmarks(panel: i32, row: i32): i32 {
  if (!sharesLandmarks || countChanges(panel) > 0) return 0;
  const count = gatherLandmarks(panels.positionOfLane(panels.firstLaneOf(panel))) + numSharedGlobals;
  if (count > 0) panels.scoreRows(panel, gatheredKeys, count, row);
  return count;
}

/** Biases the capped logits of landmarks, and hides globals from the lanes that have them in their windows. */
export function completeLandmarks(panel: i32, row: i32): void {
  biasLandmarks(row, numGathered);
  for (let i = 0; i < numSharedGlobals; i++) {
    const at = row + numGathered + i;
    if (!edges.isThere(edges.globalAt(i))) panels.dropRow(at);
    else panels.hideRow(panel, at, edges.globalAt(i), edges.local + 1, i32.MAX_VALUE);
  }
}

/** The same as separate steps of the softmax, one for each pivot of the lanes. */
export function attendLandmarks(panel: i32): void {
  const first = panels.firstLaneOf(panel);
  for (let lane = first; lane < panels.lastLaneOf(panel); lane++) {
    const position = panels.positionOfLane(lane);
    const pivot = pivotOf(position);
    if (lane > first && pivot === pivotOf(panels.positionOfLane(lane - 1))) continue;
    // globals come with the first pivot
    const numLandmarks = gatherLandmarks(position);
    const count = lane > first ? numLandmarks : numLandmarks + numSharedGlobals;
    if (count === 0) continue;
    panels.scoreRows(panel, gatheredKeys, count, 0);
    panels.capRows(count);
    completeLandmarks(panel, 0);
    hidePivot(panel, 0, numLandmarks, pivot);
    panels.softmaxRows(panel, count);
    panels.sumRows(panel, gatheredValues, count, 0);
  }
}

/** Number of landmarks and globals that a position sees as rows of its panel. */
export function countShared(position: i32): i32 {
  let count = listPivot(pivotOf(position));
  for (let i = 0; i < numSharedGlobals; i++) {
    if (position - edges.globalAt(i) > edges.local && edges.isThere(edges.globalAt(i))) count += 1;
  }
  return count;
}

/** Gathers the landmarks of the pivot of a position and the shared globals; returns the number of landmarks. */
function gatherLandmarks(position: i32): i32 {
  numGathered = listPivot(pivotOf(position));
  const list = listOf(pivotOf(position));
  if (list === gatheredList) return numGathered;
  gatheredList = list;
  for (let i = 0; i < numGathered; i++) {
    memory.copy(gatheredKeys + <usize>i * cache.keyStride, <usize>intAt(list, KEYS + i), cache.keyStride);
    memory.copy(gatheredValues + <usize>i * cache.valueStride, <usize>intAt(list, VALUES + i), cache.valueStride);
  }
  for (let i = 0; i < numSharedGlobals; i++) {
    const row = <usize>(numGathered + i);
    const index = cache.indexOfPosition(tile.sequence, edges.globalAt(i));
    cache.gatherRow(index, tile.kvHead, gatheredKeys + row * cache.keyStride, gatheredValues + row * cache.valueStride);
  }
  return numGathered;
}
