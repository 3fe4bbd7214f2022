/** Gathers keys and values of selected slots as contiguous f32 rows for the open panels. */
import * as cache from './kv-cache-view';
import { addMassOfRows } from './key-mass';
import * as panels from './query-panels';

let keyRows: usize = 0;
let valueRows: usize = 0;

/** Lays out scratch for PANEL_ROWS rows and returns its end. */
export function layGathered(scratch: usize): usize {
  keyRows = scratch;
  valueRows = keyRows + <usize>panels.PANEL_ROWS * cache.keyStride;
  return valueRows + <usize>panels.PANEL_ROWS * cache.valueStride + 64;
}

/** All panels attend to the cache slots in `list`. */
export function attendSlots(list: usize, count: i32, kvHead: i32): void {
  for (let begin = 0; begin < count; begin += panels.PANEL_ROWS) {
    const rows = min<i32>(panels.PANEL_ROWS, count - begin);
    const at = list + ((<usize>begin) << 2);
    gatherKeys(at, rows, kvHead);
    for (let i = 0; i < rows; i++) {
      cache.copyValue(load<i32>(at + ((<usize>i) << 2)), kvHead, valueRows + <usize>i * cache.valueStride);
    }
    for (let panel = 0; panel < panels.numPanels; panel++) {
      panels.scoreRows(panel, keyRows, rows, 0);
      panels.capRows(rows);
      panels.softmaxRows(panel, rows);
      panels.sumRows(panel, valueRows, rows, 0);
    }
  }
}

/** Adds the masses of the same slots after all of them were attended to; `slots` lists the logical slots. */
export function addMassOfSlots(list: usize, slots: usize, count: i32, kvHead: i32): void {
  for (let begin = 0; begin < count; begin += panels.PANEL_ROWS) {
    const rows = min<i32>(panels.PANEL_ROWS, count - begin);
    gatherKeys(list + ((<usize>begin) << 2), rows, kvHead);
    for (let panel = 0; panel < panels.numPanels; panel++) {
      panels.scoreRows(panel, keyRows, rows, 0);
      panels.capRows(rows);
      addMassOfRows(panel, rows, kvHead, slots + ((<usize>begin) << 2), 0);
    }
  }
}

/** Gathers the keys of at most PANEL_ROWS slots and returns their address. */
export function gatherKeys(list: usize, count: i32, kvHead: i32): usize {
  for (let i = 0; i < count; i++) {
    cache.copyKey(load<i32>(list + ((<usize>i) << 2)), kvHead, keyRows + <usize>i * cache.keyStride);
  }
  return keyRows;
}
