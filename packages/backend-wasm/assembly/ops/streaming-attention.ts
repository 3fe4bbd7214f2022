/**
 * Attention to the last positions and to sinks, the latter with another query. Slots may hold positions in any order. Work items: (token tile, KV head and head tile), all head tiles in one where masses are asked for.
 */
import * as cache from '../attention/kv-cache-view';
import { addMassOfRows, clearMass, enterMass } from '../attention/key-mass';
import { closeRow, flushRow, layRow, openRow, pushSlot } from '../attention/online-softmax-row';
import * as panels from '../attention/query-panels';
import * as slots from '../attention/slot-positions';
import * as op from '../operands/streaming-attention.generated';
import { localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { ALIGNMENT_BYTES } from '../attention/scratch-sizes';

let local: i32 = 0;
let sinks: i32 = 0;
/** Largest distance in the window. */
let windowReach: i32 = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;

let hasMass: bool = false;
/** Whether this pass adds masses instead of outputs. */
let isMeasuring: bool = false;

/** The first token of the run whose slots were scanned: the same for all KV heads. */
let scannedRun: i32 = -1;
// ranges of logical slots that hold the windows and the sinks of the run
let windowBegin: i32 = 0;
let windowEnd: i32 = 0;
let sinksBegin: i32 = 0;
let sinksEnd: i32 = 0;

// the current pass attends to positions below `limit` at distances of `near` to `far`
let near: i32 = 0;
let far: i32 = 0;
let limit: i32 = 0;

export function streamingAttention(): void {
  cache.enterCache();
  local = op.attributes.local;
  sinks = op.attributes.sinks;
  windowReach = min<i32>(local - 1, cache.maxDistance);
  hasMass = enterMass(op.mass.isPresent ? op.mass.address : 0);
  layScratch(localScratch());
  scannedRun = -1;
  const headTile = min<i32>(cache.groupSize, panels.LANES);
  const numHeadTiles = (cache.groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, panels.LANES / headTile);
  const numTokenTiles = (cache.numTokens + tokenTile - 1) / tokenTile;
  const tilesOfItem = hasMass ? numHeadTiles : 1;
  const headItems = numHeadTiles / tilesOfItem;
  const numItems = numTokenTiles * cache.numKvHeads * headItems;
  for (let item = takeUnits(1); item < numItems; item = takeUnits(1)) {
    const kvHead = (item / headItems) % cache.numKvHeads;
    const tile = item / (headItems * cache.numKvHeads);
    const lastToken = min<i32>(cache.numTokens, (tile + 1) * tokenTile);
    clearMass(tile * tokenTile, lastToken, kvHead);
    for (let i = 0; i < tilesOfItem; i++) {
      const h0 = kvHead * cache.groupSize + ((item % headItems) * tilesOfItem + i) * headTile;
      const h1 = min<i32>((kvHead + 1) * cache.groupSize, h0 + headTile);
      for (let t = tile * tokenTile; t < lastToken;) {
        const end = cache.runEnd(t, lastToken);
        attendRun(t, end, kvHead, h0, h1);
        t = end;
      }
    }
  }
}

/** Lays out scratch and returns its end. */
function layScratch(base: usize): usize {
  keyRows = panels.layPanels(base);
  valueRows = keyRows + <usize>panels.PANEL_ROWS * cache.keyStride;
  return layRow(valueRows + <usize>panels.PANEL_ROWS * cache.valueStride + 64, keyRows, valueRows);
}

function attendRun(t0: i32, t1: i32, kvHead: i32, h0: i32, h1: i32): void {
  const sequence = cache.sequenceOfToken(t0);
  const context = cache.contextOfSequence(sequence);
  panels.openPanels(t0, t1, h0, h1);
  isMeasuring = false;
  if (scannedRun !== t0) findRanges(t0, sequence, context);
  attendRanges(sequence, kvHead);
  if (hasMass) {
    isMeasuring = true;
    panels.loadQueries(cache.queryAt(0), false);
    attendRanges(sequence, kvHead);
  }
  if (kvHead === 0 && h0 === 0) for (let t = t0; t < t1; t++) countPairs(t, sequence, context);
  for (let lane = 0; lane < panels.numLanes; lane++) {
    const row = panels.rowOfLane(lane);
    const y = op.y.address + row * cache.valueStride;
    if (!panels.writeLane(lane, y)) attendAlone(<i32>row, panels.positionOfLane(lane), sequence, context, kvHead, y);
  }
}

function chooseWindow(): void {
  near = 0;
  far = windowReach;
  limit = i32.MAX_VALUE;
}
/** The first positions, before the window. */
function chooseSinks(): void {
  near = local;
  far = cache.maxDistance;
  limit = sinks;
}

/** The window, then the sinks. */
function attendRanges(sequence: i32, kvHead: i32): void {
  chooseWindow();
  attendRange(sequence, windowBegin, windowEnd, kvHead);
  if (sinks === 0 || cache.maxDistance < local) return;
  if (op.sinkQ.isPresent) panels.loadQueries(op.sinkQ.address, false);
  chooseSinks();
  attendRange(sequence, sinksBegin, sinksEnd, kvHead);
}

/** Finds the slots that the run of tokens in the panels may see. */
function findRanges(firstToken: i32, sequence: i32, context: i32): void {
  scannedRun = firstToken;
  panels.scanLanes(0, panels.numLanes);
  windowBegin = context;
  windowEnd = 0;
  sinksBegin = context;
  sinksEnd = 0;
  for (let slot = 0; slot < context;) {
    const begin = slot;
    slot += cache.slotsInBlock(slot, min<i32>(panels.PANEL_ROWS, context - slot));
    slots.scanPositions(cache.positionsAt(cache.slotIndex(sequence, begin)), slot - begin);
    chooseWindow();
    if (!isOutside(panels.lowestLane, panels.highestLane)) {
      windowBegin = min<i32>(windowBegin, begin);
      windowEnd = slot;
    }
    chooseSinks();
    if (!isOutside(panels.lowestLane, panels.highestLane)) {
      sinksBegin = min<i32>(sinksBegin, begin);
      sinksEnd = slot;
    }
  }
}

/** Whether some query of positions `[first, last]` may see a position. */
function isNear(position: i32, first: i32, last: i32): bool {
  return position >= 0 && position < limit && first - position <= far && last - position >= near;
}

/** Whether no query of positions `[first, last]` sees the slots that were scanned. */
function isOutside(first: i32, last: i32): bool {
  const isFar = first - slots.highestPosition > far || last - slots.lowestPosition < near;
  return slots.highestPosition < 0 || slots.lowestPosition >= limit || isFar;
}

/** Whether some query of positions `[first, last]` does not see all slots that were scanned. */
function needsMask(first: i32, last: i32): bool {
  const isPartial = last - slots.lowestPosition > far || first - slots.highestPosition < near;
  return slots.hasEmptySlot || slots.highestPosition >= limit || isPartial;
}

/** All panels attend to the slots `[from, to)`. */
function attendRange(sequence: i32, from: i32, to: i32, kvHead: i32): void {
  panels.scanLanes(0, panels.numLanes);
  const first = panels.lowestLane;
  const last = panels.highestLane;
  for (let slot = from; slot < to;) {
    let count = cache.slotsInBlock(slot, min<i32>(panels.PANEL_ROWS, to - slot));
    let index = cache.slotIndex(sequence, slot);
    let begin = slot;
    slot += count;
    slots.scanPositions(cache.positionsAt(index), count);
    if (isOutside(first, last)) continue;
    if (needsMask(first, last)) {
      // drop slots at both ends that no query sees
      while (count > 0 && !isNear(cache.positionAt(index + count - 1), first, last)) count -= 1;
      for (; count > 0 && !isNear(cache.positionAt(index), first, last); begin++, index++) count -= 1;
      if (count === 0) continue;
    }
    const keys = cache.keysOf(index, kvHead, count, keyRows);
    const values = cache.valuesOf(index, kvHead, count, valueRows);
    for (let panel = 0; panel < panels.numPanels; panel++) attendRows(panel, keys, values, index, count, begin, kvHead);
  }
}

/** A panel attends to `count` slots of one block; `begin` is the first logical slot. */
function attendRows(panel: i32, keys: usize, values: usize, index: i32, count: i32, begin: i32, kvHead: i32): void {
  panels.scanPanel(panel);
  if (panels.lowestLane - slots.highestPosition > far || panels.highestLane - slots.lowestPosition < near) return;
  panels.scoreRows(panel, keys, count, 0);
  panels.capRows(count);
  if (needsMask(panels.lowestLane, panels.highestLane)) {
    for (let j = 0; j < count; j++) {
      const position = cache.positionAt(index + j);
      if (position < 0 || position >= limit) panels.dropRow(j);
      else panels.hideRow(panel, j, position, near, far);
    }
  }
  if (isMeasuring) {
    addMassOfRows(panel, count, kvHead, 0, begin);
    return;
  }
  panels.softmaxRows(panel, count);
  panels.sumRows(panel, values, count, 0);
}

function countPairs(token: i32, sequence: i32, context: i32): void {
  const position = cache.positionOfToken(token);
  // the distance of the last sink
  const firstSink = max<i32>(local, position - sinks + 1);
  let count = 0;
  for (let slot = 0; slot < context;) {
    const at = cache.positionsAt(cache.slotIndex(sequence, slot));
    const numSlots = cache.slotsInBlock(slot, context - slot);
    slot += numSlots;
    count +=
      slots.countVisible(position, at, numSlots, 0, windowReach) +
      slots.countVisible(position, at, numSlots, firstSink, cache.maxDistance);
  }
  store<i32>(op.pairs.address + ((<usize>token) << 2), count);
}

/** Attends a single query to visible keys only: hidden keys that are not finite must not reach the output. */
function attendAlone(row: i32, position: i32, sequence: i32, context: i32, kvHead: i32, y: usize): void {
  openRow();
  for (let pass = 0; pass < 2; pass++) {
    const query =
      pass === 1 && op.sinkQ.isPresent ? op.sinkQ.address + <usize>row * cache.keyStride : cache.queryAt(row);
    if (pass === 0) chooseWindow();
    else chooseSinks();
    for (let slot = 0; slot < context; slot++) {
      const index = cache.slotIndex(sequence, slot);
      const key = cache.positionAt(index);
      if (key < limit && slots.isVisible(position, key, near, far)) pushSlot(query, index, kvHead);
    }
    flushRow(query);
  }
  closeRow(y);
}

/** Bytes of scratch per thread. */
export function streamingAttentionLocalBytes(): u64 {
  cache.enterCache();
  return layScratch(0) + ALIGNMENT_BYTES;
}
