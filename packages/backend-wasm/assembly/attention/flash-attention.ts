/**
 * Flash attention over a paged cache: online softmax over chunks of keys, eight queries side by side in registers. All
 * query heads of a KV head, and up to LANES queries, are computed together, so that each K and V row is read once.
 * Work items: (token tile, KV head and head tile, split of the context).
 */
import { keys as keyCache, values as valueCache } from '../operands/attention-inputs.generated';
import { dequantizeBeside, dequantizeRest } from '../gemm/dequantize-beside';
import { gemm4x8Dequantizing, gemmT4x8Dequantizing } from '../gemm/f16-gemm.generated';
import { F16, bytesOf } from '../quant/dequantize';
import { splitHalves, splitIndex } from '../quant/dequantize-f16-swizzled';
import { localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { attendF64 } from './attention-f64';
import * as cache from './kv-cache-view';
import { finishState } from './partial-states';
import { prefetchAll, prefetchLater, prefetchSome } from './prefetch';
import * as panels from './query-panels';
import { CHUNK, chunkCount, chunkPositions, chunkRow, nextChunk, openSlots } from './visible-slots';
import { rowPairBytes } from './scratch-sizes';

// where the states of the splits go; a single split is finished at once
let stateM: usize = 0;
let stateL: usize = 0;
let stateO: usize = 0;
let isFinal: bool = false;

let keyType: i32 = 0;
let valueType: i32 = 0;
let keyBytes: usize = 0;
let valueBytes: usize = 0;
let keyRows: usize = 0;
let valueRows: usize = 0;
// rows of f16 that are dequantized beside the products, in swizzled order
let swizzlesKeys: bool = false;
let swizzlesValues: bool = false;

/** Reads the current record; states go to `m`, `l` and `o`, or finished outputs to `o` when `m` and `l` are 0. */
export function enterFlashAttention(m: usize, l: usize, o: usize): void {
  cache.enterCache();
  stateM = m;
  stateL = l;
  stateO = o;
  isFinal = m === 0;
  keyType = keyCache.dtype;
  valueType = valueCache.dtype;
  keyBytes = bytesOf(keyType, cache.headDim);
  valueBytes = bytesOf(valueType, cache.valueDim);
  keyRows = panels.layPanels(localScratch(), CHUNK);
  valueRows = keyRows + <usize>CHUNK * cache.keyStride;
}

/** Attends to every context in `numSplits` splits; `isAligned` rounds them up to whole chunks. */
export function attendSplits(numSplits: i32, isAligned: bool): void {
  const headTile = min<i32>(cache.groupSize, panels.LANES);
  const numHeadTiles = (cache.groupSize + headTile - 1) / headTile;
  const tokenTile = max<i32>(1, panels.LANES / headTile);
  const numTokenTiles = (cache.numTokens + tokenTile - 1) / tokenTile;
  const numItems = numTokenTiles * cache.numKvHeads * numHeadTiles * numSplits;
  for (let item = takeUnits(1); item < numItems; item = takeUnits(1)) {
    const split = item % numSplits;
    let rest = item / numSplits;
    const tileOfHead = rest % numHeadTiles;
    rest /= numHeadTiles;
    const kvHead = rest % cache.numKvHeads;
    // the last tokens of a prompt see the most keys, so they go first
    const tile = numTokenTiles - 1 - rest / cache.numKvHeads;
    const lastToken = min<i32>(cache.numTokens, (tile + 1) * tokenTile);
    const firstHead = kvHead * cache.groupSize + tileOfHead * headTile;
    const lastHead = min<i32>((kvHead + 1) * cache.groupSize, firstHead + headTile);
    let t = tile * tokenTile;
    while (t < lastToken) {
      const end = cache.runEnd(t, lastToken);
      const context = cache.contextOfSequence(cache.sequenceOfToken(t));
      let length = (context + numSplits - 1) / numSplits;
      if (isAligned) length = (length + CHUNK - 1) & -CHUNK;
      const begin = min<i32>(context, split * length);
      openTile(t, end, firstHead, lastHead);
      attendTile(kvHead, cache.sequenceOfToken(t), begin, min<i32>(context, begin + length));
      for (let lane = 0; lane < panels.numLanes; lane++) {
        writeState(lane, kvHead, begin, min<i32>(context, begin + length), split * cache.numTokens * cache.numHeads);
      }
      t = end;
    }
  }
}

function openTile(t0: i32, t1: i32, h0: i32, h1: i32): void {
  const canSwizzle = keyType === F16 && (cache.headDim & 7) === 0;
  panels.openPanels(t0, t1, h0, h1, canSwizzle);
  panels.scanLanes(0, panels.numLanes);
  swizzlesKeys = canSwizzle && panels.isPanelOfEight();
  swizzlesValues = valueType === F16 && (cache.valueDim & 7) === 0 && panels.isPanelOfEight();
}

/** Attends the queries of the tile to the logical slots `[begin, end)`, chunk by chunk. */
function attendTile(kvHead: i32, sequence: i32, begin: i32, end: i32): void {
  const headRow = <usize>kvHead * <usize>cache.blockSize;
  const isCapped = cache.softCap !== 0;
  openSlots(sequence, begin, end, panels.lowestLane, panels.highestLane);
  let isOpen = nextChunk();
  if (isOpen) {
    const row = chunkRow + headRow;
    const from = keyCache.address + row * keyBytes;
    prefetchAll(
      from,
      <usize>chunkCount * keyBytes,
      valueCache.address + row * valueBytes,
      <usize>chunkCount * valueBytes,
    );
    if (swizzlesKeys) splitHalves(from, keyRows, chunkCount * cache.headDim);
  }
  while (isOpen) {
    const count = chunkCount;
    const positions = chunkPositions;
    const keysFrom = keyCache.address + (chunkRow + headRow) * keyBytes;
    const valuesFrom = valueCache.address + (chunkRow + headRow) * valueBytes;
    isOpen = nextChunk();
    const nextCount = isOpen ? chunkCount : 0;
    const nextKeys = keyCache.address + (chunkRow + headRow) * keyBytes;
    const nextValues = valueCache.address + (chunkRow + headRow) * valueBytes;
    const keys = swizzlesKeys ? keyRows : cache.toF32(keyType, keysFrom, keyRows, count * cache.headDim);
    const values = swizzlesValues ? valueRows : cache.toF32(valueType, valuesFrom, valueRows, count * cache.valueDim);
    if (!panels.isPanelOfEight()) {
      prefetchAll(nextKeys, <usize>nextCount * keyBytes, nextValues, <usize>nextCount * valueBytes);
      panels.scoreRows(0, keys, count, 0);
      panels.softmaxRows(0, count, positions, isCapped);
      panels.sumRows(0, values, count, 0);
      continue;
    }
    if (swizzlesValues) dequantizeBeside(valuesFrom, valueRows, count * cache.valueDim);
    // prefetch between the register tiles of the first panel
    const turns = ((count + 3) >> 2) + ((cache.valueDim + 3) >> 2);
    prefetchLater(nextKeys, <usize>nextCount * keyBytes, nextValues, <usize>nextCount * valueBytes, turns);
    for (let panel = 0; panel < panels.numPanels; panel++) {
      scoreChunk(panels.logitsOf(0), keys, count, panels.queriesOf(panel));
      dequantizeRest();
      panels.softmaxRows(panel, count, positions, isCapped);
      if (isOpen && swizzlesKeys && panel === panels.numPanels - 1)
        dequantizeBeside(nextKeys, keyRows, nextCount * cache.headDim);
      sumChunk(panels.outputsOf(panel), values, count, panels.logitsOf(0));
    }
    dequantizeRest();
  }
}

/** Logits of `count` rows of keys for eight queries, prefetching and dequantizing between register tiles. */
function scoreChunk(logits: usize, keys: usize, count: i32, queries: usize): void {
  const last = keys + <usize>(count - 1) * cache.keyStride;
  for (let j = 0; j < count; j += 4, keys += cache.keyStride << 2, logits += 128) {
    prefetchSome();
    const second = min<usize>(last, keys + cache.keyStride);
    const third = min<usize>(last, keys + 2 * cache.keyStride);
    gemm4x8Dequantizing(
      logits,
      keys,
      second,
      third,
      min<usize>(last, keys + 3 * cache.keyStride),
      queries,
      cache.headDim,
    );
  }
}

/** Adds the values of `count` rows to the outputs of eight queries. */
function sumChunk(outputs: usize, values: usize, count: i32, weights: usize): void {
  const low = panels.shrinkOfLow();
  const high = panels.shrinkOfHigh();
  for (let d = 0; d < cache.valueDim; d += 4, outputs += 128, values += 16) {
    prefetchSome();
    gemmT4x8Dequantizing(outputs, values, cache.valueStride, weights, count, low, high);
  }
}

/** Writes the state of a lane over the slots `[begin, end)`, or its output; rows of the split begin at `firstRow`. */
function writeState(lane: i32, kvHead: i32, begin: i32, end: i32, firstRow: i32): void {
  const from = panels.outputOfLane(lane);
  const stride = panels.outputStride();
  const row = panels.rowOfLane(lane) + <usize>firstRow;
  const to = stateO + row * cache.valueStride;
  let m = panels.maximumOfLane(lane);
  let l = panels.sumOfLane(lane);
  let check: f32 = m === -Infinity ? l : m + l;
  const factor: f32 = !isFinal ? 1 : l === 0 ? 0 : 1 / l;
  for (let i: usize = 0; i < <usize>cache.valueDim; i++) {
    const value = load<f32>(from + i * stride);
    check += value;
    const at = swizzlesValues ? <usize>splitIndex(<i32>i) : i;
    store<f32>(to + (at << 2), value * factor);
  }
  if (!(abs<f32>(check) < Infinity)) {
    // values of slots that no lane sees may have come in: this query is computed again, one key at a time, with the
    // scratch of logits and rows, which no lane needs any more
    const scratch = panels.logitsOf(0);
    attendF64(panels.tokenOfLane(lane), panels.headOfLane(lane), kvHead, begin, end, to, scratch);
    m = load<f32>(scratch);
    l = load<f32>(scratch, 4);
    if (isFinal) finishState(l, to, to, cache.valueDim);
  }
  if (isFinal) return;
  store<f32>(stateM + (row << 2), m);
  store<f32>(stateL + (row << 2), l);
}

/** Panels and a chunk of keys and values as f32; or the state and the rows of `attendF64`. */
export function flashAttentionBytes(): u64 {
  cache.enterCache();
  return panels.layPanels(0, CHUNK) + CHUNK * (rowPairBytes() + 32) + 64 * (cache.headDim + cache.valueDim + 9);
}
