/** Gathers keys and values of selected slots as contiguous f32 rows for the open panels. */
import { intAt } from '../runtime/arrays';
import * as cache from './kv-cache-view';
import { addMassOfRows } from './key-mass';
import * as panels from './query-panels';
import * as tile from './query-tiles';

let keyRows: usize = 0;
let valueRows: usize = 0;

/** Lays out scratch for PANEL_ROWS rows and returns its end. */
export function layGathered(scratch: usize): usize {
  keyRows = scratch;
  valueRows = keyRows + <usize>panels.PANEL_ROWS * cache.keyStride;
  return valueRows + <usize>panels.PANEL_ROWS * cache.valueStride + 64;
}

/** All panels attend to the cache slots in `list`; or add their masses, once they did, where `logical` lists logical slots. */
export function attendSlots(list: usize, count: i32, logical: usize): void {
  for (let begin = 0; begin < count; begin += panels.PANEL_ROWS) {
    const rows = min<i32>(panels.PANEL_ROWS, count - begin);
    const at = list + ((<usize>begin) << 2);
    gatherKeys(at, rows);
    for (let i = 0; logical === 0 && i < rows; i++) {
      cache.copyValue(intAt(at, i), tile.kvHead, valueRows + <usize>i * cache.valueStride);
    }
    for (let panel = 0; panel < panels.numPanels; panel++) {
      panels.scoreRows(panel, keyRows, rows, 0);
      panels.capRows(rows);
      if (logical !== 0) {
        addMassOfRows(panel, rows, tile.kvHead, logical + ((<usize>begin) << 2), 0);
        continue;
      }
      panels.softmaxRows(panel, rows);
      panels.sumRows(panel, valueRows, rows, 0);
    }
  }
}

/** Gathers the keys of at most PANEL_ROWS slots and returns their address. */
export function gatherKeys(list: usize, count: i32): usize {
  for (let i = 0; i < count; i++) {
    cache.copyKey(intAt(list, i), tile.kvHead, keyRows + <usize>i * cache.keyStride);
  }
  return keyRows;
}
