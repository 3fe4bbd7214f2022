/** Lists of the cache slots that a token sees, in the order of logical slots. */
import * as cache from './kv-cache-view';
import * as tile from './query-tiles';
import { hiddenLanes, isVisible } from './slot-positions';

export let numListed: i32 = 0;

let list: usize = 0;
let positions: usize = 0;
let logical: usize = 0;

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

/** Appends those among `count` slots of one block. */
export function listBlock(slot: i32, count: i32): void {
  let index = cache.slotIndex(tile.sequence, slot);
  const end = index + count;
  const shift = slot - index;
  const lanes = i32x4(0, 1, 2, 3);
  let at = (<usize>numListed) << 2;
  for (; index + 4 <= end; index += 4, at += 16) {
    const four = v128.load(cache.positionsAt(index));
    if (v128.any_true(hiddenLanes(tile.position, four, cache.minDistance, cache.maxDistance))) break;
    v128.store(list + at, i32x4.add(i32x4.splat(index), lanes));
    if (positions !== 0) v128.store(positions + at, four);
    if (logical !== 0) v128.store(logical + at, i32x4.add(i32x4.splat(index + shift), lanes));
  }
  for (; index < end; index++) {
    const position = cache.positionAt(index);
    if (!isVisible(tile.position, position, cache.minDistance, cache.maxDistance)) continue;
    store<i32>(list + at, index);
    if (positions !== 0) store<i32>(positions + at, position);
    if (logical !== 0) store<i32>(logical + at, index + shift);
    at += 4;
  }
  numListed = <i32>(at >> 2);
}
