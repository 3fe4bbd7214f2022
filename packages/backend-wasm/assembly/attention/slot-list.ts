/** Lists of the cache slots that a token sees, in the order of logical slots, and attention over such lists. */
import { floatAt, intAt } from '../runtime/arrays';
import { addMassOfRows } from './key-mass';
import * as cache from './kv-cache-view';
import * as panels from './query-panels';
import * as tile from './query-tiles';

export let numListed: i32 = 0;

let list: usize = 0;
let positions: usize = 0;
let logical: usize = 0;
// rows of gathered keys and values
let keyRows: usize = 0;
let valueRows: usize = 0;

/** Starts an empty list of cache slots; positions and logical slots are listed too unless their addresses are 0. */
export function openList(slots: usize, slotPositions: usize, logicalSlots: usize): void {
  list = slots;
  positions = slotPositions;
  logical = logicalSlots;
  numListed = 0;
}

/** Appends the slots of the whole context that the token sees. */
export function listContext(): void {
  for (let slot = 0; slot < tile.context;) {
    const count = cache.slotsInBlock(slot, tile.context - slot);
    listBlock(slot, count);
    slot += count;
  }
}

/** Appends the slots that the token sees, out of `count` slots of one block. */
export function listBlock(slot: i32, count: i32): void {
  let index = cache.slotIndex(tile.sequence, slot);
  const end = index + count;
  const shift = slot - index;
  const lanes = i32x4(0, 1, 2, 3);
  let at = (<usize>numListed) << 2;
  for (; index + 4 <= end; index += 4, at += 16) {
    const four = v128.load(cache.positionsAt(index));
    if (v128.any_true(cache.hiddenLanes(tile.position, four, cache.minDistance, cache.maxDistance))) break;
    v128.store(list + at, i32x4.add(i32x4.splat(index), lanes));
    if (positions !== 0) v128.store(positions + at, four);
    if (logical !== 0) v128.store(logical + at, i32x4.add(i32x4.splat(index + shift), lanes));
  }
  for (; index < end; index++) {
    const position = cache.positionAt(index);
    if (!cache.isVisible(tile.position, position, cache.minDistance, cache.maxDistance)) continue;
    store<i32>(list + at, index);
    if (positions !== 0) store<i32>(positions + at, position);
    if (logical !== 0) store<i32>(logical + at, index + shift);
    at += 4;
  }
  numListed = <i32>(at >> 2);
}

/** Lays out scratch for PANEL_ROWS rows and returns its end. */
export function layGathered(scratch: usize): usize {
  keyRows = scratch;
  valueRows = keyRows + <usize>panels.PANEL_ROWS * cache.keyStride;
  return valueRows + <usize>panels.PANEL_ROWS * cache.valueStride + 64;
}

/**
 * Attends to the cache slots in `list` with all panels; a second call with their `logical` slots adds their masses instead.
 * @param biases f32 added to the logit of each slot; 0 for none
 */
export function attendSlots(list: usize, count: i32, logical: usize, biases: usize = 0): void {
  for (let begin = 0; begin < count; begin += panels.PANEL_ROWS) {
    const rows = min<i32>(panels.PANEL_ROWS, count - begin);
    const offset = (<usize>begin) << 2;
    gatherKeys(list + offset, rows);
    if (logical === 0) gatherValues(list + offset, rows);
    for (let panel = 0; panel < panels.numPanels; panel++) {
      scoreGathered(panel, rows, biases === 0 ? 0 : biases + offset);
      if (logical !== 0) {
        addMassOfRows(panel, rows, tile.kvHead, logical + offset, 0);
        continue;
      }
      panels.softmaxRows(panel, rows);
      panels.sumRows(panel, valueRows, rows, 0);
    }
  }
}

/** The logits of a panel with the gathered keys; `biases` as in `attendSlots`. */
export function scoreGathered(panel: i32, count: i32, biases: usize): void {
  panels.scoreRows(panel, keyRows, count, 0);
  panels.capRows(count);
  for (let i = 0; biases !== 0 && i < count; i++) {
    const bias = floatAt(biases, i);
    if (bias !== 0) panels.raiseRow(i, bias);
  }
}

/** Gathers the values of at most PANEL_ROWS slots and returns their address. */
export function gatherValues(list: usize, count: i32): usize {
  for (let i = 0; i < count; i++) {
    cache.copyValue(intAt(list, i), tile.kvHead, valueRows + <usize>i * cache.valueStride);
  }
  return valueRows;
}

/** Gathers the keys of at most PANEL_ROWS slots and returns their address. */
export function gatherKeys(list: usize, count: i32): usize {
  for (let i = 0; i < count; i++) {
    cache.copyKey(intAt(list, i), tile.kvHead, keyRows + <usize>i * cache.keyStride);
  }
  return keyRows;
}
