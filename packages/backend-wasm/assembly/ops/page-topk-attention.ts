/** Attends to pages in descending order of their upper bounds, until a budget or a certificate is met. */
import { enterMass, hasMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import { boxBound4 } from '../attention/microkernels.generated';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import { BINS_BYTES, selectLargest } from '../attention/select-top-k';
import { attendSlots, layGathered, listBlock, numListed, openList } from '../attention/slot-list';
import * as op from '../operands/page-topk-attention.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { maxLane, sum4, weight4 } from '../simd/vector';
import { selectTop } from './top-k';

let pageSize: i32 = 1;
/** Bytes of an array with one number per page. */
let pageBytes: usize = 0;
/** Number of open pages, the candidates of the selection. */
let numOpen: i32 = 0;
/** Number of open pages attended to, and its maximum. */
let numVisited: i32 = 0;
let budget: i32 = 0;
/** Token of the last `scanPages`, whose result serves all KV heads of the token. */
let scannedToken: i32 = -1;

// scratch
let list: usize = 0; // i32 slots of the cache to attend to
let logical: usize = 0; // i32 logical slot of each slot of the list, for masses
let scans: usize = 0; // i32 [pages] number of visible keys, complemented when the page is always attended to
let pages: usize = 0; // i32 [open pages]
let sizes: usize = 0; // f32 [open pages] number of visible keys, 0 once the budget selected the page
let best: usize = 0; // f32 [open pages] largest bound over the heads
let bounds: usize = 0; // f32 [group, open pages]
let order: usize = 0; // i32 [open pages] the pages selected by the budget, or all pages, best first
let work: usize = 0;
let rests: usize = 0; // f64 [group, open pages + 1] upper bound of the mass of the i-th and later pages, relative to `tops`
let tops: usize = 0; // f32 [group] the largest bound
let queries: usize = 0; // f32 [group, H], scaled

export function pageTopkAttention(): void {
  pageTopkAttentionScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  scannedToken = -1;
  tile.attendGroups(cache.groupSize, attendGroup);
}

/** Reads the record, lays out scratch and returns its end. */
export function pageTopkAttentionScratch(base: usize): usize {
  cache.enterCache();
  pageSize = cache.blockSize / op.keyMin.numParts;
  pageBytes = ((<usize>(op.blockTable.maxBlocks * op.keyMin.numParts)) << 2) + 16;
  list = layGathered(panels.layPanels(base));
  logical = list + ((<usize>cache.maxSlots) << 2);
  scans = logical + ((<usize>cache.maxSlots) << 2);
  pages = scans + pageBytes;
  sizes = pages + pageBytes;
  best = sizes + pageBytes;
  order = best + pageBytes;
  work = order + pageBytes;
  bounds = work + pageBytes + BINS_BYTES;
  rests = (bounds + <usize>cache.groupSize * pageBytes + 15) & ~7;
  tops = rests + <usize>cache.groupSize * (pageBytes << 1);
  queries = (tops + ((<usize>cache.groupSize) << 2) + 15) & ~15;
  return queries + <usize>cache.groupSize * cache.keyStride;
}

function attendGroup(firstHead: i32): void {
  openList(list, 0, hasMass ? logical : 0);
  if (tile.token !== scannedToken) scanPages();
  const numAttended = openPages();
  boundPages(cache.queryAt(tile.token * cache.numHeads + firstHead));
  budget = op.attributes.budget < 0 ? numOpen : min<i32>(op.attributes.budget, numOpen);
  numVisited = 0;
  if (op.attributes.epsilon === 0) {
    chooseBest();
    tile.attendHeads(attendList);
  } else {
    selectTop(best, numOpen, order, numOpen);
    sumRests();
    tile.attendHeads(attendByBounds);
    // several tiles of heads are recomputed with all pages that the last one needed
    if (cache.groupSize > panels.LANES) tile.attendHeads(attendList);
  }
  const at = tile.token * cache.numKvHeads + tile.kvHead;
  setInt(op.pages.address, at, numAttended + numVisited);
  setInt(op.pairs.address, at, numListed);
}

/** Lists the pages with the largest bounds. */
function chooseBest(): void {
  numVisited = selectLargest(best, numOpen, budget, work, order);
  for (let i = 0; i < numVisited; i++) {
    listPage(pageAt(i));
    setFloat(sizes, intAt(order, i), 0);
  }
  sumUnselected();
}

/** Attends to all slots in the list. */
function attendList(): void {
  attendSlots(list, numListed, 0);
  writeTile();
}

/** Attends to pages until the certificates of all heads are small enough. */
function attendByBounds(): void {
  attendSlots(list, numListed, 0);
  while (numVisited < budget && !isGoodEnough()) {
    const before = numListed;
    listPage(pageAt(numVisited));
    attendSlots(list + ((<usize>before) << 2), numListed - before, 0);
    numVisited += 1;
  }
  if (cache.groupSize <= panels.LANES) writeTile();
}

/** Writes outputs, certificates and error bounds, and the masses of the keys. */
function writeTile(): void {
  const norm = largestNorm();
  for (let lane = 0; lane < panels.numLanes; lane++) {
    const row = <i32>panels.rowOfLane(lane);
    const y = op.y.address + <usize>row * cache.valueStride;
    panels.writeLane(lane, y);
    let squares: f64 = 0;
    for (let i = 0; i < cache.valueDim; i++) squares += <f64>floatAt(y, i) * <f64>floatAt(y, i);
    const certificate = missing(lane);
    setFloat(op.certificate.address, row, <f32>certificate);
    setFloat(op.errorBound.address, row, <f32>(certificate * (<f64>norm + Math.sqrt(squares))));
  }
  if (hasMass) attendSlots(list, numListed, logical);
}

function slotsOfPage(page: i32): i32 {
  return min<i32>(pageSize, tile.context - page * pageSize);
}

/** Counts the visible keys of each page, and finds the pages with sinks or local positions. */
function scanPages(): void {
  const sinks = max<i32>(op.attributes.sinks, 0);
  const local = op.attributes.local;
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
function openPages(): i32 {
  let numAttended = 0;
  numOpen = 0;
  for (let page = 0; page * pageSize < tile.context; page++) {
    const scan = intAt(scans, page);
    if (scan === 0) continue;
    if (scan < 0 || intAt(op.boxCounts.address, <i32>summaryOf(page)) !== pageSize) {
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

function summaryOf(page: i32): usize {
  const numParts = op.keyMin.numParts;
  const part = cache.cacheBlock(tile.sequence, page * pageSize) * numParts + (page % numParts);
  return <usize>(part * cache.numKvHeads + tile.kvHead);
}

/** Appends the visible slots of a page to the list. */
function listPage(page: i32): void {
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
      const v = cache.capLogits(boxBound4(op.keyMin.address + at, op.keyMax.address + at, x, y, z, w, bytes));
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

/** The page at an index of the order. */
function pageAt(index: i32): i32 {
  return intAt(pages, intAt(order, index));
}

function restsOf(g: i32): usize {
  return rests + <usize>g * (pageBytes << 1);
}

/** Suffix sums of `n exp(bound - top)` over the pages in order. */
function sumRests(): void {
  for (let g = 0; g < cache.groupSize; g++) {
    const own = bounds + <usize>g * pageBytes;
    let top: f32 = -Infinity;
    for (let i = 0; i < numOpen; i++) top = max<f32>(top, floatAt(own, i));
    setFloat(tops, g, top);
    let sum: f64 = 0;
    store<f64>(restsOf(g) + ((<usize>numOpen) << 3), 0);
    for (let i = numOpen - 1; i >= 0; i--) {
      const open = intAt(order, i);
      sum += <f64>floatAt(sizes, open) * Math.exp(<f64>floatAt(own, open) - <f64>top);
      store<f64>(restsOf(g) + ((<usize>i) << 3), sum);
    }
  }
}

/** The same sum over the pages that were not selected, relative to the largest of their bounds. */
function sumUnselected(): void {
  // padding pages of the last vector have no keys
  v128.store(sizes + ((<usize>numOpen) << 2), f32x4.splat(0));
  const bytes = (<usize>numOpen) << 2;
  for (let g = 0; g < cache.groupSize; g++) {
    const own = bounds + <usize>g * pageBytes;
    let tops4 = f32x4.splat(-Infinity);
    for (let i: usize = 0; i < bytes; i += 16) tops4 = f32x4.max(tops4, unselectedBounds(own, i));
    const top = maxLane<f32>(tops4);
    let sum = f32x4.splat(0);
    for (let i: usize = 0; top !== -Infinity && i < bytes; i += 16) {
      const weight = weight4(f32x4.sub(unselectedBounds(own, i), f32x4.splat(top)));
      sum = f32x4.add(sum, f32x4.mul(v128.load(sizes + i), weight));
    }
    setFloat(tops, g, top);
    store<f64>(restsOf(g) + ((<usize>numVisited) << 3), <f64>sum4(sum));
  }
}

/** Bounds of four pages, -Infinity for pages that were selected. */
function unselectedBounds(own: usize, at: usize): v128 {
  const isLeft = f32x4.ne(v128.load(sizes + at), f32x4.splat(0));
  return v128.bitselect(v128.load(own + at), f32x4.splat(-Infinity), isLeft);
}

/** The certificate of a lane: a bound of the softmax mass that is missing after the first `numVisited` pages of the order. */
function missing(lane: i32): f64 {
  if (numVisited === numOpen) return 0;
  const g = panels.headOfLane(lane) % cache.groupSize;
  const top = <f64>floatAt(tops, g) - <f64>panels.maximumOfLane(lane);
  const mass = load<f64>(restsOf(g) + ((<usize>numVisited) << 3)) * Math.exp(top);
  return mass === Infinity ? 1 : mass / (mass + <f64>panels.sumOfLane(lane));
}

function isGoodEnough(): bool {
  for (let lane = 0; lane < panels.numLanes; lane++) {
    if (!(missing(lane) <= <f64>op.attributes.epsilon)) return false;
  }
  return true;
}

/** The largest norm of a value in the pages that are not attended to. */
function largestNorm(): f32 {
  const isBest = op.attributes.epsilon === 0;
  let norm: f32 = 0;
  for (let i = isBest ? 0 : numVisited; i < numOpen; i++) {
    if (isBest && floatAt(sizes, i) === 0) continue;
    const page = isBest ? intAt(pages, i) : pageAt(i);
    norm = max<f32>(norm, floatAt(op.valueNorms.address, <i32>summaryOf(page)));
  }
  return norm;
}
