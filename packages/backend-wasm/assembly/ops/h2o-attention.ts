/**
 * Heavy-hitter oracle (H2O), fused: each panel of queries attends to its chunk and to the memory in two softmaxes, whose
 * weights are summed as scores of the keys; the two states are merged when the output is written. The first phase copies
 * the states; work items: (sequence, KV head). Then two phases alternate, chunk by chunk. One runs attention; work items:
 * (sequence, KV head, some tokens), each with its own sums of weights. The other adds these sums in a fixed order and selects
 * the next memory; work items: (sequence, KV head).
 */
import { addMassOfRows, clearMass, enterMass, hasMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import { BINS_BYTES, selectLargest } from '../attention/select-top-k';
import { nextRun, openRuns, runBegin, runEnd, stateFrom, stateTo } from '../attention/state-runs';
import * as op from '../operands/h2o-attention.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/** Maximum number of queries in a tile, since every panel has a second one for the memory. */
const TILE: i32 = panels.LANES / 2;
/** Approximate number of tokens in a work item; every item gathers the keys of its chunk. */
const ITEM_TOKENS: i32 = 64;

let chunk: i32 = 1;
let capacity: i32 = 0;
/** Tokens of a work item. */
let itemTokens: i32 = 1;
/** Maximum number of work items for a piece and a KV head. */
let numParts: i32 = 1;

// the state of a KV head
let count: i32 = 0;
let progressAt: usize = 0; // i32 [2]: the next position, the number of keys in the memory
let memoryAt: usize = 0; // i32 [E]
let scoresAt: usize = 0; // f32 [E]
let sumsAt: usize = 0; // f32 [U]

// a piece: the tokens of a run in one chunk
let pieceBegin: i32 = 0;
let pieceEnd: i32 = 0;

// scratch
let rest: usize = 0; // f32 [E + U] scores, -Infinity for candidates that are always retained
let work: usize = 0;
let selected: usize = 0;
// rows of the chunk, then, from row `chunk` on, of the memory
let weights: usize = 0; // f32 sums, in shared scratch
let positions: usize = 0; // i32, -1 for a position that the cache does not hold
let keys: usize = 0;
let values: usize = 0;
let firstOfChunk: i32 = 0;
let numChunkRows: i32 = 0;

export function h2oAttention(): void {
  h2oAttentionScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  let numRuns = 0;
  let numPieces = 0;
  for (; findPiece(numRuns, 0); numRuns++) while (findPiece(numRuns, numPieces)) numPieces += 1;
  const numStates = numRuns * cache.numKvHeads;
  for (let state = nextItems(1); state < numStates; state = nextItems(1)) beginState(state);
  for (let number = 0; number < numPieces; number++) {
    phaseBarrier();
    for (let item = nextItems(1); item < numStates * numParts; item = nextItems(1)) attendItem(item, number);
    phaseBarrier();
    for (let state = nextItems(1); state < numStates; state = nextItems(1)) endPiece(state, number);
  }
}

/** Reads the record, lays out scratch and returns its end. */
export function h2oAttentionScratch(base: usize): usize {
  cache.enterCache();
  chunk = op.attributes.chunk;
  capacity = op.memory.memorySize;
  const tokenTile = tile.tokensOfTile(TILE);
  itemTokens = max<i32>(1, ITEM_TOKENS / tokenTile) * tokenTile;
  numParts = (min<i32>(cache.numTokens, chunk) + itemTokens - 1) / itemTokens;
  const numRows = <usize>(chunk + capacity);
  positions = panels.layPanels(base, max<i32>(chunk, capacity));
  rest = positions + (numRows << 2);
  work = rest + (numRows << 2);
  selected = work + (numRows << 2) + BINS_BYTES;
  keys = selected + (numRows << 2);
  values = keys + numRows * cache.keyStride;
  return values + numRows * cache.valueStride;
}

/** Finds run `run` of tokens of one sequence and its piece `number`; false when there is none. */
function findPiece(run: i32, number: i32): bool {
  openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, cache.numTokens);
  for (let i = 0; i <= run; i++) if (!nextRun()) return false;
  pieceEnd = runBegin;
  for (let i = 0; i <= number; i++) {
    pieceBegin = pieceEnd;
    if (pieceBegin === runEnd) return false;
    const index = cache.positionOfToken(pieceBegin) / chunk;
    while (pieceEnd < runEnd && cache.positionOfToken(pieceEnd) / chunk === index) pieceEnd++;
  }
  return true;
}

/** Opens the state that the run writes. */
function openState(kvHead: i32): void {
  const row = <usize>(stateTo * cache.numKvHeads + kvHead);
  memoryAt = op.memory.address + row * ((<usize>capacity) << 2);
  scoresAt = op.memoryScores.address + row * ((<usize>capacity) << 2);
  sumsAt = op.chunkScores.address + row * ((<usize>chunk) << 2);
  progressAt = op.progress.address + (row << 3);
  count = intAt(progressAt, 1);
}

/** Copies the state of a sequence to its target row, or clears it. */
function beginState(state: i32): void {
  findPiece(state / cache.numKvHeads, 0);
  const kvHead = state % cache.numKvHeads;
  clearMass(runBegin, runEnd, kvHead);
  openState(kvHead);
  const position = cache.positionOfToken(runBegin);
  let next = 0;
  if (stateFrom >= 0 && position !== 0) {
    const row = <usize>(stateFrom * cache.numKvHeads + kvHead);
    next = intAt(op.progress.address + (row << 3), 0);
    count = intAt(op.progress.address + (row << 3), 1);
    memory.copy(memoryAt, op.memory.address + row * ((<usize>capacity) << 2), (<usize>count) << 2);
    memory.copy(scoresAt, op.memoryScores.address + row * ((<usize>capacity) << 2), (<usize>count) << 2);
    memory.copy(sumsAt, op.chunkScores.address + row * ((<usize>chunk) << 2), (<usize>chunk) << 2);
  } else {
    count = 0;
    memory.fill(sumsAt, 0, (<usize>chunk) << 2);
  }
  reachPosition(next, position);
}

/** Runs attention for some tokens of one piece. */
function attendItem(item: i32, number: i32): void {
  const state = item / numParts;
  if (!findPiece(state / cache.numKvHeads, number)) return;
  const begin = pieceBegin + (item % numParts) * itemTokens;
  if (begin >= pieceEnd) return;
  openState(state % cache.numKvHeads);
  openWeights(item);
  memory.fill(weights, 0, (<usize>(chunk + capacity)) << 2);
  attendChunk(begin, min<i32>(pieceEnd, begin + itemTokens), state % cache.numKvHeads);
}

/** Selects the sums of weights of a work item. */
function openWeights(item: i32): void {
  weights = sharedScratch() + <usize>item * ((<usize>(chunk + capacity)) << 2);
}

/** Adds the sums of weights of all work items of a piece, and closes the chunk when it is complete. */
function endPiece(state: i32, number: i32): void {
  if (!findPiece(state / cache.numKvHeads, number)) return;
  openState(state % cache.numKvHeads);
  for (let begin = pieceBegin, item = state * numParts; begin < pieceEnd; begin += itemTokens, item++) {
    openWeights(item);
    addAll(sumsAt, weights, chunk);
    addAll(scoresAt, weights + ((<usize>chunk) << 2), count);
  }
  const next = cache.positionOfToken(pieceEnd - 1) + 1;
  reachPosition(cache.positionOfToken(pieceBegin), next);
  if (pieceEnd < runEnd) {
    reachPosition(next, cache.positionOfToken(pieceEnd));
    return;
  }
  for (let e = count; e < capacity; e++) {
    setInt(memoryAt, e, -1);
    setFloat(scoresAt, e, 0);
  }
}

function addAll(to: usize, from: usize, length: i32): void {
  for (let i = 0; i < length; i++) setFloat(to, i, floatAt(to, i) + floatAt(from, i));
}

/** Advances from position `next` to `position`, and closes the chunks that are complete by then. */
function reachPosition(next: i32, position: i32): void {
  for (let index = next / chunk; index < position / chunk; index++) closeChunk(index * chunk);
  setInt(progressAt, 0, position);
  setInt(progressAt, 1, count);
}

/** Selects the next memory from the memory and the chunk that begins at position `first`. */
function closeChunk(first: i32): void {
  const numKeys = count;
  let numRest = 0;
  for (let i = 0; i < numKeys + chunk; i++) {
    const position = i < numKeys ? intAt(memoryAt, i) : first + i - numKeys;
    const isKept = position < op.attributes.sinks || position >= first + chunk - op.attributes.local;
    setFloat(rest, i, isKept ? -Infinity : i < numKeys ? floatAt(scoresAt, i) : floatAt(sumsAt, i - numKeys));
    if (!isKept) numRest += 1;
  }
  const numSelected = selectLargest(rest, numKeys + chunk, min<i32>(op.attributes.heavy, numRest), work, selected);
  count = 0;
  let nextSelected = 0;
  for (let i = 0; i < numKeys + chunk; i++) {
    const isSelected = nextSelected < numSelected && intAt(selected, nextSelected) === i;
    if (isSelected) nextSelected += 1;
    if (!isSelected && floatAt(rest, i) !== -Infinity) continue;
    // no entry is overwritten before it is read
    setInt(memoryAt, count, i < numKeys ? intAt(memoryAt, i) : first + i - numKeys);
    setFloat(scoresAt, count, i < numKeys ? floatAt(scoresAt, i) : floatAt(sumsAt, i - numKeys));
    count += 1;
  }
  memory.fill(sumsAt, 0, (<usize>chunk) << 2);
}

/** Runs attention for tokens `[t0, t1)`, all of which are in one chunk. */
function attendChunk(t0: i32, t1: i32, kvHead: i32): void {
  firstOfChunk = (cache.positionOfToken(t0) / chunk) * chunk;
  let last = 0;
  for (let t = t0; t < t1; t++) last = max<i32>(last, cache.positionOfToken(t));
  numChunkRows = last + 1 - firstOfChunk;
  for (let j = 0; j < numChunkRows; j++) gatherPosition(firstOfChunk + j, j, t0, kvHead);
  for (let e = 0; e < count; e++) gatherPosition(intAt(memoryAt, e), chunk + e, t0, kvHead);
  tile.attendTokens(t0, t1, kvHead, TILE, attendTile);
}

/** Gathers the key and value of a position as row `row`; zeros when the cache does not hold them. */
function gatherPosition(position: i32, row: i32, token: i32, kvHead: i32): void {
  const index = cache.indexOfPosition(cache.sequenceOfToken(token), position);
  setInt(positions, row, index < 0 ? -1 : position);
  cache.gatherRow(index, kvHead, keys + <usize>row * cache.keyStride, values + <usize>row * cache.valueStride);
}

/** Each panel attends to the chunk, and its second panel to the memory. */
function attendTile(): void {
  const numOwn = panels.numPanels;
  for (let panel = 0; panel < numOwn; panel++) {
    const second = numOwn + panel;
    panels.clearPanel(second);
    attendRows(panel, panel, 0);
    attendRows(panel, second, chunk);
    const shift = panels.firstLaneOf(second) - panels.firstLaneOf(panel);
    for (let lane = panels.firstLaneOf(panel); lane < panels.lastLaneOf(panel); lane++) {
      panels.mergeLanes(lane, lane + shift);
      panels.writeLane(lane, op.y.address + panels.rowOfLane(lane) * cache.valueStride);
      if (panels.headOfLane(lane) === tile.kvHead * cache.groupSize) countPairs(lane);
    }
    if (!hasMass) continue;
    // masses are those of one softmax over both chunk and memory
    addMassOfRows(panel, scorePanel(panel, 0), tile.kvHead, 0, firstOfChunk);
    addMassOfRows(panel, scorePanel(panel, chunk), tile.kvHead, memoryAt, 0);
  }
}

/** Computes the logits of a panel with the rows of the chunk or the memory, from row `first` on; returns their number. */
function scorePanel(panel: i32, first: i32): i32 {
  panels.scanPanel(panel);
  const rows = first > 0 ? count : min<i32>(numChunkRows, panels.highestLane + 1 - firstOfChunk);
  if (rows <= 0) return 0;
  panels.scoreRows(panel, keys + <usize>first * cache.keyStride, rows, 0);
  panels.capRows(rows);
  panels.maskRows(panel, rows, positions + ((<usize>first) << 2), 0, cache.maxDistance);
  return rows;
}

/** A panel attends to the chunk or to the memory in a separate softmax, and adds its weights to the scores. */
function attendRows(panel: i32, statePanel: i32, first: i32): void {
  const rows = scorePanel(panel, first);
  if (rows === 0) return;
  panels.softmaxRows(statePanel, rows);
  const lane = panels.firstLaneOf(panel);
  const stateLane = panels.firstLaneOf(statePanel);
  const low4 = v128.and(panels.inverseSums(stateLane), panels.ownLanes(lane));
  const high4 = v128.and(panels.inverseSums(stateLane + 4), panels.ownLanes(lane + 4));
  for (let j = 0; j < rows; j++) {
    const at = panels.logitsOf(j);
    let v = f32x4.mul(v128.load(at), low4);
    if (panels.isPanelOfEight()) v = f32x4.add(v, f32x4.mul(v128.load(at, 16), high4));
    const weight =
      f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
    setFloat(weights, first + j, floatAt(weights, first + j) + weight);
  }
  panels.sumRows(statePanel, values + <usize>first * cache.valueStride, rows, 0);
}

function countPairs(lane: i32): void {
  const position = panels.positionOfLane(lane);
  const inChunk = cache.countVisible(position, positions, position + 1 - firstOfChunk, 0, cache.maxDistance);
  const inMemory = cache.countVisible(position, positions + ((<usize>chunk) << 2), count, 0, cache.maxDistance);
  setInt(op.pairs.address, panels.tokenOfLane(lane) * cache.numKvHeads + tile.kvHead, inChunk + inMemory);
}

/** Sums of weights of all work items. */
export function h2oAttentionSharedBytes(): u64 {
  h2oAttentionScratch(0);
  const numStates = min<i32>(cache.numTokens, op.contextLengths.numSequences) * cache.numKvHeads;
  return (<u64>(numStates * numParts) * (chunk + capacity)) << 2;
}
