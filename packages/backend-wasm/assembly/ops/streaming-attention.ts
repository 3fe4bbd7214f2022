/**
 * Attention to the last positions and to the first ones, the latter with another query. Slots may hold positions in any order.
 * Units: (token tile, KV head and head tile), all head tiles in one where masses are asked for.
 * Tensors: as in `kv-cache-view.ts`, 8 sinkQ, 9 y, 10 pairs, 11 mass. Attributes: 4 local, 5 sinks.
 */
import {
  contextOfSequence,
  enterCache,
  keyOf,
  keysOf,
  modelReach,
  positionAt,
  positionOfToken,
  positionsAt,
  runEnd,
  sequenceOfToken,
  slotIndex,
  slotsInBlock,
  valueOf,
  valuesOf,
} from '../attention/kv-cache-view';
import { addMassOfRows, clearMass, enterMass } from '../attention/key-mass';
import {
  LANES,
  PANEL_ROWS,
  capRows,
  dropRow,
  firstLaneOf,
  headOfLane,
  hideRow,
  lastLaneOf,
  layPanels,
  loadQueries,
  numLanes,
  numPanels,
  openPanels,
  positionOfLane,
  scoreRows,
  sumRows,
  tokenOfLane,
  weighRows,
  writeLane,
} from '../attention/query-panels';
import { addressOf, attributeF, attributeI, dim, isPresent, localScratch } from '../runtime/record';
import { ENTRY_BYTES, ROW_STATE, clearRow, pushRows, setEntry, setRowSoftmax } from '../attention/online-softmax-row';
import { maxI4, minU4 } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

/** Rows taken at a time where a query is computed alone. */
const ALONE: i32 = 64;

let headDim: i32 = 0;
let valueDim: i32 = 0;
let local: i32 = 0;
let sinks: i32 = 0;
let reach: i32 = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;
let entries: usize = 0;
let state: usize = 0;

let hasMass: bool = false;
/** Whether slots give masses and not outputs. */
let isMeasuring: bool = false;

/** The first token of the run whose slots were looked at: the same for all KV heads. */
let scannedRun: i32 = -1;
// logical slots outside of which the run sees no position of its window, no sink
let windowBegin: i32 = 0;
let windowEnd: i32 = 0;
let sinksBegin: i32 = 0;
let sinksEnd: i32 = 0;

// positions of the slots at hand
let lowest: i32 = 0;
let highest: i32 = 0;
let hasEmpty: bool = false;

export function streamingAttention(): void {
  enterCache();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  local = attributeI(4);
  sinks = attributeI(5);
  reach = modelReach();
  hasMass = enterMass(11);
  setRowSoftmax(attributeF(0), attributeF(3));
  keyRows = layPanels(localScratch());
  valueRows = keyRows + <usize>PANEL_ROWS * ((<usize>headDim) << 2);
  entries = valueRows + <usize>PANEL_ROWS * ((<usize>valueDim) << 2) + 64;
  state = entries + <usize>ALONE * ENTRY_BYTES;

  scannedRun = -1;
  const numTokens = dim(0, 0);
  const numKvHeads = dim(3, 1);
  const groupSize = dim(0, 1) / numKvHeads;
  const headTile = min<i32>(groupSize, LANES);
  const numHeadTiles = (groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, LANES / headTile);
  const numTokenTiles = (numTokens + tokenTile - 1) / tokenTile;
  const tilesOfUnit = hasMass ? numHeadTiles : 1;
  const headUnits = numHeadTiles / tilesOfUnit;
  const numUnits = numTokenTiles * numKvHeads * headUnits;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const kvHead = (unit / headUnits) % numKvHeads;
    const tile = unit / (headUnits * numKvHeads);
    const lastToken = min<i32>(numTokens, (tile + 1) * tokenTile);
    clearMass(tile * tokenTile, lastToken, kvHead);
    for (let i = 0; i < tilesOfUnit; i++) {
      const h0 = kvHead * groupSize + ((unit % headUnits) * tilesOfUnit + i) * headTile;
      const h1 = min<i32>((kvHead + 1) * groupSize, h0 + headTile);
      for (let t = tile * tokenTile; t < lastToken;) {
        const end = runEnd(t, lastToken);
        attendRun(t, end, kvHead, h0, h1);
        t = end;
      }
    }
  }
}

function attendRun(t0: i32, t1: i32, kvHead: i32, h0: i32, h1: i32): void {
  const sequence = sequenceOfToken(t0);
  const context = contextOfSequence(sequence);
  openPanels(t0, t1, h0, h1);
  isMeasuring = false;
  if (scannedRun !== t0) findRanges(t0, t1, sequence, context);
  attendParts(sequence, context, kvHead);
  if (hasMass) {
    isMeasuring = true;
    loadQueries(addressOf(0));
    attendParts(sequence, context, kvHead);
  }
  if (kvHead === 0 && h0 === 0) countPairs(t0, t1, sequence, context);
  for (let lane = 0; lane < numLanes; lane++) {
    const row = tokenOfLane(lane) * dim(0, 1) + headOfLane(lane);
    const y = addressOf(9) + ((<usize>row * <usize>valueDim) << 2);
    if (!writeLane(lane, y)) attendAlone(row, positionOfLane(lane), sequence, context, kvHead, y);
  }
}

/** The window, then the sinks. */
function attendParts(sequence: i32, context: i32, kvHead: i32): void {
  const far = min<i32>(local - 1, reach);
  attendSlots(sequence, windowBegin, windowEnd, kvHead, 0, far, i32.MAX_VALUE);
  if (sinks === 0 || reach < local) return;
  if (isPresent(8)) loadQueries(addressOf(8));
  attendSlots(sequence, sinksBegin, sinksEnd, kvHead, local, reach, sinks);
}

/** Finds out which slots have to do with a run of tokens. */
function findRanges(t0: i32, t1: i32, sequence: i32, context: i32): void {
  scannedRun = t0;
  let first = i32.MAX_VALUE;
  let last = 0;
  for (let t = t0; t < t1; t++) {
    first = min<i32>(first, positionOfToken(t));
    last = max<i32>(last, positionOfToken(t));
  }
  const far = min<i32>(local - 1, reach);
  windowBegin = context;
  windowEnd = 0;
  sinksBegin = context;
  sinksEnd = 0;
  for (let slot = 0; slot < context;) {
    const begin = slot;
    slot += slotsInBlock(slot, min<i32>(PANEL_ROWS, context - slot));
    scanPositions(positionsAt(slotIndex(sequence, begin)), slot - begin);
    if (!isOutside(first, last, 0, far, i32.MAX_VALUE)) {
      windowBegin = min<i32>(windowBegin, begin);
      windowEnd = slot;
    }
    if (!isOutside(first, last, local, reach, sinks)) {
      sinksBegin = min<i32>(sinksBegin, begin);
      sinksEnd = slot;
    }
  }
}

/** Whether some query of positions `[first, last]` may see a position. */
function isNear(position: i32, first: i32, last: i32, near: i32, far: i32, limit: i32): bool {
  return position >= 0 && position < limit && first - position <= far && last - position >= near;
}

/** Whether no query of positions `[first, last]` sees the slots that were scanned. */
function isOutside(first: i32, last: i32, near: i32, far: i32, limit: i32): bool {
  return highest < 0 || lowest >= limit || first - highest > far || last - lowest < near;
}

/** All panels attend to positions below `limit` at distances `[near, far]` in slots `[from, to)`. */
function attendSlots(sequence: i32, from: i32, to: i32, kvHead: i32, near: i32, far: i32, limit: i32): void {
  let first = i32.MAX_VALUE;
  let last = 0;
  for (let lane = 0; lane < numLanes; lane++) {
    first = min<i32>(first, positionOfLane(lane));
    last = max<i32>(last, positionOfLane(lane));
  }
  for (let slot = from; slot < to;) {
    let count = slotsInBlock(slot, min<i32>(PANEL_ROWS, to - slot));
    let index = slotIndex(sequence, slot);
    let begin = slot;
    slot += count;
    scanPositions(positionsAt(index), count);
    if (isOutside(first, last, near, far, limit)) continue;
    if (hasEmpty || highest >= limit || last - lowest > far || first - highest < near) {
      // slots at both ends that no query sees are left out
      while (count > 0 && !isNear(positionAt(index + count - 1), first, last, near, far, limit)) count -= 1;
      for (; count > 0 && !isNear(positionAt(index), first, last, near, far, limit); begin++, index++) count -= 1;
      if (count === 0) continue;
    }
    const keys = keysOf(index, kvHead, count, keyRows);
    const values = valuesOf(index, kvHead, count, valueRows);
    for (let panel = 0; panel < numPanels; panel++) {
      let low = i32.MAX_VALUE;
      let high = 0;
      for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
        low = min<i32>(low, positionOfLane(lane));
        high = max<i32>(high, positionOfLane(lane));
      }
      if (low - highest > far || high - lowest < near) continue;
      scoreRows(panel, keys, count, 0);
      capRows(count);
      if (hasEmpty || highest >= limit || high - lowest > far || low - highest < near) {
        for (let j = 0; j < count; j++) {
          const position = positionAt(index + j);
          if (position < 0 || position >= limit) dropRow(j);
          else hideRow(panel, j, position, near, far);
        }
      }
      if (isMeasuring) {
        addMassOfRows(panel, count, kvHead, 0, begin);
        continue;
      }
      weighRows(panel, count);
      sumRows(panel, values, count, 0);
    }
  }
}

/** Least and greatest of the positions that are there. */
function scanPositions(at: usize, count: i32): void {
  let low = i32x4.splat(-1);
  let high = low;
  let top = i32x4.splat(0);
  let j = 0;
  for (; j + 4 <= count; j += 4, at += 16) {
    const v = v128.load(at);
    low = i32x4.min_u(low, v); // empty slots are the greatest as unsigned numbers
    high = i32x4.max_s(high, v);
    top = i32x4.max_u(top, v);
  }
  let least = minU4(low);
  highest = maxI4(high);
  hasEmpty = v128.any_true(i32x4.lt_s(top, i32x4.splat(0)));
  for (; j < count; j++, at += 4) {
    const position = load<i32>(at);
    least = min<u32>(least, <u32>position);
    highest = max<i32>(highest, position);
    if (position < 0) hasEmpty = true;
  }
  lowest = <i32>least;
}

function countPairs(t0: i32, t1: i32, sequence: i32, context: i32): void {
  for (let t = t0; t < t1; t++) {
    const position = positionOfToken(t);
    let count = 0;
    for (let slot = 0; slot < context;) {
      const index = slotIndex(sequence, slot);
      const end = index + slotsInBlock(slot, context - slot);
      slot += end - index;
      count += countSeen(positionsAt(index), end - index, position);
    }
    store<i32>(addressOf(10) + ((<usize>t) << 2), count);
  }
}

/** How many of `count` positions side by side are seen. */
function countSeen(at: usize, count: i32, position: i32): i32 {
  const here = i32x4.splat(position);
  let seen = i32x4.splat(0);
  let i = 0;
  for (; i + 4 <= count; i += 4, at += 16) {
    const keys = v128.load(at);
    const distance = i32x4.sub(here, keys);
    const hidden = v128.or(
      v128.or(i32x4.lt_s(keys, i32x4.splat(0)), i32x4.lt_s(distance, i32x4.splat(0))),
      i32x4.gt_s(distance, i32x4.splat(reach)),
    );
    const chosen = v128.or(i32x4.lt_s(distance, i32x4.splat(local)), i32x4.lt_s(keys, i32x4.splat(sinks)));
    seen = i32x4.sub(seen, v128.andnot(chosen, hidden));
  }
  let sum =
    i32x4.extract_lane(seen, 0) +
    i32x4.extract_lane(seen, 1) +
    i32x4.extract_lane(seen, 2) +
    i32x4.extract_lane(seen, 3);
  for (; i < count; i++, at += 4) if (isSeen(position, load<i32>(at))) sum += 1;
  return sum;
}

function isSeen(position: i32, key: i32): bool {
  const distance = position - key;
  return key >= 0 && distance >= 0 && distance <= reach && (distance < local || key < sinks);
}

/** One query, only keys that it sees: where something is not finite, nothing of other keys may come in. */
function attendAlone(row: i32, position: i32, sequence: i32, context: i32, kvHead: i32, y: usize): void {
  clearRow(state, valueDim);
  const offset = <usize>row * ((<usize>headDim) << 2);
  const sinkQuery = isPresent(8) ? addressOf(8) + offset : addressOf(0) + offset;
  for (let pass = 0; pass < 2; pass++) {
    const query = pass === 0 ? addressOf(0) + offset : sinkQuery;
    let count = 0;
    for (let slot = 0; slot < context; slot++) {
      const index = slotIndex(sequence, slot);
      const key = positionAt(index);
      if (!isSeen(position, key) || position - key < local !== (pass === 0)) continue;
      const keyAt = keyOf(index, kvHead, keyRows + <usize>count * ((<usize>headDim) << 2));
      const valueAt = valueOf(index, kvHead, valueRows + <usize>count * ((<usize>valueDim) << 2));
      setEntry(entries, count++, keyAt, valueAt, 0);
      if (count < ALONE) continue;
      pushRows(query, headDim, valueDim, entries, count, state);
      count = 0;
    }
    pushRows(query, headDim, valueDim, entries, count, state);
  }
  const sum = load<f32>(state, 4);
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  for (let i: usize = 0; i < (<usize>valueDim) << 2; i += 4)
    store<f32>(y + i, load<f32>(state + ROW_STATE + i) * factor);
}
