/** The slots of a sequence in chunks of one block each, without those that no query of a tile sees. */
import { addressOf, dim } from '../runtime/record';
import { maxI4, minU4 } from '../simd/vector';

/** Most keys of one chunk. */
export const CHUNK: i32 = 64;

let slot: i32 = 0;
let end: i32 = 0;
let table: usize = 0;
let blockSize: i32 = 1;
let firstPosition: i32 = 0;
let lastPosition: i32 = 0;
let lead: i32 = 0;
let reach: i32 = 0;

/** Row of the first slot of the chunk in a cache `[blocks, KV heads, block size]`, for KV head 0. */
export let chunkRow: usize = 0;
export let chunkCount: i32 = 0;
/** Where the positions of the chunk are; 0 when all queries see all of it. */
export let chunkPositions: usize = 0;

/** Opens logical slots `[begin, limit)` of a sequence for queries at positions `[first, last]`; see `setSoftmax`. */
export function openSlots(
  sequence: i32,
  begin: i32,
  limit: i32,
  first: i32,
  last: i32,
  nearest: i32,
  farthest: i32,
): void {
  slot = begin;
  end = limit;
  table = addressOf(6) + ((<usize>(sequence * dim(6, 1))) << 2);
  blockSize = dim(3, 2);
  firstPosition = first;
  lastPosition = last;
  lead = nearest;
  reach = farthest;
}

/** Goes on to the next chunk of which some query may see something; false after the last one. */
export function nextChunk(): bool {
  while (slot < end) {
    const block = load<i32>(table + ((<usize>(slot / blockSize)) << 2));
    const offset = slot % blockSize;
    const count = min<i32>(min<i32>(CHUNK, blockSize - offset), end - slot);
    slot += count;
    const positions = addressOf(5) + ((<usize>(block * blockSize + offset)) << 2);
    // empty slots have negative positions: as unsigned numbers they are the largest
    let lows = i32x4.splat(-1);
    let highs = i32x4.splat(-1);
    let most = i32x4.splat(0);
    let j = 0;
    for (; j + 4 <= count; j += 4) {
      const four = v128.load(positions + ((<usize>j) << 2));
      lows = i32x4.min_u(lows, four);
      highs = i32x4.max_s(highs, four);
      most = i32x4.max_u(most, four);
    }
    for (; j < count; j++) {
      const one = v128.load32_splat(positions + ((<usize>j) << 2));
      lows = i32x4.min_u(lows, one);
      highs = i32x4.max_s(highs, one);
      most = i32x4.max_u(most, one);
    }
    const high = maxI4(highs);
    if (high < 0) continue;
    const low = <i32>minU4(lows);
    if (firstPosition - high > reach || low - lastPosition > -lead) continue;
    const hasEmpty = v128.any_true(i32x4.lt_s(most, i32x4.splat(0)));
    const isSeen = !hasEmpty && firstPosition - high >= lead && lastPosition - low <= reach;
    chunkPositions = isSeen ? 0 : positions;
    chunkRow = <usize>(block * dim(3, 1)) * <usize>blockSize + <usize>offset;
    chunkCount = count;
    return true;
  }
  return false;
}
