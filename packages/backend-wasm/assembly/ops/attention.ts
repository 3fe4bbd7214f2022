/**
 * Dense attention over a paged cache: online softmax over chunks of keys, eight queries side by side in registers. All
 * query heads of a KV head, and up to LANES queries, are computed together, so that each K and V row is read once.
 * Units: (token tile, KV head and head tile, part of the context). `attention` of few tokens splits long contexts into
 * parts as well and merges their states; the cut depends on shapes and context lengths alone.
 * Tensors: q, positions, sequences, keys, values, slotPositions, blockTable, contextLengths, then y or m, l, o.
 */
import { F16, F32, bytesOf, decode } from '../quant/dequantize';
import { fetchAll, fetchLater, fetchSome } from '../attention/prefetch';
import { decodeHalves } from '../quant/dequantize-f16';
import { dequantizeBeside, dequantizeRest } from '../gemm/dequantize-beside';
import { gemm4x8Dequantizing, gemmT4x8Dequantizing } from '../gemm/f16-gemm.generated';
import { gemm8x4, gemmT8x4 } from '../gemm/f32-gemm.generated';
import { addressOf, attributeF, attributeI, dim, dtypeOf, localScratch, sharedScratch } from '../runtime/record';
import { setSoftmax, softmaxStep } from '../attention/online-softmax';
import { splitHalves, splitIndex } from '../quant/dequantize-f16-swizzled';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { CHUNK, chunkCount, chunkPositions, chunkRow, nextChunk, openSlots } from '../attention/visible-slots';
import { highFactor, lowFactor, weigh8 } from '../attention/softmax-weights';
import { attendSlowly } from '../attention/attention-f64';
import { finishRow, mergeRows } from '../attention/softmax-states';

/** Most queries of one unit. */
export const LANES: i32 = 64;
/** Up to so many tokens a long context is split among threads. */
const MAX_SPLIT_TOKENS: i32 = 8;
const MAX_PARTS: i32 = 16;
/** Units of a long context: enough for many threads, and long ones, as each begins by waiting for the memory. */
const UNITS: i32 = 32;
/** Slots of a part, at least. */
const MIN_PART: i32 = 256;

const NO_POSITION: i32 = -0x40000000;
const FAR: i32 = 0x3fffffff;

// where a unit's states go
let stateM: usize = 0;
let stateL: usize = 0;
let stateO: usize = 0;
let isFinal: bool = false;
/** What the outputs of eight queries are to be multiplied with before the values of a chunk are added. */
let shrinkLow: v128 = f32x4.splat(1);
let shrinkHigh: v128 = f32x4.splat(1);

export function attention(): void {
  const numTokens = dim(0, 0);
  const numHeads = dim(0, 1);
  const valueDim = dim(4, 3);
  const numParts = numTokens <= MAX_SPLIT_TOKENS ? splitOf(numTokens) : 1;
  isFinal = numParts === 1;
  const numRows = <usize>(numParts * numTokens * numHeads);
  stateM = sharedScratch();
  stateL = stateM + (numRows << 2);
  stateO = isFinal ? addressOf(8) : stateL + (numRows << 2);
  attendParts(numParts, true);
  if (isFinal) return;
  phaseBarrier();
  const rows = numTokens * numHeads;
  for (let row = takeUnits(1); row < rows; row = takeUnits(1)) {
    mergeRows(stateM, stateL, stateO, numParts, rows, row, valueDim);
    finishRow(stateM, stateL, stateO, row, addressOf(8), valueDim);
  }
}

/** Attends in parts and leaves the state of each at m, l and o. */
export function attendStates(m: usize, l: usize, o: usize, numParts: i32): void {
  isFinal = false;
  stateM = m;
  stateL = l;
  stateO = o;
  attendParts(numParts, false);
}

function splitOf(numTokens: i32): i32 {
  let longest = 0;
  for (let t = 0; t < numTokens; t++) longest = max<i32>(longest, contextOf(t));
  return max<i32>(1, min<i32>(min<i32>(MAX_PARTS, UNITS / dim(3, 1)), longest / MIN_PART));
}

function sequenceOf(token: i32): i32 {
  return load<i32>(addressOf(2) + ((<usize>token) << 2));
}
function contextOf(token: i32): i32 {
  return load<i32>(addressOf(7) + ((<usize>sequenceOf(token)) << 2));
}
function positionOf(token: i32): i32 {
  return load<i32>(addressOf(1) + ((<usize>token) << 2));
}

function attendParts(numParts: i32, isAligned: bool): void {
  const numTokens = dim(0, 0);
  const numHeads = dim(0, 1);
  const numKvHeads = dim(3, 1);
  const groupSize = numHeads / numKvHeads;
  const headTile = min<i32>(groupSize, LANES);
  const numHeadTiles = (groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, LANES / headTile);
  const numTokenTiles = (numTokens + tokenTile - 1) / tokenTile;
  const numUnits = numTokenTiles * numKvHeads * numHeadTiles * numParts;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const part = unit % numParts;
    let rest = unit / numParts;
    const tileOfHead = rest % numHeadTiles;
    rest /= numHeadTiles;
    const kvHead = rest % numKvHeads;
    // the last tokens of a prompt see the most keys: they go first
    const tile = numTokenTiles - 1 - rest / numKvHeads;
    const lastToken = min<i32>(numTokens, (tile + 1) * tokenTile);
    const firstHead = kvHead * groupSize + tileOfHead * headTile;
    const lastHead = min<i32>((kvHead + 1) * groupSize, firstHead + headTile);
    let t = tile * tokenTile;
    while (t < lastToken) {
      let end = t + 1;
      while (end < lastToken && sequenceOf(end) === sequenceOf(t)) end++;
      const context = contextOf(t);
      let length = (context + numParts - 1) / numParts;
      if (isAligned) length = (length + CHUNK - 1) & -CHUNK;
      const begin = min<i32>(context, part * length);
      attendTile(t, end, kvHead, firstHead, lastHead, begin, min<i32>(context, begin + length), part);
      t = end;
    }
  }
}

/** The states of tokens `[t0, t1)`, heads `[h0, h1)` of one KV head over logical slots `[begin, end)`. */
function attendTile(t0: i32, t1: i32, kvHead: i32, h0: i32, h1: i32, begin: i32, end: i32, part: i32): void {
  const numHeads = dim(0, 1);
  const headDim = dim(0, 2);
  const headRow = <usize>kvHead * <usize>dim(3, 2);
  const valueDim = dim(4, 3);
  const keyType = dtypeOf(3);
  const valueType = dtypeOf(4);
  const keyBytes = bytesOf(keyType, headDim);
  const valueBytes = bytesOf(valueType, valueDim);
  const isCausal = attributeI(1) !== 0;
  const window = attributeI(2);
  const reach = window === 0 ? FAR : isCausal ? window - 1 : window >> 1;
  const lead = isCausal ? 0 : -reach;
  const scale = attributeF(0);
  const isCapped = attributeF(3) !== 0;
  setSoftmax(1, attributeF(3), lead, reach);
  const tileHeads = h1 - h0;
  const numLanes = (t1 - t0) * tileHeads;
  // panels of eight queries side by side, or one of four
  const panelShift = numLanes <= 4 ? 2 : 3;
  const panelLanes = 1 << panelShift;
  const numPanels = (numLanes + panelLanes - 1) >> panelShift;
  const rowBytes = (<usize>panelLanes) << 2;
  const paddedDim = (valueDim + 7) & ~7;
  // rows that are decoded beside the products
  const splitsKeys = keyType === F16 && (headDim & 7) === 0 && panelLanes === 8;
  const splitsValues = valueType === F16 && (valueDim & 7) === 0 && panelLanes === 8;

  // scratch: queries [panel][H][lanes], outputs [panel][D][lanes], m, l and positions per lane, logits [CHUNK][lanes], K, V
  const queries = localScratch();
  const queryBytes = <usize>headDim * rowBytes;
  const outputs = queries + <usize>(LANES >> 3) * ((<usize>headDim) << 5);
  const outputBytes = <usize>paddedDim * rowBytes;
  const maxima = outputs + <usize>(LANES >> 3) * ((<usize>paddedDim) << 5);
  const sums = maxima + <usize>LANES * 4;
  const lanePositions = sums + <usize>LANES * 4;
  const logits = lanePositions + <usize>LANES * 4;
  const keyRows = logits + <usize>(CHUNK + 8) * 32;
  const valueRows = keyRows + <usize>CHUNK * ((<usize>headDim) << 2);

  let firstPosition = i32.MAX_VALUE;
  let lastPosition = i32.MIN_VALUE;
  for (let lane = 0; lane < numPanels << panelShift; lane++) {
    const to = queries + <usize>(lane >> panelShift) * queryBytes + ((<usize>(lane & (panelLanes - 1))) << 2);
    store<f32>(maxima + ((<usize>lane) << 2), -Infinity);
    store<f32>(sums + ((<usize>lane) << 2), 0);
    if (lane >= numLanes) {
      store<i32>(lanePositions + ((<usize>lane) << 2), NO_POSITION);
      for (let i = 0; i < headDim; i++) store<f32>(to + <usize>i * rowBytes, 0);
      continue;
    }
    const token = t0 + lane / tileHeads;
    const head = h0 + (lane % tileHeads);
    const position = positionOf(token);
    firstPosition = min<i32>(firstPosition, position);
    lastPosition = max<i32>(lastPosition, position);
    store<i32>(lanePositions + ((<usize>lane) << 2), position);
    const from = addressOf(0) + ((<usize>(token * numHeads + head) * <usize>headDim) << 2);
    for (let i = 0; i < headDim; i++) {
      const at = splitsKeys ? splitIndex(i) : i;
      store<f32>(to + <usize>i * rowBytes, load<f32>(from + ((<usize>at) << 2)) * scale);
    }
  }
  memory.fill(outputs, 0, <usize>numPanels * outputBytes);

  openSlots(sequenceOf(t0), begin, end, firstPosition, lastPosition, lead, reach);
  let isOpen = nextChunk();
  if (isOpen) {
    const row = chunkRow + headRow;
    const from = addressOf(3) + row * keyBytes;
    fetchAll(from, <usize>chunkCount * keyBytes, addressOf(4) + row * valueBytes, <usize>chunkCount * valueBytes);
    if (splitsKeys) splitHalves(from, keyRows, chunkCount * headDim);
  }
  while (isOpen) {
    const count = chunkCount;
    const positions = chunkPositions;
    const keysFrom = addressOf(3) + (chunkRow + headRow) * keyBytes;
    const valuesFrom = addressOf(4) + (chunkRow + headRow) * valueBytes;
    isOpen = nextChunk();
    const nextCount = isOpen ? chunkCount : 0;
    const nextKeys = addressOf(3) + (chunkRow + headRow) * keyBytes;
    const nextValues = addressOf(4) + (chunkRow + headRow) * valueBytes;
    const keys = splitsKeys ? keyRows : rowsOf(keyType, keysFrom, keyRows, count * headDim);
    const values = splitsValues ? valueRows : rowsOf(valueType, valuesFrom, valueRows, count * valueDim);
    if (panelLanes === 4) {
      fetchAll(nextKeys, <usize>nextCount * keyBytes, nextValues, <usize>nextCount * valueBytes);
      attendFour(queries, outputs, maxima, lanePositions, logits, keys, values, positions, count, headDim, valueDim);
      continue;
    }
    if (splitsValues) dequantizeBeside(valuesFrom, valueRows, count * valueDim);
    // between the tiles of the first panel
    const turns = ((count + 3) >> 2) + ((valueDim + 3) >> 2);
    fetchLater(nextKeys, <usize>nextCount * keyBytes, nextValues, <usize>nextCount * valueBytes, turns);
    for (let panel = 0; panel < numPanels; panel++) {
      scoreRows(logits, keys, count, queries + <usize>panel * queryBytes, headDim);
      dequantizeRest();
      const at = (<usize>panel) << 5;
      weighRows(logits, count, isCapped, positions, lanePositions + at, maxima + at);
      if (isOpen && splitsKeys && panel === numPanels - 1) dequantizeBeside(nextKeys, keyRows, nextCount * headDim);
      sumRows(outputs + <usize>panel * outputBytes, values, count, logits, valueDim);
    }
    dequantizeRest();
  }

  const numTokens = dim(0, 0);
  for (let lane = 0; lane < numLanes; lane++) {
    const token = t0 + lane / tileHeads;
    const head = h0 + (lane % tileHeads);
    const from = outputs + <usize>(lane >> panelShift) * outputBytes + ((<usize>(lane & (panelLanes - 1))) << 2);
    let m = load<f32>(maxima + ((<usize>lane) << 2));
    let l = load<f32>(sums + ((<usize>lane) << 2));
    const row = isFinal ? token * numHeads + head : (part * numTokens + token) * numHeads + head;
    const to = stateO + ((<usize>row * <usize>valueDim) << 2);
    let check: f32 = m + l;
    if (m === -Infinity) check = l;
    const factor: f32 = !isFinal ? 1 : l === 0 ? 0 : 1 / l;
    for (let i: usize = 0; i < <usize>valueDim; i++) {
      const value = load<f32>(from + i * rowBytes);
      check += value;
      const at = splitsValues ? <usize>splitIndex(<i32>i) : i;
      store<f32>(to + (at << 2), value * factor);
    }
    if (!(abs<f32>(check) < Infinity)) {
      // something is not finite: what unseen slots hold may have come in, so this query is computed one key at a time
      attendSlowly(token, head, kvHead, begin, end, reach, lead, to, logits);
      m = load<f32>(logits);
      l = load<f32>(logits, 4);
      if (isFinal) {
        const rescale: f32 = l === 0 ? 0 : 1 / l;
        for (let i: usize = 0; i < <usize>valueDim; i++) store<f32>(to + (i << 2), load<f32>(to + (i << 2)) * rescale);
      }
      // logits and rows were overwritten, which no lane needs any more; queries have no room where values are much wider
    }
    if (!isFinal) {
      store<f32>(stateM + ((<usize>row) << 2), m);
      store<f32>(stateL + ((<usize>row) << 2), l);
    }
  }
}

/** A chunk for at most four queries. */
function attendFour(
  queries: usize,
  outputs: usize,
  state: usize,
  lanePositions: usize,
  logits: usize,
  keys: usize,
  values: usize,
  positions: usize,
  count: i32,
  headDim: i32,
  valueDim: i32,
): void {
  const keyStride = (<usize>headDim) << 2;
  const valueStride = (<usize>valueDim) << 2;
  for (let j = 0; j < count; j += 8) {
    gemm8x4(logits + ((<usize>j) << 4), keys + <usize>j * keyStride, keyStride, count - j, queries, headDim);
  }
  const factor = softmaxStep(logits, 16, count, positions, lanePositions, state, LANES * 4);
  for (let d = 0; d < valueDim; d += 8) {
    const column = (<usize>d) << 2;
    gemmT8x4(outputs + (column << 2), values + column, valueStride, logits, count, factor);
  }
}

/** Scores of `count` rows of keys for eight queries. */
function scoreRows(logits: usize, keys: usize, count: i32, queries: usize, headDim: i32): void {
  const stride = (<usize>headDim) << 2;
  const last = keys + <usize>(count - 1) * stride;
  for (let j = 0; j < count; j += 4, keys += stride << 2, logits += 128) {
    fetchSome();
    const second = min<usize>(last, keys + stride);
    const third = min<usize>(last, keys + 2 * stride);
    gemm4x8Dequantizing(logits, keys, second, third, min<usize>(last, keys + 3 * stride), queries, headDim);
  }
}

/** Scores of eight queries become weights. */
function weighRows(logits: usize, count: i32, isCapped: bool, positions: usize, lanes: usize, state: usize): void {
  if (positions === 0 && !isCapped) {
    weigh8(logits, count, state, LANES * 4);
    shrinkLow = lowFactor();
    shrinkHigh = highFactor();
  } else {
    shrinkLow = softmaxStep(logits, 32, count, positions, lanes, state, LANES * 4);
    shrinkHigh = softmaxStep(logits + 16, 32, count, positions, lanes + 16, state + 16, LANES * 4);
  }
}

/** Adds the values of `count` rows to the outputs of eight queries. */
function sumRows(outputs: usize, values: usize, count: i32, weights: usize, valueDim: i32): void {
  const stride = (<usize>valueDim) << 2;
  for (let d = 0; d < valueDim; d += 4, outputs += 128, values += 16) {
    fetchSome();
    gemmT4x8Dequantizing(outputs, values, stride, weights, count, shrinkLow, shrinkHigh);
  }
}

/** Rows that can be read as f32: where they are, or decoded to `to`. */
function rowsOf(dtype: i32, from: usize, to: usize, count: i32): usize {
  if (dtype === F32) return from;
  if (dtype === F16) decodeHalves(from, to, count);
  else decode(dtype, from, to, count);
  return to;
}
