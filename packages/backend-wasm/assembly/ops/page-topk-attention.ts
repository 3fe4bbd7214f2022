/**
 * Attention to pages in the order of upper bounds, until a certificate or a budget ends it. Units: (token, KV head).
 * Tensors: as in `cache-view.ts`, 8 boxCounts, 9 keyMin, 10 keyMax, 11 valueNorms, 12 y, 13 certificate, 14 errorBound,
 * 15 pages, 16 pairs, 17 mass. Attributes: 4 budget, 5 epsilon, 6 sinks, 7 local.
 */
import {
  cacheBlock,
  contextOfSequence,
  enterCache,
  modelReach,
  positionAt,
  positionOfToken,
  sequenceOfToken,
  slotIndex,
} from '../cache-view';
import { addMassOfSlots, attendSlots, layGathered } from '../gathered-rows';
import { clearMass, enterMass } from '../key-mass';
import { LANES, layPanels, maximumOfLane, numLanes, openPanels, sumOfLane, writeLane } from '../query-panels';
import { addressOf, attributeF, attributeI, dim, localScratch } from '../record';
import { sum4 } from '../simd';
import { takeUnits } from '../threads';

let headDim: i32 = 0;
let valueDim: i32 = 0;
let numParts: i32 = 1;
let pageSize: i32 = 1;
let groupSize: i32 = 1;
let maxPages: usize = 0;
let numOpen: i32 = 0;

// scratch
let list: usize = 0; // i32 slots of the cache to attend to
let numListed: i32 = 0;
let seen: usize = 0; // i32 [pages] seen keys of each page
let order: usize = 0; // i32 [open pages], best first
let best: usize = 0; // f32 [pages] largest bound over the heads
let bounds: usize = 0; // f32 [group, pages]
let rests: usize = 0; // f64 [group, open pages + 1]: what the pages from the i-th on may hold, relative to the head's bound
let tops: usize = 0; // f32 [group] largest bound
let query: usize = 0; // f32 [H], scaled
let logical: usize = 0; // i32 logical slot of each slot of the list; 0 without masses

export function pageTopKAttention(): void {
  enterCache();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  numParts = dim(9, 1);
  pageSize = dim(3, 2) / numParts;
  const numKvHeads = dim(3, 1);
  groupSize = dim(0, 1) / numKvHeads;
  maxPages = <usize>(dim(6, 1) * numParts);
  list = layGathered(layPanels(localScratch()));
  seen = list + (<usize>(dim(6, 1) * dim(3, 2)) << 2);
  order = seen + (maxPages << 2);
  best = order + (maxPages << 2);
  bounds = best + (maxPages << 2);
  rests = (bounds + <usize>groupSize * (maxPages << 2) + 15) & ~7;
  tops = rests + <usize>groupSize * ((maxPages + 1) << 3);
  query = (tops + (<usize>groupSize << 2) + 15) & ~15;
  logical = enterMass(17) ? query + (<usize>headDim << 2) : 0;
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
  for (let page = 0; page < numPages; page++) {
    if (scanPage(token, sequence, page, kvHead, context)) numAttended += 1;
  }
  boundPages(token, sequence, kvHead);
  sortPages();
  sumRests();
  const budget = attributeI(4) < 0 ? numOpen : min<i32>(attributeI(4), numOpen);
  const epsilon = attributeF(5);
  let numVisited = 0;
  if (epsilon == 0) {
    for (; numVisited < budget; numVisited++) listPage(token, sequence, load<i32>(order + (<usize>numVisited << 2)));
  }
  // heads beyond one tile are computed again for each tile: groups are small; where their certificates say how many pages
  // are attended to, all tiles are computed again with the pages that the last of them needed
  const numPasses = epsilon != 0 && groupSize > LANES ? 2 : 1;
  for (let pass = 0; pass < numPasses; pass++) {
    for (let first = 0; first < groupSize; first += LANES) {
      openPanels(token, token + 1, firstHead + first, min<i32>(firstHead + groupSize, firstHead + first + LANES));
      attendSlots(list, numListed, kvHead);
      if (epsilon != 0 && pass == 0) {
        while (numVisited < budget && !isGoodEnough(first, numVisited, epsilon)) {
          const before = numListed;
          listPage(token, sequence, load<i32>(order + (<usize>numVisited << 2)));
          attendSlots(list + (<usize>before << 2), numListed - before, kvHead);
          numVisited += 1;
        }
      }
      if (pass < numPasses - 1) continue;
      writeTile(token, sequence, kvHead, first, numVisited);
      if (logical != 0) addMassOfSlots(list, logical, numListed, kvHead);
    }
  }
  const at = <usize>(token * dim(3, 1) + kvHead) << 2;
  store<i32>(addressOf(15) + at, numAttended + numVisited);
  store<i32>(addressOf(16) + at, numListed);
}

/** Output, certificates and bounds of the heads from `first` on. */
function writeTile(token: i32, sequence: i32, kvHead: i32, first: i32, numVisited: i32): void {
  const norm = largestNorm(sequence, kvHead, numVisited);
  for (let lane = 0; lane < numLanes; lane++) {
    const row = <usize>(token * dim(0, 1) + kvHead * groupSize + first + lane);
    const y = addressOf(12) + row * (<usize>valueDim << 2);
    writeLane(lane, y);
    let squares: f64 = 0;
    for (let i: usize = 0; i < <usize>valueDim << 2; i += 4) squares += <f64>load<f32>(y + i) * <f64>load<f32>(y + i);
    const certificate = missing(first + lane, lane, numVisited);
    store<f32>(addressOf(13) + (row << 2), <f32>certificate);
    store<f32>(addressOf(14) + (row << 2), <f32>(certificate * (<f64>norm + Math.sqrt(squares))));
  }
}

/** Counts the seen keys of a page; true when it is attended to in any case. */
function scanPage(token: i32, sequence: i32, page: i32, kvHead: i32, context: i32): bool {
  const position = positionOfToken(token);
  const reach = modelReach();
  const sinks = attributeI(6);
  const local = attributeI(7);
  const first = page * pageSize;
  const count = min<i32>(pageSize, context - first);
  const index = slotIndex(sequence, first);
  let numSeen = 0;
  let isNear = load<i32>(addressOf(8) + (summaryOf(sequence, page, kvHead) << 2)) != pageSize;
  for (let i = 0; i < count; i++) {
    const key = positionAt(index + i);
    const distance = position - key;
    if (key < 0 || distance < 0 || distance > reach) continue;
    numSeen += 1;
    if (key < sinks || distance < local) isNear = true;
  }
  store<i32>(seen + (<usize>page << 2), numSeen);
  if (numSeen == 0) return false;
  if (isNear) {
    listPage(token, sequence, page);
    return true;
  }
  store<i32>(order + (<usize>numOpen << 2), page);
  numOpen += 1;
  return false;
}

function summaryOf(sequence: i32, page: i32, kvHead: i32): usize {
  const part = cacheBlock(sequence, page * pageSize) * numParts + page % numParts;
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
    store<i32>(list + (<usize>numListed << 2), index + i);
    if (logical != 0) store<i32>(logical + (<usize>numListed << 2), first + i);
    numListed += 1;
  }
}

/** Upper bounds of the open pages for every head, and the largest over the heads. */
function boundPages(token: i32, sequence: i32, kvHead: i32): void {
  const scale = attributeF(0);
  const cap = attributeF(3);
  const bytes = <usize>headDim << 2;
  for (let g = 0; g < groupSize; g++) {
    const q = addressOf(0) + <usize>(token * dim(0, 1) + kvHead * groupSize + g) * bytes;
    for (let i: usize = 0; i < bytes; i += 4) store<f32>(query + i, load<f32>(q + i) * scale);
    let top: f32 = -Infinity;
    for (let open = 0; open < numOpen; open++) {
      const page = load<i32>(order + (<usize>open << 2));
      const at = summaryOf(sequence, page, kvHead) * bytes;
      const low = addressOf(9) + at;
      const high = addressOf(10) + at;
      let sums = f32x4.splat(0);
      let i: usize = 0;
      for (; i + 16 <= bytes; i += 16) {
        const x = v128.load(query + i);
        sums = f32x4.add(sums, f32x4.max(f32x4.mul(x, v128.load(low + i)), f32x4.mul(x, v128.load(high + i))));
      }
      let sum = sum4(sums);
      for (; i < bytes; i += 4) {
        const x = load<f32>(query + i);
        sum += max<f32>(x * load<f32>(low + i), x * load<f32>(high + i));
      }
      if (cap != 0) sum = <f32>(<f64>cap * Math.tanh(<f64>sum / <f64>cap));
      const slot = <usize>page << 2;
      store<f32>(bounds + <usize>g * (maxPages << 2) + slot, sum);
      store<f32>(best + slot, g == 0 ? sum : max<f32>(load<f32>(best + slot), sum));
      top = max<f32>(top, sum);
    }
    store<f32>(tops + (<usize>g << 2), top);
  }
}

/** Whether page a comes before page b. */
function isBefore(a: i32, b: i32): bool {
  const x = load<f32>(best + (<usize>a << 2));
  const y = load<f32>(best + (<usize>b << 2));
  return x > y || (x == y && a < b);
}

/** Heap sort of `order`, best first. */
function sortPages(): void {
  for (let root = numOpen / 2 - 1; root >= 0; root--) sink(root, numOpen);
  for (let end = numOpen - 1; end > 0; end--) {
    const last = order + (<usize>end << 2);
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
    store<i32>(order + (<usize>root << 2), b);
    store<i32>(order + (<usize>child << 2), a);
    root = child;
  }
}

function orderAt(index: i32): i32 {
  return load<i32>(order + (<usize>index << 2));
}

/** Sums of `n exp(bound - top)` from every place of the order to its end. */
function sumRests(): void {
  for (let g = 0; g < groupSize; g++) {
    const top = <f64>load<f32>(tops + (<usize>g << 2));
    const to = rests + <usize>g * ((maxPages + 1) << 3);
    let sum: f64 = 0;
    store<f64>(to + (<usize>numOpen << 3), 0);
    for (let i = numOpen - 1; i >= 0; i--) {
      const at = <usize>orderAt(i) << 2;
      const bound = <f64>load<f32>(bounds + <usize>g * (maxPages << 2) + at);
      sum += <f64>load<i32>(seen + at) * Math.exp(bound - top);
      store<f64>(to + (<usize>i << 3), sum);
    }
  }
}

/** The certificate of a head when the first `numVisited` pages of the order are attended to. */
function missing(g: i32, lane: i32, numVisited: i32): f64 {
  const rest = load<f64>(rests + <usize>g * ((maxPages + 1) << 3) + (<usize>numVisited << 3));
  if (numVisited == numOpen) return 0;
  const top = <f64>load<f32>(tops + (<usize>g << 2)) - <f64>maximumOfLane(lane);
  const mass = rest * Math.exp(top);
  return mass == Infinity ? 1 : mass / (mass + <f64>sumOfLane(lane));
}

function isGoodEnough(first: i32, numVisited: i32, epsilon: f32): bool {
  for (let lane = 0; lane < numLanes; lane++) {
    if (!(missing(first + lane, lane, numVisited) <= <f64>epsilon)) return false;
  }
  return true;
}

function largestNorm(sequence: i32, kvHead: i32, numVisited: i32): f32 {
  let norm: f32 = 0;
  for (let i = numVisited; i < numOpen; i++) {
    norm = max<f32>(norm, load<f32>(addressOf(11) + (summaryOf(sequence, orderAt(i), kvHead) << 2)));
  }
  return norm;
}
