/**
 * Flash attention over a paged cache: online softmax over chunks of keys, eight queries side by side in registers. All
 * query heads of a KV head, and up to LANES queries, are computed together, so that each K and V row is read once.
 */
import { dequantizeBeside, dequantizeRest, pending } from '../gemm/dequantize-beside';
import { gemm4x8Dequantizing, gemmT4x8Dequantizing } from '../gemm/f16-gemm.generated';
import { F16 } from '../quant/dequantize';
import { dequantizeSwizzled, swizzledIndex } from '../quant/swizzled-f16';
import { floatAt, setFloat } from '../runtime/arrays';
import { isInvariant, localScratch } from '../runtime/record';
import { enterMass } from './key-mass';
import * as cache from './kv-cache-view';
import { finishState } from './partial-states';
import * as panels from './query-panels';
import * as tile from './query-tiles';

/** Maximum number of keys in a chunk, which is a part of a block. */
const CHUNK: i32 = 64;
/** Bytes of a cache line. */
const LINE: usize = 64;
/** Bytes of each half that one step prefetches. */
const STEP: usize = 2 * LINE;

// outputs of the splits; a single split is normalized right away
let stateM: usize = 0;
let stateL: usize = 0;
let stateO: usize = 0;
let isFinal: bool = false;
let numSplits: i32 = 1;
let splitsByToken: bool = false;

let keyRows: usize = 0;
let valueRows: usize = 0;
// whether f16 rows are dequantized between the register tiles of GEMM, in swizzled order
let swizzlesKeys: bool = false;
let swizzlesValues: bool = false;

/** Index of the first slot of the chunk in the whole cache. */
let chunkIndex: i32 = 0;
let chunkCount: i32 = 0;
/** Address of the positions of the chunk; 0 when every query sees the whole chunk, so that it needs no mask. */
let chunkPositions: usize = 0;
/** Slots `[nextSlot, endSlot)` are still to be visited. */
let nextSlot: i32 = 0;
let endSlot: i32 = 0;

// Prefetching touches a few cache lines after each register tile, in four streams: the low and the high half of the keys
// and of the values. Hardware prefetchers work page by page, so four streams keep more lines in flight than one.
let keysLow: usize = 0;
let keysHigh: usize = 0;
let valuesLow: usize = 0;
let valuesHigh: usize = 0;
/** Bytes of half of the keys, and of half of the values. */
let keysEnd: usize = 0;
let valuesEnd: usize = 0;
let prefetched: usize = 0;
let prefetchEnd: usize = 0;
let bytesOfTurn: usize = 0;
let sink: i32 = 0;

/**
 * Runs attention with every context cut into `splits` splits or, with `cutsByToken`, as `cutContext` does it. Writes
 * partial states to `m`, `l` and `o`, or normalized outputs to `o` when `m` and `l` are 0.
 * @param sinks learned sinks; 0 for none
 * @param bias biases by relative position, `numBiases` per head; 0 for none
 */
export function flashAttention(
  m: usize,
  l: usize,
  o: usize,
  splits: i32,
  cutsByToken: bool,
  sinks: usize,
  bias: usize = 0,
  numBiases: i32 = 0,
): void {
  enterMass(0);
  stateM = m;
  stateL = l;
  stateO = o;
  isFinal = m === 0;
  numSplits = splits;
  splitsByToken = cutsByToken && splits > 1;
  layFlashAttention(localScratch());
  cache.enterSinks(sinks);
  cache.enterBias(bias, numBiases);
  tile.attendTiles(1, splits, true, 0, attendTile);
}

/** Prepares `flashAttendListed`, with normalized outputs `[T, N, D]` at `o`; scratch is already laid out. */
export function enterListed(o: usize): void {
  enterMass(0);
  stateM = 0;
  stateO = o;
  isFinal = true;
  numSplits = 1;
}

/** Attention of listed tokens, as in `attendListed` of the tiles. */
export function flashAttendListed(list: usize, begin: i32, end: i32, kvHead: i32): void {
  tile.attendListed(list, begin, end, kvHead, attendTile);
}

/** Reads the record, lays out scratch and returns its end. `attendF64` reuses the part for logits and rows. */
export function layFlashAttention(base: usize): usize {
  cache.enterCache();
  keyRows = panels.layPanels(base, CHUNK, canSwizzleKeys());
  valueRows = keyRows + <usize>CHUNK * cache.keyStride;
  return valueRows + <usize>CHUNK * cache.valueStride;
}

function attendTile(): void {
  swizzlesKeys = canSwizzleKeys() && panels.isPanelOfEight();
  swizzlesValues = cache.valueType === F16 && (cache.valueDim & 7) === 0 && panels.isPanelOfEight();
  let context = tile.context;
  let length = (context + numSplits - 1) / numSplits;
  if (splitsByToken) {
    length = cache.cutContext(panels.tokenOfLane(panels.numLanes - 1));
    if (tile.split >= cache.ownSplits) return;
    context = cache.ownContext;
  }
  const begin = min<i32>(context, tile.split * length);
  const end = min<i32>(context, begin + length);
  attendRange(begin, end);
  for (let lane = 0; lane < panels.numLanes; lane++) writeState(lane, begin, end);
}

/** In batch-invariant steps, one token decides: swizzled keys have another order of summation. */
function canSwizzleKeys(): bool {
  if (cache.groupSize <= 4 && isInvariant(cache.numTokens)) return false;
  return cache.keyType === F16 && (cache.headDim & 7) === 0;
}

/** Runs the queries of the tile over the logical slots `[begin, end)`, chunk by chunk. */
function attendRange(begin: i32, end: i32): void {
  panels.scanLanes(0, panels.numLanes);
  nextSlot = begin;
  endSlot = end;
  let isOpen = nextChunk();
  if (isOpen) {
    prefetchChunk(1);
    prefetchSome();
    if (swizzlesKeys) dequantizeSwizzled(cache.keyRowAt(chunkIndex, tile.kvHead), keyRows, chunkCount * cache.headDim);
  }
  while (isOpen) {
    const index = chunkIndex;
    const count = chunkCount;
    const positions = chunkPositions;
    isOpen = nextChunk();
    const keys = swizzlesKeys ? keyRows : cache.keysOf(index, tile.kvHead, count, keyRows);
    const values = swizzlesValues ? valueRows : cache.valuesOf(index, tile.kvHead, count, valueRows);
    if (!panels.isPanelOfEight()) {
      prefetchChunk(isOpen ? 1 : 0);
      prefetchSome();
      panels.scoreRows(0, keys, count, 0);
      softmaxChunk(0, index, count, positions);
      panels.sumRows(0, values, count, 0);
      continue;
    }
    if (swizzlesValues) dequantizeBeside(cache.valueRowAt(index, tile.kvHead), valueRows, count * cache.valueDim);
    // the first panel prefetches between its register tiles; panels with nothing to do beside the GEMM use larger tiles
    prefetchChunk(isOpen ? ((count + 3) >> 2) + ((cache.valueDim + 3) >> 2) : 0);
    for (let panel = 0; panel < panels.numPanels; panel++) {
      if (panel === 0) scoreChunk(panels.logitsOf(0), keys, count, panels.queriesOf(panel));
      else panels.scoreRows(panel, keys, count, 0);
      dequantizeRest();
      softmaxChunk(panel, index, count, positions);
      if (isOpen && swizzlesKeys && panel === panels.numPanels - 1)
        dequantizeBeside(cache.keyRowAt(chunkIndex, tile.kvHead), keyRows, chunkCount * cache.headDim);
      if (panel === 0 || pending > 0) sumChunk(panels.outputsOf(panel), values, count, panels.logitsOf(0));
      else panels.sumRows(panel, values, count, 0);
    }
    dequantizeRest();
  }
}

/** Advances to the next chunk that any query may see; false after the last one. */
function nextChunk(): bool {
  while (nextSlot < endSlot) {
    const index = cache.slotIndex(tile.sequence, nextSlot);
    const count = cache.slotsInBlock(nextSlot, min<i32>(CHUNK, endSlot - nextSlot));
    nextSlot += count;
    const positions = cache.positionsAt(index);
    cache.scanPositions(positions, count);
    if (cache.highestPosition < 0) continue;
    const farthest = panels.lowestLane - cache.highestPosition;
    const nearest = panels.highestLane - cache.lowestPosition;
    if (farthest > cache.reachOf(panels.lowestLane) || nearest < cache.minDistance) continue;
    const isNear = nearest <= cache.reachOf(panels.highestLane);
    const isSeen = !cache.hasEmptySlot && farthest >= cache.minDistance && isNear;
    chunkPositions = isSeen ? 0 : positions;
    chunkIndex = index;
    chunkCount = count;
    return true;
  }
  return false;
}

/** Spreads the prefetch of the chunk over the next `turns` calls of `prefetchSome`; 0 turns off prefetching. */
function prefetchChunk(turns: i32): void {
  const count = <usize>(turns === 0 ? 0 : chunkCount);
  keysEnd = ((count * cache.keyBytes) >> 1) & ~(LINE - 1);
  valuesEnd = ((count * cache.valueBytes) >> 1) & ~(LINE - 1);
  keysLow = cache.keyRowAt(chunkIndex, tile.kvHead);
  keysHigh = keysLow + keysEnd;
  valuesLow = cache.valueRowAt(chunkIndex, tile.kvHead);
  valuesHigh = valuesLow + valuesEnd;
  prefetched = 0;
  prefetchEnd = max<usize>(keysEnd, valuesEnd);
  const steps = (prefetchEnd + STEP - 1) / STEP;
  const numTurns = <usize>max<i32>(turns, 1);
  bytesOfTurn = ((steps + numTurns - 1) / numTurns) * STEP;
}

function prefetchSome(): void {
  const stop = min<usize>(prefetchEnd, prefetched + bytesOfTurn);
  // the sum is stored, so that the loads are not eliminated
  let sum = sink;
  for (; prefetched < stop; prefetched += LINE) {
    if (prefetched < keysEnd) sum += load<i32>(keysLow + prefetched) + load<i32>(keysHigh + prefetched);
    if (prefetched < valuesEnd) sum += load<i32>(valuesLow + prefetched) + load<i32>(valuesHigh + prefetched);
  }
  sink = sum;
}

/** Computes the logits of `count` keys for eight queries; prefetches and dequantizes between register tiles. */
function scoreChunk(logits: usize, keys: usize, count: i32, queries: usize): void {
  const stride = cache.keyStride;
  const last = keys + <usize>(count - 1) * stride;
  for (let j = 0; j < count; j += 4, keys += stride << 2, logits += 128) {
    prefetchSome();
    const second = min<usize>(last, keys + stride);
    const third = min<usize>(last, keys + 2 * stride);
    const fourth = min<usize>(last, keys + 3 * stride);
    gemm4x8Dequantizing(logits, keys, second, third, fourth, queries, cache.headDim);
  }
}

/**
 * Turns the logits of a chunk from slot `index` on into softmax weights, after the soft cap, the bias and, unless every query
 * sees all keys, the mask.
 */
function softmaxChunk(panel: i32, index: i32, count: i32, positions: usize): void {
  panels.capRows(count);
  if (cache.positionBias !== 0) panels.biasRows(panel, count, cache.positionsAt(index));
  if (positions !== 0) panels.maskRows(panel, count, positions, cache.minDistance, cache.maxDistance);
  panels.softmaxRows(panel, count);
}

/** Accumulates the weighted values of `count` rows into the outputs of eight queries. */
function sumChunk(outputs: usize, values: usize, count: i32, weights: usize): void {
  for (let d = 0; d < cache.valueDim; d += 4, outputs += 128, values += 16) {
    prefetchSome();
    gemmT4x8Dequantizing(outputs, values, cache.valueStride, weights, count, panels.lowFactor, panels.highFactor);
  }
}

/** Writes the partial state of a lane over the slots `[begin, end)`, or its normalized output. */
function writeState(lane: i32, begin: i32, end: i32): void {
  const from = panels.outputOfLane(lane);
  const stride = panels.rowBytes;
  const row = panels.rowOfLane(lane) + <usize>(tile.split * cache.numTokens * cache.numHeads);
  const to = stateO + row * cache.valueStride;
  let m = panels.maximumOfLane(lane);
  let l = panels.sumOfLane(lane);
  let check: f32 = m === -Infinity ? l : m + l;
  const factor: f32 = !isFinal ? 1 : l === 0 ? 0 : 1 / l;
  for (let i = 0; i < cache.valueDim; i++) {
    const value = load<f32>(from + <usize>i * stride);
    check += value;
    setFloat(to, swizzlesValues ? swizzledIndex(i) : i, value * factor);
  }
  if (!(abs<f32>(check) < Infinity)) {
    // infinities or NaN of hidden slots may have leaked into the sums: recompute this query one key at a time, in the
    // scratch of logits and rows, which no lane needs any more
    const scratch = panels.logitsOf(0);
    attendF64(lane, begin, end, to, scratch);
    m = floatAt(scratch, 0);
    l = floatAt(scratch, 1);
    if (isFinal) finishState(l, to, to, cache.valueDim);
  }
  if (isFinal) return;
  store<f32>(stateM + (row << 2), m);
  store<f32>(stateL + (row << 2), l);
}

/**
 * Attention of one lane over slots `[begin, limit)`, key by key in f64 as @winnow/ops defines it. Writes m and l to `state`
 * and o to `output`. The scratch after `state` holds a key, a value and the sums in f64.
 */
function attendF64(lane: i32, begin: i32, limit: i32, output: usize, state: usize): void {
  const query = panels.queryOfLane(lane);
  const key = state + 16;
  const value = key + ((<usize>cache.headDim) << 2);
  const sums = (value + ((<usize>cache.valueDim) << 2) + 7) & ~7;
  const end = sums + ((<usize>cache.valueDim) << 3);
  memory.fill(sums, 0, end - sums);
  const hasSink = cache.sinkLogits !== 0 && tile.split === 0;
  let top: f64 = hasSink ? floatAt(cache.sinkLogits, panels.headOfLane(lane)) : -Infinity;
  let denominator: f64 = hasSink ? 1 : 0;
  for (let slot = begin; slot < limit; slot++) {
    const index = cache.slotIndex(tile.sequence, slot);
    if (!cache.sees(panels.positionOfLane(lane), cache.positionAt(index))) continue;
    let logit = dotF64(query, cache.keysOf(index, tile.kvHead, 1, key), cache.headDim) * <f64>cache.scale;
    if (cache.softCap !== 0) logit = <f64>cache.softCap * Math.tanh(logit / <f64>cache.softCap);
    if (cache.positionBias !== 0) {
      logit += cache.biasOf(panels.headOfLane(lane), cache.positionAt(index) - panels.positionOfLane(lane));
    }
    if (logit === -Infinity) continue;
    if (logit > top || logit !== logit) {
      const shrink = top === -Infinity ? 0 : Math.exp(top - logit);
      denominator *= shrink;
      for (let at = sums; at < end; at += 8) store<f64>(at, load<f64>(at) * shrink);
      top = logit;
    }
    const weight = Math.exp(logit - top);
    denominator += weight;
    const row = cache.valuesOf(index, tile.kvHead, 1, value);
    for (let at = sums, i = 0; at < end; at += 8, i++) store<f64>(at, load<f64>(at) + weight * <f64>floatAt(row, i));
  }
  setFloat(state, 0, <f32>top);
  // make the sums relative to the maximum rounded to f32, as it is stored
  const rounding = top === -Infinity ? 0 : Math.exp(top - <f64>(<f32>top));
  setFloat(state, 1, <f32>(denominator * rounding));
  for (let at = sums, i = 0; at < end; at += 8, i++) setFloat(output, i, <f32>(load<f64>(at) * rounding));
}

function dotF64(a: usize, b: usize, count: i32): f64 {
  let sum: f64 = 0;
  for (let i = 0; i < count; i++) sum += <f64>floatAt(a, i) * <f64>floatAt(b, i);
  return sum;
}
