/**
 * Attends to pages in the order of their upper bounds until a budget or a certificate is met. Work items: (token, KV head).
 */
import { addMassOfSlots, attendSlots, layGathered } from '../attention/gather-kv';
import { clearMass, enterMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import { boxBound4 } from '../attention/microkernels.generated';
import * as panels from '../attention/query-panels';
import { selectLargest } from '../attention/select-top-k';
import { listBlock, numListed, openList } from '../attention/slot-list';
import * as slots from '../attention/slot-positions';
import * as op from '../operands/page-topk-attention.generated';
import { localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { max4, sum4, weight4 } from '../simd/vector';
import { selectTop } from './top-k';
import { ALIGNMENT_BYTES } from '../attention/scratch-sizes';

let numParts: i32 = 1;
let pageSize: i32 = 1;
/** Bytes of one number per page. */
let pageBytes: usize = 0;

// the current work item
let sequence: i32 = 0;
let position: i32 = 0;
let context: i32 = 0;
let kvHead: i32 = 0;
/** Number of open pages, which the selection is made from. */
let numOpen: i32 = 0;
/** The token whose positions were scanned: the same for all its KV heads. */
let scannedToken: i32 = -1;

// scratch
let list: usize = 0; // i32 slots of the cache to attend to
let scans: usize = 0; // i32 [pages] number of visible keys, complemented when the page is always attended to
let pages: usize = 0; // i32 [open pages]
let sizes: usize = 0; // f32 [open pages] number of visible keys, 0 once the budget selected the page
let best: usize = 0; // f32 [open pages] largest bound over the heads
let bounds: usize = 0; // f32 [group, open pages]
let order: usize = 0; // i32 [open pages] the pages selected by the budget, or all of them, best first
let work: usize = 0;
let rests: usize = 0; // f64 [group, open pages + 1] upper bound of the mass of the pages from the i-th on, relative to `tops`
let tops: usize = 0; // f32 [group] the largest bound
let queries: usize = 0; // f32 [group, H], scaled
let logical: usize = 0; // i32 logical slot of each slot of the list; 0 without masses

export function pageTopkAttention(): void {
  cache.enterCache();
  layScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  scannedToken = -1;
  const numItems = cache.numTokens * cache.numKvHeads;
  for (let item = takeUnits(1); item < numItems; item = takeUnits(1))
    attendGroup(item / cache.numKvHeads, item % cache.numKvHeads);
}

/** Lays out scratch and returns its end. */
function layScratch(base: usize): usize {
  numParts = op.keyMin.numParts;
  pageSize = cache.blockSize / numParts;
  pageBytes = ((<usize>(op.blockTable.maxBlocks * numParts)) << 2) + 16;
  list = layGathered(panels.layPanels(base));
  scans = list + ((<usize>cache.maxSlots) << 2);
  pages = scans + pageBytes;
  sizes = pages + pageBytes;
  best = sizes + pageBytes;
  order = best + pageBytes;
  work = order + pageBytes;
  bounds = work + pageBytes;
  rests = (bounds + <usize>cache.groupSize * pageBytes + 15) & ~7;
  tops = rests + <usize>cache.groupSize * (pageBytes << 1);
  queries = (tops + ((<usize>cache.groupSize) << 2) + 15) & ~15;
  const end = queries + <usize>cache.groupSize * cache.keyStride;
  logical = op.mass.isPresent ? end : 0;
  return op.mass.isPresent ? end + ((<usize>cache.maxSlots) << 2) : end;
}

function attendGroup(token: i32, head: i32): void {
  kvHead = head;
  sequence = cache.sequenceOfToken(token);
  position = cache.positionOfToken(token);
  context = cache.contextOfSequence(sequence);
  clearMass(token, token + 1, kvHead);
  openList(list, 0, logical);
  if (token !== scannedToken) scanPages(token);
  const numAttended = openPages();
  boundPages(token);
  const budget = op.attributes.budget < 0 ? numOpen : min<i32>(op.attributes.budget, numOpen);
  const numVisited = op.attributes.epsilon === 0 ? attendBest(token, budget) : attendByBounds(token, budget);
  const at = (<usize>(token * cache.numKvHeads + kvHead)) << 2;
  store<i32>(op.pages.address + at, numAttended + numVisited);
  store<i32>(op.pairs.address + at, numListed);
}

/** Attends to the pages with the largest bounds; returns their number. */
function attendBest(token: i32, budget: i32): i32 {
  const numVisited = selectLargest(best, numOpen, budget, work, order);
  for (let i = 0; i < numVisited; i++) {
    listPage(pageAt(i));
    store<f32>(sizes + ((<usize>orderAt(i)) << 2), 0);
  }
  sumUnchosen(numVisited);
  for (let first = 0; first < cache.groupSize; first += panels.LANES) {
    openHeads(token, first);
    attendSlots(list, numListed, kvHead);
    writeTile(token, first, numVisited);
  }
  return numVisited;
}

/** Attends to pages until the certificates of all heads are small enough; returns their number. */
function attendByBounds(token: i32, budget: i32): i32 {
  selectTop(best, numOpen, order, numOpen);
  sumRests();
  let numVisited = 0;
  for (let first = 0; first < cache.groupSize; first += panels.LANES) {
    openHeads(token, first);
    attendSlots(list, numListed, kvHead);
    while (numVisited < budget && !isGoodEnough(first, numVisited)) {
      const before = numListed;
      listPage(pageAt(numVisited));
      attendSlots(list + ((<usize>before) << 2), numListed - before, kvHead);
      numVisited += 1;
    }
    if (cache.groupSize <= panels.LANES) writeTile(token, first, numVisited);
  }
  // several tiles of heads are computed again with the pages that the last one needed
  for (let first = 0; first < cache.groupSize && cache.groupSize > panels.LANES; first += panels.LANES) {
    openHeads(token, first);
    attendSlots(list, numListed, kvHead);
    writeTile(token, first, numVisited);
  }
  return numVisited;
}

function openHeads(token: i32, first: i32): void {
  const h0 = kvHead * cache.groupSize + first;
  panels.openPanels(token, token + 1, h0, min<i32>((kvHead + 1) * cache.groupSize, h0 + panels.LANES));
}

/** Writes outputs, certificates and error bounds of the heads from `first` on, and the masses of their keys. */
function writeTile(token: i32, first: i32, numVisited: i32): void {
  const norm = largestNorm(numVisited);
  for (let lane = 0; lane < panels.numLanes; lane++) {
    const row = <usize>(token * cache.numHeads + kvHead * cache.groupSize + first + lane);
    const y = op.y.address + row * cache.valueStride;
    panels.writeLane(lane, y);
    let squares: f64 = 0;
    for (let i: usize = 0; i < cache.valueStride; i += 4) squares += <f64>load<f32>(y + i) * <f64>load<f32>(y + i);
    const certificate = missing(first + lane, lane, numVisited);
    store<f32>(op.certificate.address + (row << 2), <f32>certificate);
    store<f32>(op.errorBound.address + (row << 2), <f32>(certificate * (<f64>norm + Math.sqrt(squares))));
  }
  if (logical !== 0) addMassOfSlots(list, logical, numListed, kvHead);
}

function slotsOfPage(page: i32): i32 {
  return min<i32>(pageSize, context - page * pageSize);
}

/** Counts the visible keys of each page, and finds the pages with sinks or local positions. */
function scanPages(token: i32): void {
  const sinks = max<i32>(op.attributes.sinks, 0);
  const local = op.attributes.local;
  const firstSink = position - sinks + 1; // the distance of the last sink
  scannedToken = token;
  for (let page = 0; page * pageSize < context; page++) {
    const count = slotsOfPage(page);
    const at = cache.positionsAt(cache.slotIndex(sequence, page * pageSize));
    slots.scanPositions(at, count);
    let scan = count;
    const isInside =
      position - slots.highestPosition >= max<i32>(local, 0) && position - slots.lowestPosition <= cache.maxDistance;
    if (slots.hasEmptySlot || slots.lowestPosition < sinks || !isInside) {
      scan = slots.countVisible(position, at, count, 0, cache.maxDistance);
      const numNear =
        slots.countVisible(position, at, count, 0, min<i32>(local - 1, cache.maxDistance)) +
        slots.countVisible(position, at, count, max<i32>(firstSink, 0), cache.maxDistance);
      if (numNear > 0) scan = ~scan;
    }
    store<i32>(scans + ((<usize>page) << 2), scan);
  }
}

/** Lists the pages that are always attended to and returns their number; other pages with visible keys are open. */
function openPages(): i32 {
  let numAttended = 0;
  numOpen = 0;
  for (let page = 0; page * pageSize < context; page++) {
    const scan = load<i32>(scans + ((<usize>page) << 2));
    if (scan === 0) continue;
    if (scan < 0 || load<i32>(op.boxCounts.address + (summaryOf(page) << 2)) !== pageSize) {
      listPage(page);
      numAttended += 1;
      continue;
    }
    store<i32>(pages + ((<usize>numOpen) << 2), page);
    store<f32>(sizes + ((<usize>numOpen) << 2), <f32>scan);
    numOpen += 1;
  }
  return numAttended;
}

function summaryOf(page: i32): usize {
  const part = cache.cacheBlock(sequence, page * pageSize) * numParts + (page % numParts);
  return <usize>(part * cache.numKvHeads + kvHead);
}

/** Appends the visible slots of a page to the list. */
function listPage(page: i32): void {
  listBlock(sequence, page * pageSize, slotsOfPage(page), position);
}

/** Computes the upper bounds of the open pages for each head, and their maximum over the heads. Each box is read once. */
function boundPages(token: i32): void {
  const bytes = cache.keyStride;
  const q = cache.queryAt(token * cache.numHeads + kvHead * cache.groupSize);
  for (let i: usize = 0; i < <usize>cache.groupSize * bytes; i += 4)
    store<f32>(queries + i, load<f32>(q + i) * cache.scale);
  const lastQuery = queries + <usize>(cache.groupSize - 1) * bytes;
  for (let open = 0; open < numOpen; open++) {
    const column = (<usize>open) << 2;
    const at = summaryOf(load<i32>(pages + column)) * bytes;
    let top = f32x4.splat(-Infinity);
    for (let g = 0; g < cache.groupSize; g += 4) {
      // heads beyond the last one repeat it
      const x = queries + <usize>g * bytes;
      const y = min<usize>(x + bytes, lastQuery);
      const z = min<usize>(y + bytes, lastQuery);
      const w = min<usize>(z + bytes, lastQuery);
      const v = cache.capLogits(boxBound4(op.keyMin.address + at, op.keyMax.address + at, x, y, z, w, bytes));
      top = f32x4.max(top, v);
      const to = bounds + <usize>g * pageBytes + column;
      store<f32>(to, f32x4.extract_lane(v, 0));
      if (g + 1 < cache.groupSize) store<f32>(to + pageBytes, f32x4.extract_lane(v, 1));
      if (g + 2 < cache.groupSize) store<f32>(to + 2 * pageBytes, f32x4.extract_lane(v, 2));
      if (g + 3 < cache.groupSize) store<f32>(to + 3 * pageBytes, f32x4.extract_lane(v, 3));
    }
    store<f32>(best + column, max4(top));
  }
}

function orderAt(index: i32): i32 {
  return load<i32>(order + ((<usize>index) << 2));
}

/** The page at an index of the order. */
function pageAt(index: i32): i32 {
  return load<i32>(pages + ((<usize>orderAt(index)) << 2));
}

/** Sums `n exp(bound - top)` from each index of the order to its end. */
function sumRests(): void {
  for (let g = 0; g < cache.groupSize; g++) {
    const own = bounds + <usize>g * pageBytes;
    let top: f32 = -Infinity;
    for (let i: usize = 0; i < (<usize>numOpen) << 2; i += 4) top = max<f32>(top, load<f32>(own + i));
    store<f32>(tops + ((<usize>g) << 2), top);
    const to = rests + <usize>g * (pageBytes << 1);
    let sum: f64 = 0;
    store<f64>(to + ((<usize>numOpen) << 3), 0);
    for (let i = numOpen - 1; i >= 0; i--) {
      const at = (<usize>orderAt(i)) << 2;
      sum += <f64>load<f32>(sizes + at) * Math.exp(<f64>load<f32>(own + at) - <f64>top);
      store<f64>(to + ((<usize>i) << 3), sum);
    }
  }
}

/** The same sum over the pages that were not selected, relative to the largest of their bounds. */
function sumUnchosen(numVisited: i32): void {
  // whole vectors: pages beyond the last one have no keys
  v128.store(sizes + ((<usize>numOpen) << 2), f32x4.splat(0));
  const bytes = (<usize>numOpen) << 2;
  const none = f32x4.splat(-Infinity);
  for (let g = 0; g < cache.groupSize; g++) {
    const own = bounds + <usize>g * pageBytes;
    let tops4 = none;
    for (let i: usize = 0; i < bytes; i += 16) {
      const isLeft = f32x4.ne(v128.load(sizes + i), f32x4.splat(0));
      tops4 = f32x4.max(tops4, v128.bitselect(v128.load(own + i), none, isLeft));
    }
    const top = max4(tops4);
    let sum = f32x4.splat(0);
    for (let i: usize = 0; top !== -Infinity && i < bytes; i += 16) {
      const size = v128.load(sizes + i);
      const isLeft = f32x4.ne(size, f32x4.splat(0));
      const weight = weight4(f32x4.sub(v128.bitselect(v128.load(own + i), none, isLeft), f32x4.splat(top)));
      sum = f32x4.add(sum, f32x4.mul(size, weight));
    }
    store<f32>(tops + ((<usize>g) << 2), top);
    store<f64>(rests + <usize>g * (pageBytes << 1) + ((<usize>numVisited) << 3), <f64>sum4(sum));
  }
}

/** The certificate of a head when the first `numVisited` pages of the order are attended to. */
function missing(g: i32, lane: i32, numVisited: i32): f64 {
  if (numVisited === numOpen) return 0;
  const rest = load<f64>(rests + <usize>g * (pageBytes << 1) + ((<usize>numVisited) << 3));
  const top = <f64>load<f32>(tops + ((<usize>g) << 2)) - <f64>panels.maximumOfLane(lane);
  const mass = rest * Math.exp(top);
  return mass === Infinity ? 1 : mass / (mass + <f64>panels.sumOfLane(lane));
}

function isGoodEnough(first: i32, numVisited: i32): bool {
  for (let lane = 0; lane < panels.numLanes; lane++) {
    if (!(missing(first + lane, lane, numVisited) <= <f64>op.attributes.epsilon)) return false;
  }
  return true;
}

/** The largest norm of values of pages that are not attended to. */
function largestNorm(numVisited: i32): f32 {
  const isBest = op.attributes.epsilon === 0;
  let norm: f32 = 0;
  for (let i = isBest ? 0 : numVisited; i < numOpen; i++) {
    const at = (<usize>i) << 2;
    if (isBest && load<f32>(sizes + at) === 0) continue;
    const page = isBest ? load<i32>(pages + at) : pageAt(i);
    norm = max<f32>(norm, load<f32>(op.valueNorms.address + (summaryOf(page) << 2)));
  }
  return norm;
}

/** Bytes of scratch per thread. */
export function pageTopkAttentionLocalBytes(): u64 {
  cache.enterCache();
  return layScratch(0) + ALIGNMENT_BYTES;
}
