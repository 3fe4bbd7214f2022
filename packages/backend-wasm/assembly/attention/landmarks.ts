/**
 * Landmarks and globals of `subquadratic-attention` as rows of panels: all queries between two ends of blocks see the same
 * ones. They follow the rows of a window in one step of the softmax, or are steps of their own.
 */
import { keyOf, modelReach, positionAt, slotIndex, valueOf } from './kv-cache-view';
import {
  capRows,
  dropRow,
  firstLaneOf,
  hideRow,
  lastLaneOf,
  positionOfLane,
  raiseRow,
  scoreRows,
  sumRows,
  weighRows,
} from './query-panels';
import { attributeI, dim } from '../runtime/record';
import { ENTRY_BYTES } from './online-softmax-row';
import { countGlobals, edgeEntries, globalAt, landmarkSize, listLandmarks } from './subquadratic-edges';

let local: i32 = 0;
let partSize: i32 = 1;
let headDim: i32 = 0;
let valueDim: i32 = 0;
let entries: usize = 0;

// landmarks of the pivot they were gathered for, side by side, when they depend on nothing else
let isShared: bool = false;
let gatheredPivot: i32 = -1;
let gatheredHead: i32 = -1;
let gatheredSequence: i32 = -1;
let numGathered: i32 = 0;
let gatheredKeys: usize = 0;
let gatheredValues: usize = 0;
/** Most landmarks of a pivot, itself and distances of powers of two, and most globals beside them. */
const PIVOT_ROWS: i32 = 32;
const GLOBAL_ROWS: i32 = 8;
export const LANDMARK_ROWS: i32 = PIVOT_ROWS + GLOBAL_ROWS;
/** Globals that are rows of panels too, behind the landmarks of a pivot. */
let hasSharedGlobals: bool = false;
let numSharedGlobals: i32 = 0;
/** Panels that have their landmarks already, a bit each. */
let panelsDone: u32 = 0;

/** Lays out scratch, after `layEdges`, and returns its end. Masses need globals in lists. */
export function layLandmarks(scratch: usize, hasMass: bool): usize {
  local = min<i32>(attributeI(4), i32.MAX_VALUE - 1); // a window and one more is a distance too
  partSize = landmarkSize();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  entries = edgeEntries();
  gatheredKeys = scratch;
  gatheredValues = gatheredKeys + <usize>LANDMARK_ROWS * ((<usize>headDim) << 2);
  isShared = attributeI(6) === 1 && attributeI(1) !== 0 && modelReach() === i32.MAX_VALUE;
  hasSharedGlobals = isShared && !hasMass && countGlobals() <= GLOBAL_ROWS;
  numSharedGlobals = hasSharedGlobals ? countGlobals() : 0;
  gatheredSequence = -1; // -1 is a pivot: that of queries before the first whole block
  return gatheredValues + <usize>LANDMARK_ROWS * ((<usize>valueDim) << 2);
}

/** Whether landmarks depend on nothing but the pivot, so that they can be rows of panels. */
export function sharesLandmarks(): bool {
  return isShared;
}
/** Whether globals are rows of panels beside them. */
export function sharesGlobals(): bool {
  return hasSharedGlobals;
}
/** Begins another tile. */
export function clearLandmarks(): void {
  panelsDone = 0;
}
/** Whether a panel has its landmarks already. */
export function hasLandmarks(panel: i32): bool {
  return ((panelsDone >> panel) & 1) !== 0;
}

/** The last whole block up to a position, -1 before the first. */
export function pivotOf(position: i32): i32 {
  return (position + 1) / partSize - 1;
}

/** Whether the lanes of a panel have at most two pivots, as neighbours in a sequence do. */
export function hasFewPivots(first: i32, last: i32): bool {
  let changes = 0;
  for (let lane = first + 1; lane < last; lane++) {
    if (pivotOf(positionOfLane(lane)) !== pivotOf(positionOfLane(lane - 1))) changes += 1;
  }
  return changes <= 1;
}

/** Scores of the landmarks and globals of a panel whose lanes have one pivot, from row `row` on; returns their number. */
export function scoreLandmarks(panel: i32, row: i32, sequence: i32, context: i32, kvHead: i32): i32 {
  const first = firstLaneOf(panel);
  if (!isShared) return 0;
  const position = positionOfLane(first);
  for (let lane = first + 1; lane < lastLaneOf(panel); lane++) {
    if (pivotOf(positionOfLane(lane)) !== pivotOf(position)) return 0;
  }
  const count = gatherLandmarks(position, sequence, context, kvHead) + numSharedGlobals;
  if (count > 0) scoreRows(panel, gatheredKeys, count, row);
  panelsDone |= 1 << panel;
  return count;
}

/** What the scores of landmarks and globals need beside the products. */
export function raiseLandmarks(panel: i32, row: i32, sequence: i32, context: i32): void {
  const logCount: f32 = attributeI(7) === 0 ? 0 : <f32>Math.log(<f64>partSize);
  for (let i = 0; i < numGathered && logCount !== 0; i++) raiseRow(row + i, logCount);
  for (let i = 0; i < numSharedGlobals; i++) {
    const at = row + numGathered + i;
    if (!isThere(globalAt(i), sequence, context)) dropRow(at);
    else hideRow(panel, at, globalAt(i), local + 1, i32.MAX_VALUE);
  }
}

/** Adds their values, `count` rows that `scoreLandmarks` said. */
export function sumLandmarks(panel: i32, count: i32, row: i32): void {
  sumRows(panel, gatheredValues, count, row);
}

/** The same as steps of their own: all lanes of a pivot see the same landmarks. */
export function attendLandmarks(panel: i32, first: i32, last: i32, sequence: i32, context: i32, kvHead: i32): void {
  for (let lane = first; lane < last; lane++) {
    const position = positionOfLane(lane);
    const pivot = pivotOf(position);
    if (lane > first && pivot === pivotOf(positionOfLane(lane - 1))) continue;
    // globals come with the first pivot
    const numLandmarks = gatherLandmarks(position, sequence, context, kvHead);
    const count = lane > first ? numLandmarks : numLandmarks + numSharedGlobals;
    if (count === 0) continue;
    scoreRows(panel, gatheredKeys, count, 0);
    capRows(count);
    raiseLandmarks(panel, 0, sequence, context);
    // positions of the lanes with this pivot: [(pivot + 1) * partSize - 1, (pivot + 2) * partSize - 1)
    for (let row = 0; row < numLandmarks; row++) hideRow(panel, row, (pivot + 1) * partSize - 1, 0, partSize - 1);
    weighRows(panel, count);
    sumRows(panel, gatheredValues, count, 0);
  }
}

/** The landmarks of the pivot of a position, side by side, shared globals behind them; returns the number of landmarks. */
export function gatherLandmarks(position: i32, sequence: i32, context: i32, kvHead: i32): i32 {
  const pivot = pivotOf(position);
  if (pivot === gatheredPivot && sequence === gatheredSequence && kvHead === gatheredHead) return numGathered;
  const keyBytes = (<usize>headDim) << 2;
  const valueBytes = (<usize>valueDim) << 2;
  numGathered = listLandmarks(position, sequence, context, kvHead, 0);
  for (let i = 0; i < numGathered; i++) {
    const at = entries + <usize>i * ENTRY_BYTES;
    memory.copy(gatheredKeys + <usize>i * keyBytes, load<u32>(at), keyBytes);
    memory.copy(gatheredValues + <usize>i * valueBytes, load<u32>(at, 4), valueBytes);
  }
  for (let i = 0; i < numSharedGlobals; i++) {
    const key = gatheredKeys + <usize>(numGathered + i) * keyBytes;
    const value = gatheredValues + <usize>(numGathered + i) * valueBytes;
    if (isThere(globalAt(i), sequence, context)) {
      const index = slotIndex(sequence, globalAt(i));
      const keyFrom = keyOf(index, kvHead, key);
      const valueFrom = valueOf(index, kvHead, value);
      if (keyFrom !== key) memory.copy(key, keyFrom, keyBytes);
      if (valueFrom !== value) memory.copy(value, valueFrom, valueBytes);
    } else {
      memory.fill(key, 0, keyBytes);
      memory.fill(value, 0, valueBytes);
    }
  }
  gatheredPivot = pivot;
  gatheredSequence = sequence;
  gatheredHead = kvHead;
  return numGathered;
}

/** Whether the slot of a position holds it. */
export function isThere(position: i32, sequence: i32, context: i32): bool {
  return position < context && positionAt(slotIndex(sequence, position)) === position;
}

/** Globals that a position sees as rows of its panel. */
export function countSharedGlobals(position: i32, sequence: i32, context: i32): i32 {
  let count = 0;
  for (let i = 0; i < numSharedGlobals; i++) {
    const global = globalAt(i);
    if (position - global > local && isThere(global, sequence, context)) count += 1;
  }
  return count;
}
