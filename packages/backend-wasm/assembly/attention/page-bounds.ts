/**
 * Pages of a sequence for one token and KV head: those that are always attended to, and upper bounds on the logits of the
 * others, the open pages.
 */
import * as inputs from '../operands/page-inputs.generated';
import { intAt, setFloat, setInt } from '../runtime/arrays';
import { maxLane } from '../simd/vector';
import * as cache from './kv-cache-view';
import { boxBound4 } from './microkernels.generated';
import * as tile from './query-tiles';
import { listBlock } from './slot-list';

/** Bytes of an array with one number per page. */
export let pageBytes: usize = 0;
/** Number of open pages, the candidates of a selection. */
export let numOpen: i32 = 0;
/** i32 [open pages] */
export let pages: usize = 0;
/** f32 [open pages] number of visible keys; `page-topk` clears it when the budget selects the page */
export let sizes: usize = 0;
/** f32 [open pages] largest bound over the heads; `verified-topk` replaces it by the distance to the largest one */
export let best: usize = 0;
/** f32 [group, open pages], rows of `pageBytes` */
export let bounds: usize = 0;

let pageSize: i32 = 1;
/** Token of the last `scanPages`, whose result serves all KV heads of the token. */
let scannedToken: i32 = -1;
let scans: usize = 0; // i32 [pages] number of visible keys, complemented when the page is always attended to
let queries: usize = 0; // f32 [group, H], scaled

/** Lays out scratch, after `cache.enterCache`, and returns its end. */
export function layPages(base: usize): usize {
  scannedToken = -1;
  pageSize = cache.blockSize / inputs.keyMin.numParts;
  pageBytes = ((<usize>(inputs.blockTable.maxBlocks * inputs.keyMin.numParts)) << 2) + 16;
  scans = base;
  pages = scans + pageBytes;
  sizes = pages + pageBytes;
  best = sizes + pageBytes;
  bounds = best + pageBytes;
  queries = (bounds + <usize>cache.groupSize * pageBytes + 15) & ~15;
  return queries + <usize>cache.groupSize * cache.keyStride;
}

/** Lists the slots of pages that are always attended to, bounds the other pages, and returns the number of the former. */
export function openPages(firstHead: i32): i32 {
  if (tile.token !== scannedToken) scanPages();
  const numAttended = splitPages();
  boundPages(cache.queryAt(tile.token * cache.numHeads + firstHead));
  return numAttended;
}

function slotsOfPage(page: i32): i32 {
  return min<i32>(pageSize, tile.context - page * pageSize);
}

/** Counts the visible keys of each page, and finds the pages with sinks or local positions. */
function scanPages(): void {
  const sinks = max<i32>(inputs.attributes.sinks, 0);
  const local = inputs.attributes.local;
  const firstSink = tile.position - sinks + 1; // the distance of the last sink
  const reach = cache.maxDistance;
  scannedToken = tile.token;
  for (let page = 0; page * pageSize < tile.context; page++) {
    const count = slotsOfPage(page);
    const at = cache.positionsAt(cache.slotIndex(tile.sequence, page * pageSize));
    cache.scanPositions(at, count);
    let scan = count;
    const isInside =
      tile.position - cache.highestPosition >= max<i32>(local, 0) && tile.position - cache.lowestPosition <= reach;
    if (cache.hasEmptySlot || cache.lowestPosition < sinks || !isInside) {
      scan = cache.countVisible(tile.position, at, count, 0, reach);
      const numLocal = cache.countVisible(tile.position, at, count, 0, min<i32>(local - 1, reach));
      const numSinks = cache.countVisible(tile.position, at, count, max<i32>(firstSink, 0), reach);
      if (numLocal + numSinks > 0) scan = ~scan;
    }
    setInt(scans, page, scan);
  }
}

/** Lists the pages that are always attended to and returns their number; other pages with visible keys are open. */
function splitPages(): i32 {
  let numAttended = 0;
  numOpen = 0;
  for (let page = 0; page * pageSize < tile.context; page++) {
    const scan = intAt(scans, page);
    if (scan === 0) continue;
    if (scan < 0 || intAt(inputs.boxCounts.address, <i32>summaryOf(page)) !== pageSize) {
      listPage(page);
      numAttended += 1;
      continue;
    }
    setInt(pages, numOpen, page);
    setFloat(sizes, numOpen, <f32>scan);
    numOpen += 1;
  }
  return numAttended;
}

export function summaryOf(page: i32): usize {
  const numParts = inputs.keyMin.numParts;
  const part = cache.cacheBlock(tile.sequence, page * pageSize) * numParts + (page % numParts);
  return <usize>(part * cache.numKvHeads + tile.kvHead);
}

/** Appends the visible slots of a page to the list. */
export function listPage(page: i32): void {
  listBlock(page * pageSize, slotsOfPage(page));
}

/** Computes the upper bounds of the open pages for each head, and their maximum over the heads. Each box is read once. */
function boundPages(q: usize): void {
  const bytes = cache.keyStride;
  for (let i: usize = 0; i < <usize>cache.groupSize * bytes; i += 4)
    store<f32>(queries + i, load<f32>(q + i) * cache.scale);
  const lastQuery = queries + <usize>(cache.groupSize - 1) * bytes;
  for (let open = 0; open < numOpen; open++) {
    const at = summaryOf(intAt(pages, open)) * bytes;
    let top = f32x4.splat(-Infinity);
    for (let g = 0; g < cache.groupSize; g += 4) {
      // padding heads repeat the last one
      const x = queries + <usize>g * bytes;
      const y = min<usize>(x + bytes, lastQuery);
      const z = min<usize>(y + bytes, lastQuery);
      const w = min<usize>(z + bytes, lastQuery);
      const v = cache.capLogits(boxBound4(inputs.keyMin.address + at, inputs.keyMax.address + at, x, y, z, w, bytes));
      top = f32x4.max(top, v);
      const to = bounds + <usize>g * pageBytes;
      setFloat(to, open, f32x4.extract_lane(v, 0));
      if (g + 1 < cache.groupSize) setFloat(to + pageBytes, open, f32x4.extract_lane(v, 1));
      if (g + 2 < cache.groupSize) setFloat(to + 2 * pageBytes, open, f32x4.extract_lane(v, 2));
      if (g + 3 < cache.groupSize) setFloat(to + 3 * pageBytes, open, f32x4.extract_lane(v, 3));
    }
    setFloat(best, open, maxLane<f32>(top));
  }
}
