/**
 * Landmarks and globals of `subquadratic-attention` as rows of panels. Queries share their landmarks when they have the same
 * pivot, the last block that is complete before them. Landmarks follow the rows of a window in one step of the softmax, or
 * take a step of their own.
 */
import * as cache from './kv-cache-view';
import { ENTRY_BYTES } from './online-softmax-row';
import * as panels from './query-panels';
import * as edges from './subquadratic-edges';
import * as op from '../operands/subquadratic-attention.generated';
import { rowPairBytes } from './scratch-sizes';

/** Maximum number of landmarks of a pivot (itself and distances of powers of two), and of globals after them. */
const PIVOT_ROWS: i32 = 32;
const GLOBAL_ROWS: i32 = 8;
export const LANDMARK_ROWS: i32 = PIVOT_ROWS + GLOBAL_ROWS;

/** Whether landmarks depend on the pivot alone, so that they can be rows of panels. */
export let sharesLandmarks: bool = false;
/** Whether globals are rows of panels too. */
export let sharesGlobals: bool = false;

// addresses of the keys, then the values, of the landmarks of the most recent even and odd pivots
let pivots: usize = 0;
let pivotEven: i32 = -2;
let pivotOdd: i32 = -2;
let sizeEven: i32 = 0;
let sizeOdd: i32 = 0;
let listedHead: i32 = -1;
let listedSequence: i32 = -1;

// contiguous copies of the landmarks of one pivot, followed by the globals
let gatheredKeys: usize = 0;
let gatheredValues: usize = 0;
let gatheredPivot: i32 = -1;
let gatheredHead: i32 = -1;
let gatheredSequence: i32 = -1;
let numGathered: i32 = 0;
let numSharedGlobals: i32 = 0;
/** Bit set of the panels that attended to their landmarks. */
let panelsDone: u32 = 0;

/** Lays out scratch, after `layEdges`, and returns its end. Masses need globals in the lists of edges. */
export function layLandmarks(scratch: usize, hasMass: bool): usize {
  gatheredKeys = scratch;
  gatheredValues = gatheredKeys + <usize>LANDMARK_ROWS * cache.keyStride;
  pivots = gatheredValues + <usize>LANDMARK_ROWS * cache.valueStride;
  sharesLandmarks = op.attributes.landmarks === 1 && op.attributes.causal && cache.maxDistance === i32.MAX_VALUE;
  sharesGlobals = sharesLandmarks && !hasMass && edges.numGlobals <= GLOBAL_ROWS;
  numSharedGlobals = sharesGlobals ? edges.numGlobals : 0;
  // no pivot is cached; -1 would be the pivot of queries before the first complete block
  gatheredSequence = -1;
  listedSequence = -1;
  return pivots + <usize>PIVOT_ROWS * 16;
}

/** Starts another tile. */
export function clearLandmarks(): void {
  panelsDone = 0;
}
/** Whether a panel attended to its landmarks. */
export function hasLandmarks(panel: i32): bool {
  return ((panelsDone >> panel) & 1) !== 0;
}

/** The last block that is complete at a position, -1 before the first. */
export function pivotOf(position: i32): i32 {
  return (position + 1) / edges.partSize - 1;
}

/** How often the pivot changes between neighboring lanes. */
function countChanges(first: i32, last: i32): i32 {
  let changes = 0;
  for (let lane = first + 1; lane < last; lane++) {
    if (pivotOf(panels.positionOfLane(lane)) !== pivotOf(panels.positionOfLane(lane - 1))) changes += 1;
  }
  return changes;
}

/** Whether the lanes of a panel have at most two pivots, as consecutive tokens do. */
export function hasFewPivots(first: i32, last: i32): bool {
  return countChanges(first, last) <= 1;
}

/** Lists the landmarks of a pivot, once for all panels that share it; returns their number. */
export function listPivot(pivot: i32): i32 {
  if (edges.sequence !== listedSequence || edges.kvHead !== listedHead) {
    pivotEven = -2;
    pivotOdd = -2;
    listedSequence = edges.sequence;
    listedHead = edges.kvHead;
  }
  const isOdd = (pivot & 1) !== 0;
  if (pivot === (isOdd ? pivotOdd : pivotEven)) return isOdd ? sizeOdd : sizeEven;
  const count = pivot < 0 ? 0 : edges.listLandmarks((pivot + 1) * edges.partSize - 1, 0);
  const to = addressesOf(pivot);
  for (let i = 0; i < count; i++) {
    const entry = edges.edgeEntries + <usize>i * ENTRY_BYTES;
    store<u32>(to + ((<usize>i) << 2), load<u32>(entry));
    store<u32>(to + ((<usize>(PIVOT_ROWS + i)) << 2), load<u32>(entry, 4));
  }
  if (isOdd) {
    pivotOdd = pivot;
    sizeOdd = count;
  } else {
    pivotEven = pivot;
    sizeEven = count;
  }
  return count;
}

function addressesOf(pivot: i32): usize {
  return pivots + <usize>((pivot & 1) * PIVOT_ROWS * 8);
}

/** Number of landmarks of one of the two most recent pivots. */
export function sizeOfPivot(pivot: i32): i32 {
  return (pivot & 1) !== 0 ? sizeOdd : sizeEven;
}

/** Appends the addresses of the landmarks of a listed pivot to a list of rows, from `row` on. */
export function takePivot(pivot: i32, rowKeys: usize, rowValues: usize, row: i32): void {
  const from = addressesOf(pivot);
  const bytes = (<usize>sizeOfPivot(pivot)) << 2;
  memory.copy(rowKeys + ((<usize>row) << 2), from, bytes);
  memory.copy(rowValues + ((<usize>row) << 2), from + <usize>PIVOT_ROWS * 4, bytes);
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
  for (let i = 0; i < count; i++)
    panels.hideRow(panel, row + i, (pivot + 1) * edges.partSize - 1, 0, edges.partSize - 1);
}

/** Logits of the landmarks and globals of a panel whose lanes have one pivot, from row `row` on; returns their number. */
export function scoreLandmarks(panel: i32, row: i32): i32 {
  const first = panels.firstLaneOf(panel);
  if (!sharesLandmarks || countChanges(first, panels.lastLaneOf(panel)) > 0) return 0;
  const count = gatherLandmarks(panels.positionOfLane(first)) + numSharedGlobals;
  if (count > 0) panels.scoreRows(panel, gatheredKeys, count, row);
  panelsDone |= 1 << panel;
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

/** Adds their values; `count` is what `scoreLandmarks` returned. */
export function sumLandmarks(panel: i32, count: i32, row: i32): void {
  panels.sumRows(panel, gatheredValues, count, row);
}

/** The same as separate steps of the softmax, one for each pivot of the lanes. */
export function attendLandmarks(panel: i32, first: i32, last: i32): void {
  for (let lane = first; lane < last; lane++) {
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

/** Gathers the landmarks of the pivot of a position and the shared globals; returns the number of landmarks. */
export function gatherLandmarks(position: i32): i32 {
  const pivot = pivotOf(position);
  if (pivot === gatheredPivot && edges.sequence === gatheredSequence && edges.kvHead === gatheredHead)
    return numGathered;
  numGathered = listPivot(pivot);
  const from = addressesOf(pivot);
  for (let i: usize = 0; i < <usize>numGathered; i++) {
    memory.copy(gatheredKeys + i * cache.keyStride, load<u32>(from + (i << 2)), cache.keyStride);
    memory.copy(
      gatheredValues + i * cache.valueStride,
      load<u32>(from + ((<usize>PIVOT_ROWS + i) << 2)),
      cache.valueStride,
    );
  }
  for (let i = 0; i < numSharedGlobals; i++) {
    const key = gatheredKeys + <usize>(numGathered + i) * cache.keyStride;
    const value = gatheredValues + <usize>(numGathered + i) * cache.valueStride;
    if (edges.isThere(edges.globalAt(i))) {
      const index = cache.slotIndex(edges.sequence, edges.globalAt(i));
      cache.copyKey(index, edges.kvHead, key);
      cache.copyValue(index, edges.kvHead, value);
    } else {
      memory.fill(key, 0, cache.keyStride);
      memory.fill(value, 0, cache.valueStride);
    }
  }
  gatheredPivot = pivot;
  gatheredSequence = edges.sequence;
  gatheredHead = edges.kvHead;
  return numGathered;
}

/** Number of globals that a position sees as rows of its panel. */
export function countSharedGlobals(position: i32): i32 {
  let count = 0;
  for (let i = 0; i < numSharedGlobals; i++) {
    if (position - edges.globalAt(i) > edges.local && edges.isThere(edges.globalAt(i))) count += 1;
  }
  return count;
}

/** What `layLandmarks` lays out. */
export function landmarksBytes(): u64 {
  return LANDMARK_ROWS * rowPairBytes() + PIVOT_ROWS * 16;
}
