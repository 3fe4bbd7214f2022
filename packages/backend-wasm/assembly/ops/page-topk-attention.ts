/**
 * Attention to pages in the order of upper bounds, until a certificate or a budget ends it. Units: (token, KV head).
 * Tensors: as in `kv-cache-view.ts`, 8 boxCounts, 9 keyMin, 10 keyMax, 11 valueNorms, 12 y, 13 certificate, 14 errorBound,
 * 15 pages, 16 pairs, 17 mass. Attributes: 4 budget, 5 epsilon, 6 sinks, 7 local.
 */
import {
  cacheBlock,
  contextOfSequence,
  enterCache,
  modelReach,
  positionAt,
  positionOfToken,
  positionsAt,
  sequenceOfToken,
  slotIndex,
} from '../attention/kv-cache-view';
import { addMassOfSlots, attendSlots, layGathered } from '../attention/gather-kv';
import { clearMass, enterMass } from '../attention/key-mass';
import { areFar, boundFour } from '../attention/page-bounds';
import { LANES, layPanels, maximumOfLane, numLanes, openPanels, sumOfLane, writeLane } from '../attention/query-panels';
import { addressOf, attributeF, attributeI, dim, localScratch } from '../runtime/record';
import { selectLargest } from '../attention/select-top-k';
import { max4, sum4, tanh4, weight4 } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

let headDim: i32 = 0;
let valueDim: i32 = 0;
let numParts: i32 = 1;
let pageSize: i32 = 1;
let groupSize: i32 = 1;
/** Bytes of one number per page. */
let pageBytes: usize = 0;
/** Pages that may be chosen. */
let numOpen: i32 = 0;
/** The token whose positions were scanned: the same for all its KV heads. */
let scannedToken: i32 = -1;

// scratch
let list: usize = 0; // i32 slots of the cache to attend to
let numListed: i32 = 0;
let scans: usize = 0; // i32 [pages] seen keys of each page, complemented where one of them has to be attended to
let pages: usize = 0; // i32 [open pages]
let sizes: usize = 0; // f32 [open pages] seen keys, 0 once a page was chosen by the budget
let best: usize = 0; // f32 [open pages] largest bound over the heads
let bounds: usize = 0; // f32 [group, open pages]
let order: usize = 0; // i32 [open pages] those that were chosen by the budget, or all of them, best first
let work: usize = 0;
let rests: usize = 0; // f64 [group, open pages + 1]: what the pages from the i-th on may hold, relative to the head's bound
let tops: usize = 0; // f32 [group] the bound that it is relative to
let queries: usize = 0; // f32 [group, H], scaled
let logical: usize = 0; // i32 logical slot of each slot of the list; 0 without masses

export function pageTopkAttention(): void {
  enterCache();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  numParts = dim(9, 1);
  pageSize = dim(3, 2) / numParts;
  const numKvHeads = dim(3, 1);
  groupSize = dim(0, 1) / numKvHeads;
  pageBytes = ((<usize>(dim(6, 1) * numParts)) << 2) + 16;
  list = layGathered(layPanels(localScratch()));
  scans = list + ((<usize>(dim(6, 1) * dim(3, 2))) << 2);
  pages = scans + pageBytes;
  sizes = pages + pageBytes;
  best = sizes + pageBytes;
  order = best + pageBytes;
  work = order + pageBytes;
  bounds = work + pageBytes;
  rests = (bounds + <usize>groupSize * pageBytes + 15) & ~7;
  tops = rests + <usize>groupSize * (pageBytes << 1);
  queries = (tops + ((<usize>groupSize) << 2) + 15) & ~15;
  logical = enterMass(17) ? queries + <usize>groupSize * ((<usize>headDim) << 2) : 0;
  scannedToken = -1;
  const numUnits = dim(0, 0) * numKvHeads;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    attendGroup(unit / numKvHeads, unit % numKvHeads);
  }
}

function attendGroup(token: i32, kvHead: i32): void {
  const sequence = sequenceOfToken(token);
  const context = contextOfSequence(sequence);
  const numPages = (context + pageSize - 1) / pageSize;
  const firstHead = kvHead * groupSize;
  clearMass(token, token + 1, kvHead);
  numListed = 0;
  numOpen = 0;
  let numAttended = 0;
  if (token !== scannedToken) scanPages(token, sequence, numPages, context);
  for (let page = 0; page < numPages; page++) {
    const scan = load<i32>(scans + ((<usize>page) << 2));
    if (scan === 0) continue;
    if (scan < 0 || load<i32>(addressOf(8) + (summaryOf(sequence, page, kvHead) << 2)) !== pageSize) {
      listPage(token, sequence, page);
      numAttended += 1;
      continue;
    }
    store<i32>(pages + ((<usize>numOpen) << 2), page);
    store<f32>(sizes + ((<usize>numOpen) << 2), <f32>scan);
    numOpen += 1;
  }
  boundPages(token, sequence, kvHead);
  const budget = attributeI(4) < 0 ? numOpen : min<i32>(attributeI(4), numOpen);
  const epsilon = attributeF(5);
  let numVisited = 0;
  if (epsilon === 0) {
    numVisited = selectLargest(best, numOpen, budget, work, order);
    for (let i = 0; i < numVisited; i++) {
      listPage(token, sequence, pageAt(i));
      store<f32>(sizes + ((<usize>orderAt(i)) << 2), 0);
    }
    sumUnchosen(numVisited);
  } else {
    sortPages();
    sumRests();
  }
  // heads beyond one tile are computed again for each tile: groups are small; where their certificates say how many pages
  // are attended to, all tiles are computed again with the pages that the last of them needed
  const numPasses = epsilon !== 0 && groupSize > LANES ? 2 : 1;
  for (let pass = 0; pass < numPasses; pass++) {
    for (let first = 0; first < groupSize; first += LANES) {
      openPanels(token, token + 1, firstHead + first, min<i32>(firstHead + groupSize, firstHead + first + LANES));
      attendSlots(list, numListed, kvHead);
      if (epsilon !== 0 && pass === 0) {
        while (numVisited < budget && !isGoodEnough(first, numVisited, epsilon)) {
          const before = numListed;
          listPage(token, sequence, pageAt(numVisited));
          attendSlots(list + ((<usize>before) << 2), numListed - before, kvHead);
          numVisited += 1;
        }
      }
      if (pass < numPasses - 1) continue;
      writeTile(token, sequence, kvHead, first, numVisited);
      if (logical !== 0) addMassOfSlots(list, logical, numListed, kvHead);
    }
  }
  const at = (<usize>(token * dim(3, 1) + kvHead)) << 2;
  store<i32>(addressOf(15) + at, numAttended + numVisited);
  store<i32>(addressOf(16) + at, numListed);
}

/** Output, certificates and bounds of the heads from `first` on. */
function writeTile(token: i32, sequence: i32, kvHead: i32, first: i32, numVisited: i32): void {
  const norm = largestNorm(sequence, kvHead, numVisited);
  for (let lane = 0; lane < numLanes; lane++) {
    const row = <usize>(token * dim(0, 1) + kvHead * groupSize + first + lane);
    const y = addressOf(12) + row * ((<usize>valueDim) << 2);
    writeLane(lane, y);
    let squares: f64 = 0;
    for (let i: usize = 0; i < (<usize>valueDim) << 2; i += 4) squares += <f64>load<f32>(y + i) * <f64>load<f32>(y + i);
    const certificate = missing(first + lane, lane, numVisited);
    store<f32>(addressOf(13) + (row << 2), <f32>certificate);
    store<f32>(addressOf(14) + (row << 2), <f32>(certificate * (<f64>norm + Math.sqrt(squares))));
  }
}

/** Counts the seen keys of each page and notes whether one of them has to be attended to. */
function scanPages(token: i32, sequence: i32, numPages: i32, context: i32): void {
  const position = positionOfToken(token);
  const reach = modelReach();
  const sinks = attributeI(6);
  const local = attributeI(7);
  scannedToken = token;
  for (let page = 0; page < numPages; page++) {
    const first = page * pageSize;
    const count = min<i32>(pageSize, context - first);
    const index = slotIndex(sequence, first);
    const to = scans + ((<usize>page) << 2);
    if (areFar(positionsAt(index), count, position, sinks, local, reach)) {
      store<i32>(to, count);
      continue;
    }
    let numSeen = 0;
    let isNear = false;
    for (let i = 0; i < count; i++) {
      const key = positionAt(index + i);
      const distance = position - key;
      if (key < 0 || distance < 0 || distance > reach) continue;
      numSeen += 1;
      if (key < sinks || distance < local) isNear = true;
    }
    store<i32>(to, isNear ? ~numSeen : numSeen);
  }
}

function summaryOf(sequence: i32, page: i32, kvHead: i32): usize {
  const part = cacheBlock(sequence, page * pageSize) * numParts + (page % numParts);
  return <usize>(part * dim(3, 1) + kvHead);
}

/** Appends the seen slots of a page to the list. */
function listPage(token: i32, sequence: i32, page: i32): void {
  const position = positionOfToken(token);
  const reach = modelReach();
  const first = page * pageSize;
  const count = min<i32>(pageSize, contextOfSequence(sequence) - first);
  const index = slotIndex(sequence, first);
  for (let i = 0; i < count; i++) {
    const key = positionAt(index + i);
    const distance = position - key;
    if (key < 0 || distance < 0 || distance > reach) continue;
    store<i32>(list + ((<usize>numListed) << 2), index + i);
    if (logical !== 0) store<i32>(logical + ((<usize>numListed) << 2), first + i);
    numListed += 1;
  }
}

/** Upper bounds of the open pages for every head, and the largest over the heads. A box is read once. */
function boundPages(token: i32, sequence: i32, kvHead: i32): void {
  const scale = attributeF(0);
  const cap = attributeF(3);
  const bytes = (<usize>headDim) << 2;
  const q = addressOf(0) + <usize>(token * dim(0, 1) + kvHead * groupSize) * bytes;
  for (let i: usize = 0; i < <usize>groupSize * bytes; i += 4) store<f32>(queries + i, load<f32>(q + i) * scale);
  const lastQuery = queries + <usize>(groupSize - 1) * bytes;
  for (let open = 0; open < numOpen; open++) {
    const column = (<usize>open) << 2;
    const at = summaryOf(sequence, load<i32>(pages + column), kvHead) * bytes;
    let top = f32x4.splat(-Infinity);
    for (let g = 0; g < groupSize; g += 4) {
      // heads beyond the last repeat it
      const x = queries + <usize>g * bytes;
      const y = min<usize>(x + bytes, lastQuery);
      const z = min<usize>(y + bytes, lastQuery);
      let v = boundFour(addressOf(9) + at, addressOf(10) + at, x, y, z, min<usize>(z + bytes, lastQuery), bytes);
      if (cap !== 0) v = f32x4.mul(f32x4.splat(cap), tanh4(f32x4.div(v, f32x4.splat(cap))));
      top = f32x4.max(top, v);
      const to = bounds + <usize>g * pageBytes + column;
      store<f32>(to, f32x4.extract_lane(v, 0));
      if (g + 1 < groupSize) store<f32>(to + pageBytes, f32x4.extract_lane(v, 1));
      if (g + 2 < groupSize) store<f32>(to + 2 * pageBytes, f32x4.extract_lane(v, 2));
      if (g + 3 < groupSize) store<f32>(to + 3 * pageBytes, f32x4.extract_lane(v, 3));
    }
    store<f32>(best + column, max4(top));
  }
}

/** Whether page a comes before page b. */
function isBefore(a: i32, b: i32): bool {
  const x = load<f32>(best + ((<usize>a) << 2));
  const y = load<f32>(best + ((<usize>b) << 2));
  return x > y || (x === y && a < b);
}

/** Heap sort of `order`, best first. */
function sortPages(): void {
  for (let i = 0; i < numOpen; i++) store<i32>(order + ((<usize>i) << 2), i);
  for (let root = numOpen / 2 - 1; root >= 0; root--) sink(root, numOpen);
  for (let end = numOpen - 1; end > 0; end--) {
    const last = order + ((<usize>end) << 2);
    const worst = load<i32>(order);
    store<i32>(order, load<i32>(last));
    store<i32>(last, worst);
    sink(0, end);
  }
}

/** Keeps the worst page at the root. */
function sink(begin: i32, end: i32): void {
  let root = begin;
  for (;;) {
    let child = 2 * root + 1;
    if (child >= end) return;
    if (child + 1 < end && isBefore(orderAt(child), orderAt(child + 1))) child += 1;
    const a = orderAt(root);
    const b = orderAt(child);
    if (!isBefore(a, b)) return;
    store<i32>(order + ((<usize>root) << 2), b);
    store<i32>(order + ((<usize>child) << 2), a);
    root = child;
  }
}

function orderAt(index: i32): i32 {
  return load<i32>(order + ((<usize>index) << 2));
}

/** The page in this place of the order. */
function pageAt(index: i32): i32 {
  return load<i32>(pages + ((<usize>orderAt(index)) << 2));
}

/** Sums of `n exp(bound - top)` from every place of the order to its end. */
function sumRests(): void {
  for (let g = 0; g < groupSize; g++) {
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

/** The sum for the pages that were not chosen, in the place of the first of them; relative to the largest of their bounds. */
function sumUnchosen(numVisited: i32): void {
  // whole vectors: what lies behind the last page counts for nothing
  v128.store(sizes + ((<usize>numOpen) << 2), f32x4.splat(0));
  const bytes = (<usize>numOpen) << 2;
  const none = f32x4.splat(-Infinity);
  for (let g = 0; g < groupSize; g++) {
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
  const top = <f64>load<f32>(tops + ((<usize>g) << 2)) - <f64>maximumOfLane(lane);
  const mass = rest * Math.exp(top);
  return mass === Infinity ? 1 : mass / (mass + <f64>sumOfLane(lane));
}

function isGoodEnough(first: i32, numVisited: i32, epsilon: f32): bool {
  for (let lane = 0; lane < numLanes; lane++) {
    if (!(missing(first + lane, lane, numVisited) <= <f64>epsilon)) return false;
  }
  return true;
}

function largestNorm(sequence: i32, kvHead: i32, numVisited: i32): f32 {
  let norm: f32 = 0;
  if (attributeF(5) === 0) {
    for (let i = 0; i < numOpen; i++) {
      const at = (<usize>i) << 2;
      if (load<f32>(sizes + at) !== 0) norm = max<f32>(norm, normOf(sequence, load<i32>(pages + at), kvHead));
    }
  } else {
    for (let i = numVisited; i < numOpen; i++) norm = max<f32>(norm, normOf(sequence, pageAt(i), kvHead));
  }
  return norm;
}

function normOf(sequence: i32, page: i32, kvHead: i32): f32 {
  return load<f32>(addressOf(11) + (summaryOf(sequence, page, kvHead) << 2));
}
