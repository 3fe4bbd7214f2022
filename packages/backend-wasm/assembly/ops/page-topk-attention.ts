/** Attends to pages in descending order of their upper bounds, until a budget or a certificate is met. */
import { enterMass, hasMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as open from '../attention/page-bounds';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import { BINS_BYTES, selectLargest } from '../attention/select-top-k';
import { attendSlots, layGathered, numListed, openList } from '../attention/slot-list';
import * as op from '../operands/page-topk-attention.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { maxLane, sum4, weight4 } from '../simd/vector';
import { selectTop } from './top-k';

/** Number of open pages attended to, and its maximum. */
let numVisited: i32 = 0;
let budget: i32 = 0;

// scratch
let list: usize = 0; // i32 slots of the cache to attend to
let logical: usize = 0; // i32 logical slot of each slot of the list, for masses
let order: usize = 0; // i32 [open pages] the pages selected by the budget, or all pages, best first
let work: usize = 0;
let rests: usize = 0; // f64 [group, open pages + 1] upper bound of the mass of the i-th and later pages, relative to `tops`
let tops: usize = 0; // f32 [group] the largest bound

export function pageTopkAttention(): void {
  pageTopkAttentionScratch(localScratch());
  if (op.sinkLogits.isPresent) cache.enterSinks(op.sinkLogits.address);
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  tile.attendGroups(cache.groupSize, attendGroup);
}

/** Reads the record, lays out scratch and returns its end. */
export function pageTopkAttentionScratch(base: usize): usize {
  cache.enterCache();
  list = layGathered(panels.layPanels(base));
  logical = list + ((<usize>cache.maxSlots) << 2);
  order = open.layPages(logical + ((<usize>cache.maxSlots) << 2));
  const pageBytes = open.pageBytes;
  work = order + pageBytes;
  rests = (work + pageBytes + BINS_BYTES + 15) & ~7;
  tops = rests + <usize>cache.groupSize * (pageBytes << 1);
  return tops + ((<usize>cache.groupSize) << 2) + 16;
}

function attendGroup(firstHead: i32): void {
  openList(list, 0, hasMass ? logical : 0);
  const numAttended = open.openPages(firstHead);
  const numOpen = open.numOpen;
  budget = op.attributes.budget < 0 ? numOpen : min<i32>(op.attributes.budget, numOpen);
  numVisited = 0;
  if (op.attributes.epsilon === 0) {
    chooseBest();
    tile.attendHeads(attendList);
  } else {
    selectTop(open.best, numOpen, order, numOpen);
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
  numVisited = selectLargest(open.best, open.numOpen, budget, work, order);
  for (let i = 0; i < numVisited; i++) {
    open.listPage(pageAt(i));
    setFloat(open.sizes, intAt(order, i), 0);
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
    open.listPage(pageAt(numVisited));
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

/** The page at an index of the order. */
function pageAt(index: i32): i32 {
  return intAt(open.pages, intAt(order, index));
}

function restsOf(g: i32): usize {
  return rests + <usize>g * (open.pageBytes << 1);
}

/** Suffix sums of `n exp(bound - top)` over the pages in order. */
function sumRests(): void {
  const numOpen = open.numOpen;
  for (let g = 0; g < cache.groupSize; g++) {
    const own = open.bounds + <usize>g * open.pageBytes;
    let top: f32 = -Infinity;
    for (let i = 0; i < numOpen; i++) top = max<f32>(top, floatAt(own, i));
    setFloat(tops, g, top);
    let sum: f64 = 0;
    store<f64>(restsOf(g) + ((<usize>numOpen) << 3), 0);
    for (let i = numOpen - 1; i >= 0; i--) {
      const page = intAt(order, i);
      sum += <f64>floatAt(open.sizes, page) * Math.exp(<f64>floatAt(own, page) - <f64>top);
      store<f64>(restsOf(g) + ((<usize>i) << 3), sum);
    }
  }
}

/** The same sum over the pages that were not selected, relative to the largest of their bounds. */
function sumUnselected(): void {
  // padding pages of the last vector have no keys
  v128.store(open.sizes + ((<usize>open.numOpen) << 2), f32x4.splat(0));
  const bytes = (<usize>open.numOpen) << 2;
  for (let g = 0; g < cache.groupSize; g++) {
    const own = open.bounds + <usize>g * open.pageBytes;
    let tops4 = f32x4.splat(-Infinity);
    for (let i: usize = 0; i < bytes; i += 16) tops4 = f32x4.max(tops4, unselectedBounds(own, i));
    const top = maxLane<f32>(tops4);
    let sum = f32x4.splat(0);
    for (let i: usize = 0; top !== -Infinity && i < bytes; i += 16) {
      const weight = weight4(f32x4.sub(unselectedBounds(own, i), f32x4.splat(top)));
      sum = f32x4.add(sum, f32x4.mul(v128.load(open.sizes + i), weight));
    }
    setFloat(tops, g, top);
    store<f64>(restsOf(g) + ((<usize>numVisited) << 3), <f64>sum4(sum));
  }
}

/** Bounds of four pages, -Infinity for pages that were selected. */
function unselectedBounds(own: usize, at: usize): v128 {
  const isLeft = f32x4.ne(v128.load(open.sizes + at), f32x4.splat(0));
  return v128.bitselect(v128.load(own + at), f32x4.splat(-Infinity), isLeft);
}

/** The certificate of a lane: a bound of the softmax mass that is missing after the first `numVisited` pages of the order. */
function missing(lane: i32): f64 {
  if (numVisited === open.numOpen) return 0;
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
  for (let i = isBest ? 0 : numVisited; i < open.numOpen; i++) {
    if (isBest && floatAt(open.sizes, i) === 0) continue;
    const page = isBest ? intAt(open.pages, i) : pageAt(i);
    norm = max<f32>(norm, floatAt(op.valueNorms.address, <i32>open.summaryOf(page)));
  }
  return norm;
}
