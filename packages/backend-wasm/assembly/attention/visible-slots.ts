/** Walks over the slots of a sequence in chunks within a block, and skips chunks that no query of a tile sees. */
import * as cache from './kv-cache-view';
import * as slots from './slot-positions';

/** Maximum number of keys in a chunk. */
export const CHUNK: i32 = 64;

let slot: i32 = 0;
let end: i32 = 0;
let sequence: i32 = 0;
let firstQuery: i32 = 0;
let lastQuery: i32 = 0;

/** Row of the first slot of the chunk in a cache `[blocks, KV heads, block size]`, for KV head 0. */
export let chunkRow: usize = 0;
export let chunkCount: i32 = 0;
/** Address of the positions of the chunk; 0 when all queries see all of it. */
export let chunkPositions: usize = 0;

/** Opens logical slots `[begin, limit)` of a sequence for queries at positions `[first, last]`. */
export function openSlots(sequenceOfTile: i32, begin: i32, limit: i32, first: i32, last: i32): void {
  sequence = sequenceOfTile;
  slot = begin;
  end = limit;
  firstQuery = first;
  lastQuery = last;
}

/** Moves to the next chunk that some query may see; false after the last one. */
export function nextChunk(): bool {
  while (slot < end) {
    const block = cache.cacheBlock(sequence, slot);
    const offset = slot % cache.blockSize;
    const count = min<i32>(min<i32>(CHUNK, cache.blockSize - offset), end - slot);
    slot += count;
    const positions = cache.positionsAt(block * cache.blockSize + offset);
    slots.scanPositions(positions, count);
    if (slots.highestPosition < 0) continue;
    if (firstQuery - slots.highestPosition > cache.maxDistance || lastQuery - slots.lowestPosition < cache.minDistance)
      continue;
    const isSeen =
      !slots.hasEmptySlot &&
      firstQuery - slots.highestPosition >= cache.minDistance &&
      lastQuery - slots.lowestPosition <= cache.maxDistance;
    chunkPositions = isSeen ? 0 : positions;
    chunkRow = <usize>(block * cache.numKvHeads) * <usize>cache.blockSize + <usize>offset;
    chunkCount = count;
    return true;
  }
  return false;
}
