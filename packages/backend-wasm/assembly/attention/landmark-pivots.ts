/**
 * Landmarks of `subquadratic-panels.ts`: addresses of those of the two pivots that a panel may have, one even and one odd, found once
 * for all panels that have them.
 */
import { hideRow, raiseRow } from './query-panels';
import { attributeI } from '../runtime/record';
import { ENTRY_BYTES } from './online-softmax-row';
import { edgeEntries, landmarkSize, listLandmarks } from './subquadratic-edges';

/** Most landmarks of a pivot. */
const PIVOT_ROWS: usize = 32;

let partSize: i32 = 1;
let pivots: usize = 0; // two sets of addresses, keys and values
let pivotEven: i32 = -2;
let pivotOdd: i32 = -2;
let sizeEven: i32 = 0;
let sizeOdd: i32 = 0;
let pivotHead: i32 = -1;
let pivotSequence: i32 = -1;

/** Lays out scratch and returns its end. */
export function layPivots(scratch: usize): usize {
  partSize = landmarkSize();
  pivots = scratch;
  pivotSequence = -1;
  return pivots + PIVOT_ROWS * 16;
}

/** The landmarks of a pivot, found once for all panels that have it; returns their number. */
export function listPivot(pivot: i32, sequence: i32, context: i32, kvHead: i32): i32 {
  if (sequence !== pivotSequence || kvHead !== pivotHead) {
    pivotEven = -2;
    pivotOdd = -2;
    pivotSequence = sequence;
    pivotHead = kvHead;
  }
  const isOdd = (pivot & 1) !== 0;
  if (pivot === (isOdd ? pivotOdd : pivotEven)) return isOdd ? sizeOdd : sizeEven;
  const count = pivot < 0 ? 0 : listLandmarks((pivot + 1) * partSize - 1, sequence, context, kvHead, 0);
  const to = setOf(pivot);
  const entries = edgeEntries();
  for (let i: usize = 0; i < <usize>count; i++) {
    store<u32>(to + (i << 2), load<u32>(entries + i * ENTRY_BYTES));
    store<u32>(to + ((PIVOT_ROWS + i) << 2), load<u32>(entries + i * ENTRY_BYTES, 4));
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

function setOf(pivot: i32): usize {
  return pivots + <usize>(pivot & 1) * PIVOT_ROWS * 8;
}

/** Landmarks of one of the two pivots that were listed last. */
export function sizeOfPivot(pivot: i32): i32 {
  return (pivot & 1) !== 0 ? sizeOdd : sizeEven;
}

/** The landmarks of a listed pivot become rows from `row` on. */
export function takePivot(pivot: i32, rowKeys: usize, rowValues: usize, row: i32): void {
  const from = setOf(pivot);
  const count = sizeOfPivot(pivot);
  for (let i = 0; i < count; i++) {
    const at = (<usize>(row + i)) << 2;
    store<u32>(rowKeys + at, load<u32>(from + ((<usize>i) << 2)));
    store<u32>(rowValues + at, load<u32>(from + ((PIVOT_ROWS + <usize>i) << 2)));
  }
}

/** What the scores of landmarks need beside the products. */
export function raisePivots(row: i32, count: i32): void {
  if (attributeI(7) === 0) return;
  const logCount = <f32>Math.log(<f64>partSize);
  for (let i = 0; i < count; i++) raiseRow(row + i, logCount);
}

/** Hides landmarks from the lanes of another pivot. */
export function hidePivot(panel: i32, row: i32, count: i32, pivot: i32): void {
  // positions of the lanes with this pivot: [(pivot + 1) * partSize - 1, (pivot + 2) * partSize - 1)
  for (let i = 0; i < count; i++) hideRow(panel, row + i, (pivot + 1) * partSize - 1, 0, partSize - 1);
}
