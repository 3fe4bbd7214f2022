/** Attention to a local window and to sinks, which may have queries of their own. Slots may hold positions in any order. */
import * as cache from '../attention/kv-cache-view';
import { addMassOfRows, enterMass, hasMass } from '../attention/key-mass';
import { closeRow, flushRow, layRow, openRow, pushSlot } from '../attention/online-softmax-row';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import * as op from '../operands/streaming-attention.generated';
import { localScratch } from '../runtime/record';
import { setInt } from '../runtime/arrays';

let keyRows: usize = 0;
let valueRows: usize = 0;
/** Whether this pass adds masses instead of outputs. */
let isMeasuring: bool = false;

/** First token of the run of the last `findRanges`, whose result serves all KV heads. */
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
  streamingAttentionScratch(localScratch());
  if (op.sinkLogits.isPresent) cache.enterSinks(op.sinkLogits.address);
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  scannedRun = -1;
  tile.attendTiles(1, 1, false, op.y.address, attendTile);
}

/** Reads the record, lays out scratch and returns its end. */
export function streamingAttentionScratch(base: usize): usize {
  cache.enterCache();
  keyRows = panels.layPanels(base);
  valueRows = keyRows + <usize>panels.PANEL_ROWS * cache.keyStride;
  return layRow(valueRows + <usize>panels.PANEL_ROWS * cache.valueStride + 64, keyRows, valueRows);
}

function attendTile(): void {
  if (scannedRun !== panels.firstToken) findRanges();
  attendRanges(false);
  if (hasMass) {
    panels.loadQueries(cache.queryAt(0));
    attendRanges(true);
  }
  for (let lane = 0; lane < panels.numLanes; lane++) {
    const row = panels.rowOfLane(lane);
    const y = op.y.address + row * cache.valueStride;
    if (panels.headOfLane(lane) === 0) countPairs(panels.tokenOfLane(lane));
    if (!panels.writeLane(lane, y)) attendAlone(<i32>row, panels.positionOfLane(lane), y);
  }
}

/** Selects the pass over the window, or over the sinks: the first positions, unless they are in the window. */
function choosePass(hasSinks: bool): void {
  const local = op.attributes.local;
  near = hasSinks ? local : 0;
  far = hasSinks ? cache.maxDistance : min<i32>(local - 1, cache.maxDistance);
  limit = hasSinks ? op.attributes.sinks : i32.MAX_VALUE;
}

/** Attends to the window, then to the sinks. */
function attendRanges(measures: bool): void {
  isMeasuring = measures;
  choosePass(false);
  attendRange(windowBegin, windowEnd);
  if (op.attributes.sinks === 0 || cache.maxDistance < op.attributes.local) return;
  if (op.sinkQ.isPresent) panels.loadQueries(op.sinkQ.address);
  choosePass(true);
  attendRange(sinksBegin, sinksEnd);
}

/** Finds the slots that the run of tokens in the panels may see. */
function findRanges(): void {
  scannedRun = panels.firstToken;
  panels.scanLanes(0, panels.numLanes);
  windowBegin = tile.context;
  windowEnd = 0;
  sinksBegin = tile.context;
  sinksEnd = 0;
  for (let slot = 0; slot < tile.context;) {
    const begin = slot;
    slot += cache.slotsInBlock(slot, min<i32>(panels.PANEL_ROWS, tile.context - slot));
    cache.scanPositions(cache.positionsAt(cache.slotIndex(tile.sequence, begin)), slot - begin);
    choosePass(false);
    if (!isOutside(panels.lowestLane, panels.highestLane)) {
      windowBegin = min<i32>(windowBegin, begin);
      windowEnd = slot;
    }
    choosePass(true);
    if (!isOutside(panels.lowestLane, panels.highestLane)) {
      sinksBegin = min<i32>(sinksBegin, begin);
      sinksEnd = slot;
    }
  }
}

/** Whether any query of positions `[first, last]` may see a position. */
function isNear(position: i32, first: i32, last: i32): bool {
  return position >= 0 && position < limit && first - position <= far && last - position >= near;
}

/** Whether no query of positions `[first, last]` sees the slots that were scanned. */
function isOutside(first: i32, last: i32): bool {
  const isFar = first - cache.highestPosition > far || last - cache.lowestPosition < near;
  return cache.highestPosition < 0 || cache.lowestPosition >= limit || isFar;
}

/** Whether any query of positions `[first, last]` does not see all slots that were scanned. */
function needsMask(first: i32, last: i32): bool {
  const isPartial = last - cache.lowestPosition > far || first - cache.highestPosition < near;
  return cache.hasEmptySlot || cache.highestPosition >= limit || isPartial;
}

/** All panels attend to the slots `[from, to)`. */
function attendRange(from: i32, to: i32): void {
  panels.scanLanes(0, panels.numLanes);
  const first = panels.lowestLane;
  const last = panels.highestLane;
  for (let slot = from; slot < to;) {
    let count = cache.slotsInBlock(slot, min<i32>(panels.PANEL_ROWS, to - slot));
    let index = cache.slotIndex(tile.sequence, slot);
    let begin = slot;
    slot += count;
    cache.scanPositions(cache.positionsAt(index), count);
    if (isOutside(first, last)) continue;
    if (needsMask(first, last)) {
      // drop slots at both ends that no query sees
      while (count > 0 && !isNear(cache.positionAt(index + count - 1), first, last)) count -= 1;
      for (; count > 0 && !isNear(cache.positionAt(index), first, last); begin++, index++) count -= 1;
      if (count === 0) continue;
    }
    const keys = cache.keysOf(index, tile.kvHead, count, keyRows);
    const values = cache.valuesOf(index, tile.kvHead, count, valueRows);
    for (let panel = 0; panel < panels.numPanels; panel++) attendRows(panel, keys, values, index, count, begin);
  }
}

/** A panel attends to `count` slots of one block; `begin` is the first logical slot. */
function attendRows(panel: i32, keys: usize, values: usize, index: i32, count: i32, begin: i32): void {
  panels.scanPanel(panel);
  if (isOutside(panels.lowestLane, panels.highestLane)) return;
  panels.scoreRows(panel, keys, count, 0);
  panels.capRows(count);
  if (needsMask(panels.lowestLane, panels.highestLane))
    panels.maskRows(panel, count, cache.positionsAt(index), near, far, limit);
  if (isMeasuring) {
    addMassOfRows(panel, count, tile.kvHead, 0, begin);
    return;
  }
  panels.softmaxRows(panel, count);
  panels.sumRows(panel, values, count, 0);
}

/** Counts the keys of a token in the ranges of its run, which hold all that it may see. */
function countPairs(token: i32): void {
  const position = cache.positionOfToken(token);
  let count = 0;
  for (let pass = 0; pass < 2; pass++) {
    choosePass(pass === 1);
    const end = pass === 1 ? sinksEnd : windowEnd;
    for (let slot = pass === 1 ? sinksBegin : windowBegin; slot < end;) {
      const at = cache.positionsAt(cache.slotIndex(tile.sequence, slot));
      const numSlots = cache.slotsInBlock(slot, end - slot);
      slot += numSlots;
      count += cache.countVisible(position, at, numSlots, max<i32>(near, position - limit + 1), far);
    }
  }
  setInt(op.pairs.address, token, count);
}

/** Attends a single query to visible keys only: hidden keys that are not finite must not reach the output. */
function attendAlone(row: i32, position: i32, y: usize): void {
  openRow(row % cache.numHeads);
  for (let pass = 0; pass < 2; pass++) {
    const from = pass === 1 && op.sinkQ.isPresent ? op.sinkQ.address : cache.queryAt(0);
    const query = from + <usize>row * cache.keyStride;
    choosePass(pass === 1);
    for (let slot = 0; slot < tile.context; slot++) {
      const index = cache.slotIndex(tile.sequence, slot);
      const key = cache.positionAt(index);
      if (key < limit && cache.isVisible(position, key, near, far)) pushSlot(query, index, tile.kvHead);
    }
    flushRow(query);
  }
  closeRow(y);
}
