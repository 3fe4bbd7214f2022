/**
 * Heavy-hitter oracle (H2O), fused: each panel of queries attends to its chunk and to the memory in two softmaxes, whose
 * weights are summed as scores of the keys; the two states are merged when the output is written. The first phase copies
 * the states, in work items of (sequence, KV head). Then, chunk by chunk, one phase attends in work items of (sequence, some
 * tokens, KV head) with their own sums of weights, and the next one adds these sums in a fixed order and selects the next
 * memory, in work items of (sequence, KV head).
 */
import { addMassOfRows, clearMass, enterMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as panels from '../attention/query-panels';
import { selectLargest } from '../attention/select-top-k';
import * as op from '../operands/h2o-attention.generated';
import { localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { withLane } from '../simd/vector';
import { ALIGNMENT_BYTES } from '../attention/scratch-sizes';

/** Maximum number of queries in a tile: every panel has a second one for the memory. */
const TILE: i32 = panels.LANES / 2;
/** Approximate number of tokens in a work item, each of which gathers the keys of its chunk. */
const ITEM_TOKENS: i32 = 64;

let chunk: i32 = 1;
let capacity: i32 = 0;
let itemTokens: i32 = 1;
let hasMass: bool = false;

// the state of a KV head
let next: i32 = 0;
let count: i32 = 0;
let progressAt: usize = 0; // i32 next, count
let memoryAt: usize = 0; // i32 [E]
let scoresAt: usize = 0; // f32 [E]
let sumsAt: usize = 0; // f32 [U]

// a piece: the tokens of a sequence in one chunk; the pieces of a sequence are numbered
let pieceNumber: i32 = 0;
let pieceRun: i32 = 0;
let runBegin: i32 = 0;
let runLimit: i32 = 0;
let pieceBegin: i32 = 0;
let pieceEnd: i32 = 0;
/** Work items of the piece, for all KV heads. */
let firstItem: i32 = 0;
let endItem: i32 = 0;

// sums of weights of a work item, in the scratch of all threads
let chunkWeights: usize = 0; // f32 [U]
let memoryWeights: usize = 0; // f32 [E]

// scratch
let present: usize = 0; // i32 [U] whether the cache holds a row of the chunk
let candidates: usize = 0; // i32 [E + U]
let candidateScores: usize = 0; // f32
let rest: usize = 0; // f32 scores, -Infinity for candidates that always stay
let work: usize = 0;
let chosen: usize = 0;
let chunkKeys: usize = 0;
let chunkValues: usize = 0;
let memoryKeys: usize = 0;
let memoryValues: usize = 0;
let numChunkRows: i32 = 0;
let memoryPresent: usize = 0;

export function h2oAttention(): void {
  cache.enterCache();
  hasMass = enterMass(op.mass.isPresent ? op.mass.address : 0);
  layScratch(localScratch());
  let numPieces = 0;
  let numRuns = 0;
  for (openPieces(0); nextPiece();) {
    numRuns += 1;
    let number = 1;
    while (findPiece(number)) number += 1;
    numPieces = max<i32>(numPieces, number);
  }
  for (let item = takeUnits(1); item < numRuns * cache.numKvHeads; item = takeUnits(1)) {
    openPieces(0);
    do nextPiece();
    while (pieceRun < item / cache.numKvHeads);
    beginState(runBegin, runLimit, item % cache.numKvHeads);
  }
  for (let number = 0; number < numPieces; number++) {
    phaseBarrier();
    openPieces(number);
    while (nextPiece()) continue;
    const numItems = endItem;
    for (let item = takeUnits(1); item < numItems; item = takeUnits(1)) attendItem(item, number);
    phaseBarrier();
    for (let item = takeUnits(1); item < numRuns * cache.numKvHeads; item = takeUnits(1)) {
      endPiece(item / cache.numKvHeads, item % cache.numKvHeads, number);
    }
  }
}

/** Reads the attributes, lays out scratch and returns its end. */
function layScratch(base: usize): usize {
  chunk = op.attributes.chunk;
  capacity = op.memory.memorySize;
  const both = (<usize>(chunk + capacity)) << 2;
  present = panels.layPanels(base, max<i32>(chunk, capacity));
  memoryPresent = present + ((<usize>chunk) << 2);
  candidates = memoryPresent + ((<usize>capacity) << 2);
  candidateScores = candidates + both;
  rest = candidateScores + both;
  work = rest + both;
  chosen = work + both;
  chunkKeys = chosen + both;
  chunkValues = chunkKeys + <usize>chunk * cache.keyStride;
  memoryKeys = chunkValues + <usize>chunk * cache.valueStride;
  memoryValues = memoryKeys + <usize>capacity * cache.keyStride;
  const tokenTile = max<i32>(1, TILE / min<i32>(cache.groupSize, TILE));
  itemTokens = max<i32>(1, ITEM_TOKENS / tokenTile) * tokenTile;
  return memoryValues + <usize>capacity * cache.valueStride;
}

/** Starts a walk over the pieces with this number, one per sequence at most. */
function openPieces(number: i32): void {
  pieceNumber = number;
  pieceRun = -1;
  runLimit = 0;
  firstItem = 0;
  endItem = 0;
}

/** Moves to the next piece; false after the last one. */
function nextPiece(): bool {
  while (runLimit < cache.numTokens) {
    runBegin = runLimit;
    runLimit = cache.runEnd(runBegin, cache.numTokens);
    pieceRun += 1;
    if (!findPiece(pieceNumber)) continue;
    firstItem = endItem;
    endItem += itemsOfHead() * cache.numKvHeads;
    return true;
  }
  return false;
}

/** Finds the piece of the run with this number; false when there is none. */
function findPiece(number: i32): bool {
  for (let t = runBegin; t < runLimit; number--) {
    const index = cache.positionOfToken(t) / chunk;
    let end = t + 1;
    while (end < runLimit && cache.positionOfToken(end) / chunk === index) end++;
    if (number === 0) {
      pieceBegin = t;
      pieceEnd = end;
      return true;
    }
    t = end;
  }
  return false;
}

/** Number of work items of the piece for each KV head. */
function itemsOfHead(): i32 {
  return (pieceEnd - pieceBegin + itemTokens - 1) / itemTokens;
}

/** Finds the sums of weights of a work item. */
function openWeights(item: i32): void {
  chunkWeights = sharedScratch() + <usize>item * ((<usize>(chunk + capacity)) << 2);
  memoryWeights = chunkWeights + ((<usize>chunk) << 2);
}

/** Opens the state that a sequence leaves. */
function openState(sequence: i32, kvHead: i32): void {
  const row = <usize>(load<i32>(op.stateTo.address + ((<usize>sequence) << 2)) * cache.numKvHeads + kvHead);
  memoryAt = op.memory.address + row * ((<usize>capacity) << 2);
  scoresAt = op.memoryScores.address + row * ((<usize>capacity) << 2);
  sumsAt = op.chunkScores.address + row * ((<usize>chunk) << 2);
  progressAt = op.progress.address + (row << 3);
  next = load<i32>(progressAt);
  count = load<i32>(progressAt, 4);
}

function saveProgress(): void {
  store<i32>(progressAt, next);
  store<i32>(progressAt, count, 4);
}

/** Copies the state of a sequence, whose tokens are `[begin, end)`, to its target row, or clears it. */
function beginState(begin: i32, end: i32, kvHead: i32): void {
  const sequence = cache.sequenceOfToken(begin);
  const from = load<i32>(op.stateFrom.address + ((<usize>sequence) << 2));
  clearMass(begin, end, kvHead);
  openState(sequence, kvHead);
  if (from >= 0 && cache.positionOfToken(begin) !== 0) {
    const row = <usize>(from * cache.numKvHeads + kvHead);
    next = load<i32>(op.progress.address + (row << 3));
    count = load<i32>(op.progress.address + (row << 3), 4);
    memory.copy(memoryAt, op.memory.address + row * ((<usize>capacity) << 2), (<usize>count) << 2);
    memory.copy(scoresAt, op.memoryScores.address + row * ((<usize>capacity) << 2), (<usize>count) << 2);
    memory.copy(sumsAt, op.chunkScores.address + row * ((<usize>chunk) << 2), (<usize>chunk) << 2);
  } else {
    next = 0;
    count = 0;
    memory.fill(sumsAt, 0, (<usize>chunk) << 2);
  }
  reachPosition(cache.positionOfToken(begin));
  saveProgress();
}

/** Attends some tokens of one piece. */
function attendItem(item: i32, number: i32): void {
  openWeights(item);
  memory.fill(chunkWeights, 0, (<usize>(chunk + capacity)) << 2);
  openPieces(number);
  do nextPiece();
  while (item >= endItem);
  const kvHead = (item - firstItem) % cache.numKvHeads;
  const begin = pieceBegin + ((item - firstItem) / cache.numKvHeads) * itemTokens;
  const sequence = cache.sequenceOfToken(runBegin);
  openState(sequence, kvHead);
  attendChunk(begin, min<i32>(pieceEnd, begin + itemTokens), sequence, kvHead, cache.positionOfToken(begin) / chunk);
}

/** Adds the sums of weights of all work items of a piece, and closes the chunk when it is complete. */
function endPiece(run: i32, kvHead: i32, number: i32): void {
  openPieces(number);
  while (pieceRun < run) if (!nextPiece()) return;
  if (pieceRun > run) return;
  openState(cache.sequenceOfToken(runBegin), kvHead);
  for (let item = firstItem + kvHead; item < endItem; item += cache.numKvHeads) {
    openWeights(item);
    addAll(sumsAt, chunkWeights, chunk);
    addAll(scoresAt, memoryWeights, count);
  }
  reachPosition(cache.positionOfToken(pieceEnd - 1) + 1);
  if (pieceEnd < runLimit) {
    reachPosition(cache.positionOfToken(pieceEnd));
  } else {
    for (let e = count; e < capacity; e++) {
      store<i32>(memoryAt + ((<usize>e) << 2), -1);
      store<f32>(scoresAt + ((<usize>e) << 2), 0);
    }
  }
  saveProgress();
}

function addAll(to: usize, from: usize, length: i32): void {
  for (const end = to + ((<usize>length) << 2); to < end; to += 4, from += 4) {
    store<f32>(to, load<f32>(to) + load<f32>(from));
  }
}

/** All positions below `position` were seen: closes the chunks that are complete. */
function reachPosition(position: i32): void {
  const end = position / chunk;
  for (let index = next / chunk; index < end; index++) closeChunk(index);
  next = position;
}

function closeChunk(index: i32): void {
  const first = index * chunk;
  const local = op.attributes.local;
  const sinks = op.attributes.sinks;
  const numCandidates = count + chunk;
  let numRest = 0;
  for (let i = 0; i < numCandidates; i++) {
    const at = (<usize>i) << 2;
    const inChunk = (<usize>(i - count)) << 2;
    const position = i < count ? load<i32>(memoryAt + at) : first + i - count;
    const score = i < count ? load<f32>(scoresAt + at) : load<f32>(sumsAt + inChunk);
    const isKept = position < sinks || position >= first + chunk - local;
    store<i32>(candidates + at, position);
    store<f32>(candidateScores + at, score);
    store<f32>(rest + at, isKept ? -Infinity : score);
    if (!isKept) numRest += 1;
  }
  const numChosen = selectLargest(rest, numCandidates, min<i32>(op.attributes.heavy, numRest), work, chosen);
  count = 0;
  let nextChosen = 0;
  for (let i = 0; i < numCandidates; i++) {
    const at = (<usize>i) << 2;
    const isChosen = nextChosen < numChosen && load<i32>(chosen + ((<usize>nextChosen) << 2)) === i;
    if (isChosen) nextChosen += 1;
    if (!isChosen && load<f32>(rest + at) !== -Infinity) continue;
    const to = (<usize>count) << 2;
    store<i32>(memoryAt + to, load<i32>(candidates + at));
    store<f32>(scoresAt + to, load<f32>(candidateScores + at));
    count += 1;
  }
  memory.fill(sumsAt, 0, (<usize>chunk) << 2);
}

/** Attends tokens `[t0, t1)`, all of which are in chunk `index`. */
function attendChunk(t0: i32, t1: i32, sequence: i32, kvHead: i32, index: i32): void {
  const first = index * chunk;
  let last = 0;
  for (let t = t0; t < t1; t++) last = max<i32>(last, cache.positionOfToken(t));
  numChunkRows = last + 1 - first;
  for (let j = 0; j < numChunkRows; j++) {
    bringPosition(first + j, <usize>j, sequence, kvHead, chunkKeys, chunkValues, present);
  }
  for (let e: usize = 0; e < <usize>count; e++) {
    bringPosition(load<i32>(memoryAt + (e << 2)), e, sequence, kvHead, memoryKeys, memoryValues, memoryPresent);
  }
  const headTile = min<i32>(cache.groupSize, TILE);
  const tokenTile = max<i32>(1, TILE / headTile);
  for (let t = t0; t < t1; t += tokenTile) {
    for (let h = 0; h < cache.groupSize; h += headTile) {
      const head = kvHead * cache.groupSize + h;
      panels.openPanels(
        t,
        min<i32>(t1, t + tokenTile),
        head,
        min<i32>((kvHead + 1) * cache.groupSize, head + headTile),
      );
      const numOwn = panels.numPanels;
      for (let panel = 0; panel < numOwn; panel++) attendPanel(panel, numOwn + panel, first, kvHead);
    }
  }
}

/** Copies key and value of a position to row `row` and flags whether the cache holds them; the row is zero if it does not. */
function bringPosition(
  position: i32,
  row: usize,
  sequence: i32,
  kvHead: i32,
  keys: usize,
  values: usize,
  flags: usize,
): void {
  const index = position < cache.contextOfSequence(sequence) ? cache.slotIndex(sequence, position) : -1;
  const isThere = index >= 0 && cache.positionAt(index) === position;
  store<i32>(flags + (row << 2), isThere ? 1 : 0);
  const key = keys + row * cache.keyStride;
  const value = values + row * cache.valueStride;
  if (isThere) {
    cache.copyKey(index, kvHead, key);
    cache.copyValue(index, kvHead, value);
  } else {
    memory.fill(key, 0, cache.keyStride);
    memory.fill(value, 0, cache.valueStride);
  }
}

/** A panel attends to the chunk that starts at `first`, and its second panel to the memory. */
function attendPanel(panel: i32, second: i32, first: i32, kvHead: i32): void {
  panels.clearPanel(second);
  attendRows(panel, panel, chunkKeys, chunkValues, first);
  attendRows(panel, second, memoryKeys, memoryValues, -1);
  const shift = panels.firstLaneOf(second) - panels.firstLaneOf(panel);
  for (let lane = panels.firstLaneOf(panel); lane < panels.lastLaneOf(panel); lane++) {
    writeLaneOfBoth(lane, lane + shift);
    const token = panels.tokenOfLane(lane);
    if (panels.headOfLane(lane) === kvHead * cache.groupSize) countPairs(token, panels.positionOfLane(lane), kvHead);
    if (hasMass) panels.mergeLane(lane, panels.maximumOfLane(lane + shift), panels.sumOfLane(lane + shift));
  }
  if (!hasMass) return;
  measureRows(panel, chunkKeys, first, kvHead);
  measureRows(panel, memoryKeys, -1, kvHead);
}

/** Computes the logits of a panel with the chunk that starts at `first`, or with the memory (-1); returns their number. */
function scorePanel(panel: i32, keys: usize, first: i32): i32 {
  panels.scanPanel(panel);
  const isMemory = first < 0;
  const rows = isMemory ? count : min<i32>(numChunkRows, panels.highestLane + 1 - first);
  if (rows <= 0) return 0;
  panels.scoreRows(panel, keys, rows, 0);
  panels.capRows(rows);
  const flags = isMemory ? memoryPresent : present;
  for (let j = 0; j < rows; j++) {
    const position = isMemory ? load<i32>(memoryAt + ((<usize>j) << 2)) : first + j;
    if (load<i32>(flags + ((<usize>j) << 2)) === 0) panels.dropRow(j);
    else if (position > panels.lowestLane || panels.highestLane - position > cache.maxDistance)
      panels.hideRow(panel, j, position, 0, cache.maxDistance);
  }
  return rows;
}

/** Adds the masses of the same rows in the softmax over both. */
function measureRows(panel: i32, keys: usize, first: i32, kvHead: i32): void {
  const rows = scorePanel(panel, keys, first);
  if (rows > 0) addMassOfRows(panel, rows, kvHead, first < 0 ? memoryAt : 0, first);
}

/** A panel attends to the chunk or to the memory in a separate softmax, and adds its weights to the scores. */
function attendRows(panel: i32, statePanel: i32, keys: usize, values: usize, first: i32): void {
  const rows = scorePanel(panel, keys, first);
  if (rows <= 0) return;
  panels.softmaxRows(statePanel, rows);
  const numLanes = panels.lastLaneOf(panel) - panels.firstLaneOf(panel);
  let low4 = f32x4.splat(0);
  let high4 = f32x4.splat(0);
  for (let i = 0; i < numLanes; i++) {
    const sum = panels.sumOfLane(panels.firstLaneOf(statePanel) + i);
    const inverse: f32 = sum === 0 ? 0 : 1 / sum;
    if (i < 4) low4 = withLane(low4, i, inverse);
    else high4 = withLane(high4, i - 4, inverse);
  }
  let to = first < 0 ? memoryWeights : chunkWeights;
  for (let j = 0; j < rows; j++, to += 4) {
    const at = panels.logitsOf(j);
    let v = f32x4.mul(v128.load(at), low4);
    if (panels.outputStride() === 32) v = f32x4.add(v, f32x4.mul(v128.load(at, 16), high4));
    const weight =
      f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
    store<f32>(to, load<f32>(to) + weight);
  }
  panels.sumRows(statePanel, values, rows, 0);
}

/** Merges the states of chunk and memory, one lane each, and writes the output. */
function writeLaneOfBoth(lane: i32, second: i32): void {
  const a = panels.maximumOfLane(lane);
  const b = panels.maximumOfLane(second);
  const top = max<f32>(a, b);
  const factorA: f32 = a === -Infinity ? 0 : <f32>Math.exp(<f64>a - <f64>top);
  const factorB: f32 = b === -Infinity ? 0 : <f32>Math.exp(<f64>b - <f64>top);
  const sum = panels.sumOfLane(lane) * factorA + panels.sumOfLane(second) * factorB;
  const inverse: f32 = sum === 0 ? 0 : 1 / sum;
  let from = panels.outputOfLane(lane);
  let memoryFrom = panels.outputOfLane(second);
  let y = op.y.address + panels.rowOfLane(lane) * cache.valueStride;
  for (let i = 0; i < cache.valueDim; i++, y += 4, from += panels.outputStride(), memoryFrom += panels.outputStride()) {
    store<f32>(y, (load<f32>(from) * factorA + load<f32>(memoryFrom) * factorB) * inverse);
  }
}

function countPairs(token: i32, position: i32, kvHead: i32): void {
  const first = (position / chunk) * chunk;
  let numKeys = 0;
  for (let j = first; j <= position; j++) {
    if (position - j <= cache.maxDistance) numKeys += load<i32>(present + ((<usize>(j - first)) << 2));
  }
  for (let e: usize = 0; e < <usize>count; e++) {
    if (position - load<i32>(memoryAt + (e << 2)) <= cache.maxDistance) numKeys += load<i32>(memoryPresent + (e << 2));
  }
  store<i32>(op.pairs.address + ((<usize>(token * cache.numKvHeads + kvHead)) << 2), numKeys);
}

/** Bytes of scratch per thread. */
export function h2oAttentionLocalBytes(): u64 {
  cache.enterCache();
  return layScratch(0) + ALIGNMENT_BYTES;
}

/** Sums of weights of each work item: KV heads times parts of the tokens, of which each sequence may begin one more. */
export function h2oAttentionSharedBytes(): u64 {
  cache.enterCache();
  layScratch(0);
  const numSequences = op.contextLengths.numSequences;
  const numParts = (min<i32>(op.q.numTokens, numSequences * chunk) + itemTokens - 1) / itemTokens;
  return <u64>(numParts + numSequences) * cache.numKvHeads * ((chunk + capacity) << 2);
}
