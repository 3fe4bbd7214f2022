/** Keys and values of chosen slots, side by side as f32, for the panels that are open. */
import { keyOf, valueOf } from './kv-cache-view';
import { addMassOfRows } from './key-mass';
import { PANEL_ROWS, capRows, numPanels, scoreRows, sumRows, weighRows } from './query-panels';
import { dim } from '../runtime/record';

let keyRows: usize = 0;
let valueRows: usize = 0;
let keyStride: usize = 0;
let valueStride: usize = 0;

/** Lays out scratch for PANEL_ROWS rows and returns its end. */
export function layGathered(scratch: usize): usize {
  keyStride = (<usize>dim(0, 2)) << 2;
  valueStride = (<usize>dim(4, 3)) << 2;
  keyRows = scratch;
  valueRows = keyRows + <usize>PANEL_ROWS * keyStride;
  return valueRows + <usize>PANEL_ROWS * valueStride + 64;
}

/** All panels attend to the slots of the cache `list[0 ... count)`. */
export function attendSlots(list: usize, count: i32, kvHead: i32): void {
  for (let begin = 0; begin < count; begin += PANEL_ROWS) {
    const rows = min<i32>(PANEL_ROWS, count - begin);
    const at = list + ((<usize>begin) << 2);
    gatherKeys(at, rows, kvHead);
    for (let i = 0; i < rows; i++) {
      const to = valueRows + <usize>i * valueStride;
      const from = valueOf(load<i32>(at + ((<usize>i) << 2)), kvHead, to);
      if (from !== to) memory.copy(to, from, valueStride);
    }
    for (let panel = 0; panel < numPanels; panel++) {
      scoreRows(panel, keyRows, rows, 0);
      capRows(rows);
      weighRows(panel, rows);
      sumRows(panel, valueRows, rows, 0);
    }
  }
}

/** The masses of the same slots, once all of them were attended to; `slots` are the logical ones. */
export function addMassOfSlots(list: usize, slots: usize, count: i32, kvHead: i32): void {
  for (let begin = 0; begin < count; begin += PANEL_ROWS) {
    const rows = min<i32>(PANEL_ROWS, count - begin);
    gatherKeys(list + ((<usize>begin) << 2), rows, kvHead);
    for (let panel = 0; panel < numPanels; panel++) {
      scoreRows(panel, keyRows, rows, 0);
      capRows(rows);
      addMassOfRows(panel, rows, kvHead, slots + ((<usize>begin) << 2), 0);
    }
  }
}

/** Brings the keys of at most PANEL_ROWS slots side by side and returns where. */
export function gatherKeys(list: usize, count: i32, kvHead: i32): usize {
  for (let i = 0; i < count; i++) {
    const to = keyRows + <usize>i * keyStride;
    const from = keyOf(load<i32>(list + ((<usize>i) << 2)), kvHead, to);
    if (from !== to) memory.copy(to, from, keyStride);
  }
  return keyRows;
}
