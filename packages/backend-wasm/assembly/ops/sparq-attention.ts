/** SparQ: approximate logits from few components, exact attention over the best keys, the mean value for the rest. */
import { enterMass, hasMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import { scoreColumns2x16 } from '../attention/microkernels.generated';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import { BINS_BYTES, selectLargest } from '../attention/select-top-k';
import { attendSlots, gatherKeys, layGathered, listContext, numListed, openList } from '../attention/slot-list';
import { bytesOf, dequantize } from '../quant/dequantize';
import * as op from '../operands/sparq-attention.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { maxLane, sum4, weight4 } from '../simd/vector';

/** Number of heads that select their keys together. */
let groupSize: i32 = 1;
let rank: i32 = 0;
let numVisible: i32 = 0;
let numSelected: i32 = 0;
/** Whether all visible slots are attended to. */
let isDense: bool = false;
/** Bytes of a row with one number per slot, padded by a vector tile. */
let slotBytes: usize = 0;

// scratch
let visible: usize = 0; // i32 index in the cache of each visible slot
let selected: usize = 0; // i32 index among the visible ones
let slots: usize = 0; // i32 positions of the visible slots, then index in the cache of each selected one
let totals: usize = 0; // f32 sum of weights over the heads
let work: usize = 0;
let weights: usize = 0; // f32 [group, slots]
let queries: usize = 0; // f32 [group, H] selected components: packed, or in place among zeros
let magnitudes: usize = 0; // f32 [H]
let components: usize = 0; // i32 [rank]
let columns: usize = 0; // f32 [rank, S]
let mean: usize = 0; // f64 [D]
let row: usize = 0; // f32 [D]
let logical: usize = 0; // i32 logical slot of each visible slot, then of each selected one, for masses

export function sparqAttention(): void {
  sparqAttentionScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  tile.attendGroups(groupSize, attendGroup);
}

/** Reads the record, lays out scratch and returns its end. */
export function sparqAttentionScratch(base: usize): usize {
  cache.enterCache();
  groupSize = op.attributes.grouped ? cache.groupSize : 1;
  rank = min<i32>(op.attributes.rank, cache.headDim);
  slotBytes = ((<usize>cache.maxSlots) << 2) + 64;
  visible = layGathered(panels.layPanels(base));
  selected = visible + slotBytes;
  slots = selected + slotBytes;
  totals = slots + slotBytes;
  work = totals + slotBytes;
  weights = work + max<usize>(slotBytes, cache.keyStride) + BINS_BYTES;
  queries = weights + <usize>cache.groupSize * slotBytes;
  magnitudes = queries + <usize>cache.groupSize * cache.keyStride;
  components = magnitudes + cache.keyStride;
  columns = components + cache.keyStride;
  mean = (columns + <usize>rank * ((<usize>cache.blockSize) << 2) + 31) & ~15;
  row = mean + 2 * cache.valueStride;
  logical = (row + cache.valueStride + 15) & ~15;
  return logical + slotBytes;
}

function attendGroup(firstHead: i32): void {
  openList(visible, slots, hasMass ? logical : 0);
  listContext();
  numVisible = numListed;
  numSelected = numListed;
  isDense = numVisible <= op.attributes.topK;
  if (!isDense) chooseSlots();
  if (op.attributes.meanValue && !isDense) sumValues();
  tile.attendHeads(attendTile);
  if (firstHead === 0) setInt(op.pairs.address, tile.token, numSelected);
}

function attendTile(): void {
  const list = isDense ? visible : slots;
  attendSlots(list, numSelected, 0);
  if (hasMass) attendSlots(list, numSelected, logical);
  for (let lane = 0; lane < panels.numLanes; lane++) {
    const y = op.y.address + panels.rowOfLane(lane) * cache.valueStride;
    panels.writeLane(lane, y);
    const share: f32 = isDense ? 1 : shareOf(panels.headOfLane(lane) - tile.firstHead);
    setFloat(op.alpha.address, <i32>panels.rowOfLane(lane), share);
    if (op.attributes.meanValue && !isDense) blendMean(y, share);
  }
}

/** Selects the slots with the largest total weight; the last `local` positions are always selected. */
function chooseSlots(): void {
  const q = cache.queryAt(tile.token * cache.numHeads + tile.firstHead);
  chooseComponents(q);
  for (let g: usize = 0; g < <usize>groupSize; g++) reduceQuery(q + g * cache.keyStride, queries + g * cache.keyStride);
  if (op.columns.isPresent) scoreColumns();
  else tile.attendHeads(scoreKeys);
  memory.fill(totals, 0, (<usize>numVisible) << 2);
  for (let g = 0; g < groupSize; g++) normalize(weights + <usize>g * slotBytes);
  const oldest = tile.position - op.attributes.local;
  // `slots` still holds positions
  for (let i = 0; i < numVisible; i++) if (intAt(slots, i) > oldest) setFloat(totals, i, Infinity);
  numSelected = selectLargest(totals, numVisible, op.attributes.topK, work, selected);
  for (let i = 0; i < numSelected; i++) {
    const from = intAt(selected, i); // >= i, so nothing is overwritten before it is read
    setInt(slots, i, intAt(visible, from));
    if (hasMass) setInt(logical, i, intAt(logical, from));
  }
}

/** Approximate attention mass of the selected slots for a head of the group. */
function shareOf(head: i32): f32 {
  const own = weights + <usize>head * slotBytes;
  let share: f32 = 0;
  for (let i = 0; i < numSelected; i++) share += floatAt(own, intAt(selected, i));
  return min<f32>(1, share);
}

/** `y = share * y + (1 - share) * mean` */
function blendMean(y: usize, share: f32): void {
  for (let i = 0; i < cache.valueDim; i++) {
    const rest = (<f32>1 - share) * <f32>(load<f64>(mean + ((<usize>i) << 3)) / <f64>numVisible);
    setFloat(y, i, share * floatAt(y, i) + rest);
  }
}

/** Selects the components with the largest magnitude, summed over the queries of the group. */
function chooseComponents(q: usize): void {
  memory.fill(magnitudes, 0, cache.keyStride);
  for (const end = q + <usize>groupSize * cache.keyStride; q < end; q += cache.keyStride) {
    for (let i: usize = 0; i < cache.keyStride; i += 4) {
      store<f32>(magnitudes + i, load<f32>(magnitudes + i) + abs<f32>(load<f32>(q + i)));
    }
  }
  selectLargest(magnitudes, cache.headDim, rank, work, components);
}

/** Reduces a query to the selected components, divided by the temperature. */
function reduceQuery(from: usize, to: usize): void {
  memory.fill(to, 0, cache.keyStride);
  let all: f32 = 0;
  let selectedSum: f32 = 0;
  for (let i: usize = 0; i < cache.keyStride; i += 4) all += abs<f32>(load<f32>(from + i));
  for (let c = 0; c < rank; c++) selectedSum += abs<f32>(load<f32>(from + componentAt(c)));
  const factor: f32 = op.attributes.temperature && selectedSum !== 0 ? <f32>Math.sqrt(<f64>all / <f64>selectedSum) : 1;
  for (let c = 0; c < rank; c++) {
    const at = componentAt(c);
    // packed for columns, in place for whole keys
    store<f32>(to + (op.columns.isPresent ? (<usize>c) << 2 : at), load<f32>(from + at) * factor);
  }
}

/** Byte offset of a selected component in a row. */
function componentAt(c: i32): usize {
  return (<usize>intAt(components, c)) << 2;
}

/** Approximate logits from whole keys and reduced queries. */
function scoreKeys(): void {
  // `queries` has rows for the heads of the group only
  panels.loadQueries(queries - <usize>(tile.token * cache.numHeads + tile.firstHead) * cache.keyStride);
  for (let begin = 0; begin < numVisible; begin += panels.PANEL_ROWS) {
    const rows = min<i32>(panels.PANEL_ROWS, numVisible - begin);
    const keys = gatherKeys(visible + ((<usize>begin) << 2), rows);
    for (let panel = 0; panel < panels.numPanels; panel++) {
      panels.scoreRows(panel, keys, rows, 0);
      panels.capRows(rows);
      const first = panels.firstLaneOf(panel);
      for (let lane = first; lane < panels.lastLaneOf(panel); lane++) {
        const own = weights + <usize>(panels.headOfLane(lane) - tile.firstHead) * slotBytes;
        for (let i = 0; i < rows; i++) setFloat(own, begin + i, floatAt(panels.logitsOf(i), lane - first));
      }
    }
  }
}

/** Approximate logits from the transposed keys, of which only the selected columns are read. */
function scoreColumns(): void {
  const dtype = op.columns.dtype;
  const stride = (<usize>cache.blockSize) << 2;
  for (let begin = 0; begin < numVisible;) {
    // a run of consecutive slots in one block
    const index = intAt(visible, begin);
    const block = index / cache.blockSize;
    const offset = index - block * cache.blockSize;
    let end = begin + 1;
    const limit = min<i32>(numVisible, begin + cache.blockSize - offset);
    while (end < limit && intAt(visible, end) === index + end - begin) end++;
    const first = <usize>(block * cache.numKvHeads + tile.kvHead) * <usize>cache.headDim;
    for (let c: usize = 0; c < <usize>rank; c++) {
      const at = (first + (componentAt(<i32>c) >> 2)) * <usize>cache.blockSize + <usize>offset;
      dequantize(dtype, op.columns.address + at * bytesOf(dtype, 1), columns + c * stride, end - begin);
    }
    for (let g = 0; g < groupSize; g += 2) {
      // two heads at a time; the last head of an odd number is computed twice
      const other = min<i32>(g + 1, groupSize - 1);
      for (let i = begin; i < end; i += 16) scoreTile(g, other, columns + ((<usize>(i - begin)) << 2), i);
    }
    begin = end;
  }
  if (cache.softCap === 0) return;
  for (let g: usize = 0; g < <usize>groupSize; g++) {
    const own = weights + g * slotBytes;
    for (let i: usize = 0; i < (<usize>numVisible) << 2; i += 16)
      v128.store(own + i, cache.capLogits(v128.load(own + i)));
  }
}

/** Logits of 16 slots from `begin` on for two heads; logits beyond the run are overwritten or never read. */
function scoreTile(head: i32, other: i32, column: usize, begin: i32): void {
  const at = weights + ((<usize>begin) << 2);
  const y = at + <usize>head * slotBytes;
  const z = at + <usize>other * slotBytes;
  const q = queries + <usize>head * cache.keyStride;
  const p = queries + <usize>other * cache.keyStride;
  scoreColumns2x16(y, z, q, p, column, (<usize>cache.blockSize) << 2, rank, cache.scale);
}

/** Softmax of the logits of a head; adds the weights to the totals. */
function normalize(own: usize): void {
  const bytes = (<usize>numVisible) << 2;
  // padding slots of the last vector are hidden
  for (let i = bytes; (i & 15) !== 0; i += 4) store<f32>(own + i, -Infinity);
  let top = f32x4.splat(-Infinity);
  for (let i: usize = 0; i < bytes; i += 16) top = f32x4.pmax(top, v128.load(own + i));
  const maximum = maxLane<f32>(top);
  const shift = f32x4.splat(maximum === -Infinity ? 0 : maximum);
  let sum = f32x4.splat(0);
  for (let i: usize = 0; i < bytes; i += 16) {
    const weight = weight4(f32x4.sub(v128.load(own + i), shift));
    v128.store(own + i, weight);
    sum = f32x4.add(sum, weight);
  }
  const factor = f32x4.splat(1 / sum4(sum));
  for (let i: usize = 0; i < bytes; i += 16) {
    const weight = f32x4.mul(v128.load(own + i), factor);
    v128.store(own + i, weight);
    v128.store(totals + i, f32x4.add(v128.load(totals + i), weight));
  }
}

/** Sums the values of all visible keys; uses block means where all keys of a block (or part) are visible. */
function sumValues(): void {
  const hasMeans = op.valueMeans.isPresent;
  const numParts = hasMeans ? op.valueMeans.numParts : 1;
  const partSize = cache.blockSize / numParts;
  memory.fill(mean, 0, 2 * cache.valueStride);
  for (let slot = 0; slot < tile.context;) {
    const count = min<i32>(cache.slotsInBlock(slot, tile.context - slot), partSize - (slot % partSize));
    const index = cache.slotIndex(tile.sequence, slot);
    slot += count;
    const numSeen = countSeen(index, count);
    if (hasMeans && numSeen === partSize) {
      const part = (index / cache.blockSize) * numParts + (index % cache.blockSize) / partSize;
      const summary = <usize>(part * cache.numKvHeads + tile.kvHead);
      if (intAt(op.meanCounts.address, <i32>summary) === partSize) {
        addValue(op.valueMeans.address + summary * cache.valueStride, <f64>partSize);
        continue;
      }
    }
    for (let i = index; i < index + count; i++) {
      if (numSeen === count || countSeen(i, 1) === 1) addValue(cache.valuesOf(i, tile.kvHead, 1, row), 1);
    }
  }
}

/** Counts the slots, out of `count` slots of a block, that the query sees. */
function countSeen(index: i32, count: i32): i32 {
  return cache.countVisible(tile.position, cache.positionsAt(index), count, cache.minDistance, cache.maxDistance);
}

function addValue(value: usize, count: f64): void {
  for (let i = 0; i < cache.valueDim; i++) {
    const at = mean + ((<usize>i) << 3);
    store<f64>(at, load<f64>(at) + count * <f64>floatAt(value, i));
  }
}
