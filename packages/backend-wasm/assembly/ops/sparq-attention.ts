/**
 * SparQ attention: approximate logits from few components, exact attention over the best keys, the mean value for the rest.
 * Units: (token, KV head), or (token, head) when heads choose for themselves and no masses are asked for.
 * Tensors: as in `kv-cache-view.ts`, 8 columns, 9 valueMeans, 10 meanCounts, 11 y, 12 alpha, 13 pairs, 14 mass.
 * Attributes: 4 rank, 5 topK, 6 local, 7 meanValue, 8 temperature, 9 grouped.
 */
import {
  contextOfSequence,
  countVisible,
  enterCache,
  listVisible,
  positionOfToken,
  sequenceOfToken,
  slotIndex,
  slotsInBlock,
  valueOf,
} from '../attention/kv-cache-view';
import { bytesOf, decode } from '../quant/dequantize';
import { addMassOfSlots, attendSlots, gatherKeys, layGathered } from '../attention/gather-kv';
import { clearMass, enterMass } from '../attention/key-mass';
import {
  LANES,
  PANEL_ROWS,
  capRows,
  firstLaneOf,
  lastLaneOf,
  layPanels,
  loadQueries,
  logitsOf,
  numLanes,
  numPanels,
  openPanels,
  scoreRows,
  writeLane,
} from '../attention/query-panels';
import { addressOf, attributeF, attributeI, dim, dtypeOf, isPresent, localScratch } from '../runtime/record';
import { selectLargest } from '../attention/select-top-k';
import { fma, max4, sum4, tanh4, weight4 } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

let headDim: i32 = 0;
let valueDim: i32 = 0;
let rank: i32 = 0;
let numVisible: i32 = 0;
let numChosen: i32 = 0;
/** Bytes of one number per slot. */
let slotBytes: usize = 0;

// scratch
let visible: usize = 0; // i32 index in the cache of each visible slot
let chosen: usize = 0; // i32 index among the visible ones
let slots: usize = 0; // i32 positions of the visible slots, then index in the cache of each chosen one
let totals: usize = 0; // f32 sum of weights over the heads
let work: usize = 0;
let weights: usize = 0; // f32 [group, slots]
let queries: usize = 0; // f32 [group, H]: chosen components, side by side or with zeros between
let magnitudes: usize = 0; // f32 [H]
let components: usize = 0; // i32 [rank]
let columns: usize = 0; // f32 [rank, S]
let mean: usize = 0; // f64 [D]
let row: usize = 0; // f32 [D]
let logical: usize = 0; // i32 logical slot of each visible slot, then of each chosen one; 0 without masses

export function sparqAttention(): void {
  enterCache();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  const numHeads = dim(0, 1);
  const numKvHeads = dim(3, 1);
  const headsPerKv = numHeads / numKvHeads;
  const groupSize = attributeI(9) !== 0 ? headsPerKv : 1;
  rank = min<i32>(attributeI(4), headDim);
  slotBytes = ((<usize>(dim(6, 1) * dim(3, 2))) << 2) + 16;
  visible = layGathered(layPanels(localScratch()));
  chosen = visible + slotBytes;
  slots = chosen + slotBytes;
  totals = slots + slotBytes;
  work = totals + slotBytes;
  weights = work + slotBytes;
  queries = weights + <usize>headsPerKv * slotBytes;
  magnitudes = queries + <usize>headsPerKv * ((<usize>headDim) << 2);
  components = magnitudes + ((<usize>headDim) << 3); // followed by the scratch of choosing them
  columns = components + ((<usize>headDim) << 2);
  mean = (columns + <usize>rank * ((<usize>dim(3, 2)) << 2) + 31) & ~15;
  row = mean + ((<usize>valueDim) << 3);
  const hasMass = enterMass(14);
  logical = hasMass ? (row + ((<usize>valueDim) << 2) + 15) & ~15 : 0;
  const headsOfUnit = hasMass ? headsPerKv : groupSize;
  const numUnits = (dim(0, 0) * numHeads) / headsOfUnit;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const token = (unit * headsOfUnit) / numHeads;
    const firstHead = (unit * headsOfUnit) % numHeads;
    const kvHead = firstHead / headsPerKv;
    clearMass(token, token + 1, kvHead);
    for (let head = firstHead; head < firstHead + headsOfUnit; head += groupSize) {
      attendGroup(token, head, groupSize, kvHead);
    }
  }
}

function attendGroup(token: i32, firstHead: i32, groupSize: i32, kvHead: i32): void {
  const position = positionOfToken(token);
  const sequence = sequenceOfToken(token);
  const topK = attributeI(5);
  const numHeads = dim(0, 1);
  numVisible = listVisible(position, sequence, visible, slots, logical);
  const isDense = numVisible <= topK;
  if (!isDense) {
    approximate(token, firstHead, groupSize, kvHead);
    const local = attributeI(6);
    const oldest = position - local;
    for (let i = 0; i < numVisible; i++) {
      const at = (<usize>i) << 2;
      if (load<i32>(slots + at) > oldest) store<f32>(totals + at, Infinity); // positions, until it holds the chosen slots
    }
    numChosen = selectLargest(totals, numVisible, topK, work, chosen);
    for (let i = 0; i < numChosen; i++) {
      const from = (<usize>load<i32>(chosen + ((<usize>i) << 2))) << 2; // not before i
      store<i32>(slots + ((<usize>i) << 2), load<i32>(visible + from));
      if (logical !== 0) store<i32>(logical + ((<usize>i) << 2), load<i32>(logical + from));
    }
  } else {
    numChosen = numVisible;
  }
  const hasMean = attributeI(7) !== 0 && !isDense;
  if (hasMean) sumValues(position, sequence, kvHead);
  for (let first = firstHead; first < firstHead + groupSize; first += LANES) {
    openPanels(token, token + 1, first, min<i32>(firstHead + groupSize, first + LANES));
    const list = isDense ? visible : slots;
    attendSlots(list, numChosen, kvHead);
    if (logical !== 0) addMassOfSlots(list, logical, numChosen, kvHead);
    for (let lane = 0; lane < numLanes; lane++) {
      const index = <usize>(token * numHeads + first + lane);
      const y = addressOf(11) + index * ((<usize>valueDim) << 2);
      writeLane(lane, y);
      let share: f32 = 1;
      if (!isDense) {
        share = 0;
        const own = weights + <usize>(first - firstHead + lane) * slotBytes;
        for (let i = 0; i < numChosen; i++) {
          share += load<f32>(own + ((<usize>load<i32>(chosen + ((<usize>i) << 2))) << 2));
        }
        share = min<f32>(1, share);
      }
      store<f32>(addressOf(12) + (index << 2), share);
      if (!hasMean) continue;
      for (let i: usize = 0; i < <usize>valueDim; i++) {
        const rest = (<f32>1 - share) * <f32>(load<f64>(mean + (i << 3)) / <f64>numVisible);
        store<f32>(y + (i << 2), share * load<f32>(y + (i << 2)) + rest);
      }
    }
  }
  if (firstHead === 0) store<i32>(addressOf(13) + ((<usize>token) << 2), numChosen);
}

/** Approximate weights of every head, and their totals. */
function approximate(token: i32, firstHead: i32, groupSize: i32, kvHead: i32): void {
  const q = addressOf(0) + <usize>(token * dim(0, 1) + firstHead) * ((<usize>headDim) << 2);
  chooseComponents(q, groupSize);
  if (isPresent(8)) scoreColumns(groupSize, kvHead);
  else scoreKeys(token, firstHead, groupSize, kvHead);
  memory.fill(totals, 0, (<usize>numVisible) << 2);
  for (let g = 0; g < groupSize; g++) normalise(weights + <usize>g * slotBytes);
}

/** The components of the largest magnitude; `queries` has only these, divided by the temperature. */
function chooseComponents(q: usize, groupSize: i32): void {
  memory.fill(magnitudes, 0, (<usize>headDim) << 2);
  for (let g = 0; g < groupSize; g++) {
    const from = q + <usize>g * ((<usize>headDim) << 2);
    for (let i: usize = 0; i < (<usize>headDim) << 2; i += 4) {
      store<f32>(magnitudes + i, load<f32>(magnitudes + i) + abs<f32>(load<f32>(from + i)));
    }
  }
  selectLargest(magnitudes, headDim, rank, magnitudes + ((<usize>headDim) << 2), components);
  memory.fill(queries, 0, <usize>groupSize * ((<usize>headDim) << 2));
  for (let g = 0; g < groupSize; g++) {
    const from = q + <usize>g * ((<usize>headDim) << 2);
    const to = queries + <usize>g * ((<usize>headDim) << 2);
    let all: f32 = 0;
    let kept: f32 = 0;
    for (let i: usize = 0; i < (<usize>headDim) << 2; i += 4) all += abs<f32>(load<f32>(from + i));
    for (let c = 0; c < rank; c++)
      kept += abs<f32>(load<f32>(from + ((<usize>load<i32>(components + ((<usize>c) << 2))) << 2)));
    const factor: f32 = attributeI(8) !== 0 && kept !== 0 ? <f32>Math.sqrt(<f64>all / <f64>kept) : 1;
    for (let c = 0; c < rank; c++) {
      const at = (<usize>load<i32>(components + ((<usize>c) << 2))) << 2;
      // side by side for columns, in their places for keys
      store<f32>(to + (isPresent(8) ? (<usize>c) << 2 : at), load<f32>(from + at) * factor);
    }
  }
}

/** Logits of whole keys with the other components of the queries zero. */
function scoreKeys(token: i32, firstHead: i32, groupSize: i32, kvHead: i32): void {
  for (let first = 0; first < groupSize; first += LANES) {
    const head = firstHead + first;
    openPanels(token, token + 1, head, min<i32>(firstHead + groupSize, head + LANES));
    // as if `queries` were the rows of these heads in a tensor like q
    loadQueries(queries - <usize>(token * dim(0, 1) + firstHead) * ((<usize>headDim) << 2));
    for (let begin = 0; begin < numVisible; begin += PANEL_ROWS) {
      const rows = min<i32>(PANEL_ROWS, numVisible - begin);
      const keys = gatherKeys(visible + ((<usize>begin) << 2), rows, kvHead);
      for (let panel = 0; panel < numPanels; panel++) {
        scoreRows(panel, keys, rows, 0);
        capRows(rows);
        for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
          const to = weights + <usize>(first + lane) * slotBytes + ((<usize>begin) << 2);
          const column = (<usize>(lane - firstLaneOf(panel))) << 2;
          for (let i = 0; i < rows; i++) store<f32>(to + ((<usize>i) << 2), load<f32>(logitsOf(i) + column));
        }
      }
    }
  }
}

/** Logits from the transposed keys: only the chosen columns are read. */
function scoreColumns(groupSize: i32, kvHead: i32): void {
  const blockSize = dim(3, 2);
  const numKvHeads = dim(3, 1);
  const dtype = dtypeOf(8);
  const scale = attributeF(0);
  const cap = attributeF(3);
  for (let begin = 0; begin < numVisible;) {
    // a run of slots side by side in one block
    const index = load<i32>(visible + ((<usize>begin) << 2));
    const block = index / blockSize;
    const offset = index - block * blockSize;
    let end = begin + 1;
    const limit = min<i32>(numVisible, begin + blockSize - offset);
    while (end < limit && load<i32>(visible + ((<usize>end) << 2)) === index + end - begin) end++;
    const count = end - begin;
    const stride = (<usize>blockSize) << 2;
    for (let c = 0; c < rank; c++) {
      const component = load<i32>(components + ((<usize>c) << 2));
      const at = <usize>((block * numKvHeads + kvHead) * headDim + component) * <usize>blockSize + <usize>offset;
      decode(dtype, addressOf(8) + at * bytesOf(dtype, 1), columns + <usize>c * stride, count);
    }
    for (let g = 0; g < groupSize; g += 2) {
      // two heads at a time; the last of an odd number is computed twice
      const other = min<i32>(g + 1, groupSize - 1);
      const to = weights + <usize>g * slotBytes + ((<usize>begin) << 2);
      const otherTo = weights + <usize>other * slotBytes + ((<usize>begin) << 2);
      for (let i = 0; i < count; i += 16) {
        let q = queries + <usize>g * ((<usize>headDim) << 2);
        let p = queries + <usize>other * ((<usize>headDim) << 2);
        let column = columns + ((<usize>i) << 2);
        let s0 = f32x4.splat(0);
        let s1 = s0;
        let s2 = s0;
        let s3 = s0;
        let t0 = s0;
        let t1 = s0;
        let t2 = s0;
        let t3 = s0;
        for (let c = 0; c < rank; c++, q += 4, p += 4, column += stride) {
          const x = v128.load32_splat(q);
          const y = v128.load32_splat(p);
          let k = v128.load(column);
          s0 = fma(x, k, s0);
          t0 = fma(y, k, t0);
          k = v128.load(column, 16);
          s1 = fma(x, k, s1);
          t1 = fma(y, k, t1);
          k = v128.load(column, 32);
          s2 = fma(x, k, s2);
          t2 = fma(y, k, t2);
          k = v128.load(column, 48);
          s3 = fma(x, k, s3);
          t3 = fma(y, k, t3);
        }
        const at = (<usize>i) << 2;
        put(to + at, s0, count - i, scale, cap);
        put(to + at + 16, s1, count - i - 4, scale, cap);
        put(to + at + 32, s2, count - i - 8, scale, cap);
        put(to + at + 48, s3, count - i - 12, scale, cap);
        put(otherTo + at, t0, count - i, scale, cap);
        put(otherTo + at + 16, t1, count - i - 4, scale, cap);
        put(otherTo + at + 32, t2, count - i - 8, scale, cap);
        put(otherTo + at + 48, t3, count - i - 12, scale, cap);
      }
    }
    begin = end;
  }
}

function put(to: usize, products: v128, count: i32, scale: f32, cap: f32): void {
  if (count <= 0) return;
  let v = f32x4.mul(products, f32x4.splat(scale));
  if (cap !== 0) v = f32x4.mul(f32x4.splat(cap), tanh4(f32x4.div(v, f32x4.splat(cap))));
  if (count >= 4) {
    v128.store(to, v);
    return;
  }
  store<f32>(to, f32x4.extract_lane(v, 0));
  if (count > 1) store<f32>(to, f32x4.extract_lane(v, 1), 4);
  if (count > 2) store<f32>(to, f32x4.extract_lane(v, 2), 8);
}

/** The softmax of a head's logits; adds it to the totals. */
function normalise(own: usize): void {
  const bytes = (<usize>numVisible) << 2;
  // whole vectors: what lies behind the last one counts as not seen
  for (let i = bytes; (i & 15) !== 0; i += 4) store<f32>(own + i, -Infinity);
  let top = f32x4.splat(-Infinity);
  for (let i: usize = 0; i < bytes; i += 16) top = f32x4.pmax(top, v128.load(own + i));
  const most = max4(top);
  const shift = f32x4.splat(most === -Infinity ? 0 : most);
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

/** The sum of the values of all keys that the query sees: from the means of blocks where these are seen as a whole. */
function sumValues(position: i32, sequence: i32, kvHead: i32): void {
  const context = contextOfSequence(sequence);
  const numKvHeads = dim(3, 1);
  const hasMeans = isPresent(9);
  const numParts = hasMeans ? dim(9, 1) : 1;
  const partSize = dim(3, 2) / numParts;
  memory.fill(mean, 0, (<usize>valueDim) << 3);
  for (let slot = 0; slot < context;) {
    const count = min<i32>(slotsInBlock(slot, context - slot), partSize - (slot % partSize));
    const index = slotIndex(sequence, slot);
    slot += count;
    const numSeen = countVisible(index, count, position);
    if (hasMeans && numSeen === partSize) {
      const part = (index / dim(3, 2)) * numParts + (index % dim(3, 2)) / partSize;
      const summary = <usize>(part * numKvHeads + kvHead);
      if (load<i32>(addressOf(10) + (summary << 2)) === partSize) {
        addValue(addressOf(9) + summary * ((<usize>valueDim) << 2), <f64>partSize);
        continue;
      }
    }
    for (let i = 0; i < count; i++) {
      if (numSeen === count || countVisible(index + i, 1, position) === 1) addValue(valueOf(index + i, kvHead, row), 1);
    }
  }
}

function addValue(value: usize, count: f64): void {
  for (let i: usize = 0; i < <usize>valueDim; i++) {
    const at = mean + (i << 3);
    store<f64>(at, load<f64>(at) + count * <f64>load<f32>(value + (i << 2)));
  }
}
