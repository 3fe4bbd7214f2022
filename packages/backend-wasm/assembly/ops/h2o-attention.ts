/**
 * Chunked prefill with a memory of heavy hitters, fused: chunk and memory of a panel of queries are two softmaxes, whose
 * weights give the scores, merged when the output is written. The states live in their tensors. Phases: the states are there;
 * then for each chunk of the step the queries, in units of (sequence, some tokens, KV head) with sums of weights of their own,
 * and these sums, unit by unit in one order, and the next memory, in units of (sequence, KV head).
 * Tensors: as in `kv-cache-view.ts`, 8 stateFrom, 9 stateTo, 10 memory, 11 memoryScores, 12 chunkScores, 13 progress, 14 y,
 * 15 pairs, 16 mass. Attributes: 4 chunk, 5 local, 6 heavy, 7 sinks.
 */
import { enterCache, modelReach, positionOfToken, runEnd, sequenceOfToken } from '../attention/kv-cache-view';
import { addMassOfRows, clearMass, enterMass } from '../attention/key-mass';
import { bringPosition } from '../attention/gather-positions';
import {
  LANES,
  capRows,
  clearPanel,
  dropRow,
  firstLaneOf,
  headOfLane,
  hideRow,
  lastLaneOf,
  layPanels,
  logitsOf,
  maximumOfLane,
  mergeLane,
  numPanels,
  openPanels,
  outputOfLane,
  outputStride,
  positionOfLane,
  scoreRows,
  sumOfLane,
  sumRows,
  tokenOfLane,
  weighRows,
} from '../attention/query-panels';
import { addressOf, attributeI, dim, localScratch, sharedScratch } from '../runtime/record';
import { selectLargest } from '../attention/select-top-k';
import { withLane } from '../simd/vector';
import { phaseBarrier, takeUnits } from '../runtime/threads';

/** Queries of a tile: every panel has a second one for the memory. */
const TILE: i32 = LANES / 2;

let headDim: i32 = 0;
let valueDim: i32 = 0;
let chunk: i32 = 1;
let capacity: i32 = 0;
let reach: i32 = 0;

let hasMass: bool = false;

// the state of a KV head
let next: i32 = 0;
let count: i32 = 0;
let progressAt: usize = 0; // i32 next, count
let memoryAt: usize = 0; // i32 [E]
let scoresAt: usize = 0; // f32 [E]
let sumsAt: usize = 0; // f32 [U]

// the tokens of a sequence in one chunk
let pieceBegin: i32 = 0;
let pieceEnd: i32 = 0;
/** Tokens of a unit: the keys of the chunk are brought side by side for each. */
let unitTokens: i32 = 1;
const UNIT_TOKENS: i32 = 64;

// sums of weights of a unit, in the scratch of all threads
let chunkWeights: usize = 0; // f32 [U]
let memoryWeights: usize = 0; // f32 [E]

// scratch
let present: usize = 0; // i32 [max(U, E)] whether a row is there
let candidates: usize = 0; // i32 [E + U]
let candidateScores: usize = 0; // f32
let rest: usize = 0; // f32: -Infinity for those that stay in any case
let work: usize = 0;
let chosen: usize = 0;
let chunkKeys: usize = 0;
let chunkValues: usize = 0;
let memoryKeys: usize = 0;
let memoryValues: usize = 0;
let numChunkRows: i32 = 0;
let memoryPresent: usize = 0;

export function h2oAttention(): void {
  enterCache();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  chunk = attributeI(4);
  capacity = dim(10, 2);
  reach = modelReach();
  hasMass = enterMass(16);
  const numKvHeads = dim(3, 1);
  const both = (<usize>(chunk + capacity)) << 2;
  present = layPanels(localScratch(), max<i32>(chunk, capacity));
  memoryPresent = present + ((<usize>chunk) << 2);
  candidates = memoryPresent + ((<usize>capacity) << 2);
  candidateScores = candidates + both;
  rest = candidateScores + both;
  work = rest + both;
  chosen = work + both;
  chunkKeys = chosen + both;
  chunkValues = chunkKeys + <usize>chunk * ((<usize>headDim) << 2);
  memoryKeys = chunkValues + <usize>chunk * ((<usize>valueDim) << 2);
  memoryValues = memoryKeys + <usize>capacity * ((<usize>headDim) << 2);
  const numTokens = dim(0, 0);
  const tokenTile = max<i32>(1, TILE / min<i32>(dim(0, 1) / numKvHeads, TILE));
  unitTokens = max<i32>(1, UNIT_TOKENS / tokenTile) * tokenTile;
  let numRuns = 0;
  let numPieces = 0;
  for (let t = 0; t < numTokens; t = runEnd(t, numTokens)) {
    numRuns += 1;
    let step = 0;
    while (findPiece(t, runEnd(t, numTokens), step)) step += 1;
    numPieces = max<i32>(numPieces, step);
  }
  for (let unit = takeUnits(1); unit < numRuns * numKvHeads; unit = takeUnits(1)) {
    const begin = runBegin(unit / numKvHeads);
    beginState(begin, runEnd(begin, numTokens), unit % numKvHeads);
  }
  for (let step = 0; step < numPieces; step++) {
    phaseBarrier();
    let numUnits = 0;
    for (let t = 0; t < numTokens; t = runEnd(t, numTokens)) {
      if (findPiece(t, runEnd(t, numTokens), step)) numUnits += partsOfPiece() * numKvHeads;
    }
    for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) attendUnit(unit, step);
    phaseBarrier();
    for (let unit = takeUnits(1); unit < numRuns * numKvHeads; unit = takeUnits(1)) {
      endPiece(unit / numKvHeads, unit % numKvHeads, step);
    }
  }
}

/** The first token of a sequence, in the order of the step. */
function runBegin(run: i32): i32 {
  let begin = 0;
  for (; run > 0; run--) begin = runEnd(begin, dim(0, 0));
  return begin;
}

/** Finds the tokens of `[begin, end)` in the chunk that is number `step` among those they lie in; false when there is none. */
function findPiece(begin: i32, end: i32, step: i32): bool {
  for (let t = begin; t < end;) {
    const index = positionOfToken(t) / chunk;
    let last = t + 1;
    while (last < end && positionOfToken(last) / chunk === index) last++;
    if (step === 0) {
      pieceBegin = t;
      pieceEnd = last;
      return true;
    }
    step -= 1;
    t = last;
  }
  return false;
}

function partsOfPiece(): i32 {
  return (pieceEnd - pieceBegin + unitTokens - 1) / unitTokens;
}

/** Where the sums of weights of a unit are. */
function openWeights(unit: i32): void {
  chunkWeights = sharedScratch() + <usize>unit * ((<usize>(chunk + capacity)) << 2);
  memoryWeights = chunkWeights + ((<usize>chunk) << 2);
}

/** The state that a sequence leaves. */
function openState(sequence: i32, kvHead: i32): void {
  const row = <usize>(load<i32>(addressOf(9) + ((<usize>sequence) << 2)) * dim(3, 1) + kvHead);
  memoryAt = addressOf(10) + row * ((<usize>capacity) << 2);
  scoresAt = addressOf(11) + row * ((<usize>capacity) << 2);
  sumsAt = addressOf(12) + row * ((<usize>chunk) << 2);
  progressAt = addressOf(13) + (row << 3);
  next = load<i32>(progressAt);
  count = load<i32>(progressAt, 4);
}

function saveProgress(): void {
  store<i32>(progressAt, next);
  store<i32>(progressAt, count, 4);
}

/** Brings the state of tokens `[begin, end)` of one sequence to where it is left. */
function beginState(begin: i32, end: i32, kvHead: i32): void {
  const sequence = sequenceOfToken(begin);
  const from = load<i32>(addressOf(8) + ((<usize>sequence) << 2));
  clearMass(begin, end, kvHead);
  openState(sequence, kvHead);
  if (from >= 0 && positionOfToken(begin) !== 0) {
    const row = <usize>(from * dim(3, 1) + kvHead);
    next = load<i32>(addressOf(13) + (row << 3));
    count = load<i32>(addressOf(13) + (row << 3), 4);
    memory.copy(memoryAt, addressOf(10) + row * ((<usize>capacity) << 2), (<usize>count) << 2);
    memory.copy(scoresAt, addressOf(11) + row * ((<usize>capacity) << 2), (<usize>count) << 2);
    memory.copy(sumsAt, addressOf(12) + row * ((<usize>chunk) << 2), (<usize>chunk) << 2);
  } else {
    next = 0;
    count = 0;
    memory.fill(sumsAt, 0, (<usize>chunk) << 2);
  }
  reachPosition(positionOfToken(begin));
  saveProgress();
}

/** Some tokens of one sequence in one chunk. */
function attendUnit(unit: i32, step: i32): void {
  const numTokens = dim(0, 0);
  const numKvHeads = dim(3, 1);
  openWeights(unit);
  memory.fill(chunkWeights, 0, (<usize>(chunk + capacity)) << 2);
  for (let t = 0; t < numTokens; t = runEnd(t, numTokens)) {
    if (!findPiece(t, runEnd(t, numTokens), step)) continue;
    const numUnits = partsOfPiece() * numKvHeads;
    if (unit >= numUnits) {
      unit -= numUnits;
      continue;
    }
    const kvHead = unit % numKvHeads;
    const begin = pieceBegin + (unit / numKvHeads) * unitTokens;
    openState(sequenceOfToken(t), kvHead);
    const index = positionOfToken(begin) / chunk;
    attendChunk(begin, min<i32>(pieceEnd, begin + unitTokens), sequenceOfToken(t), kvHead, index);
    return;
  }
}

/** Takes in the sums of weights of all units of a piece, and closes the chunk where it ended. */
function endPiece(run: i32, kvHead: i32, step: i32): void {
  const numTokens = dim(0, 0);
  const numKvHeads = dim(3, 1);
  let unit = 0; // the first of the piece
  let begin = 0;
  for (; run > 0; run--) {
    const end = runEnd(begin, numTokens);
    if (findPiece(begin, end, step)) unit += partsOfPiece() * numKvHeads;
    begin = end;
  }
  const end = runEnd(begin, numTokens);
  if (!findPiece(begin, end, step)) return;
  openState(sequenceOfToken(begin), kvHead);
  const numParts = partsOfPiece();
  for (let part = 0; part < numParts; part++) {
    openWeights(unit + part * numKvHeads + kvHead);
    addAll(sumsAt, chunkWeights, chunk);
    addAll(scoresAt, memoryWeights, count);
  }
  reachPosition(positionOfToken(pieceEnd - 1) + 1);
  if (pieceEnd < end) {
    reachPosition(positionOfToken(pieceEnd));
  } else {
    for (let e = count; e < capacity; e++) {
      store<i32>(memoryAt + ((<usize>e) << 2), -1);
      store<f32>(scoresAt + ((<usize>e) << 2), 0);
    }
  }
  saveProgress();
}

function addAll(to: usize, from: usize, length: i32): void {
  for (const end = to + ((<usize>length) << 2); to < end; to += 4, from += 4)
    store<f32>(to, load<f32>(to) + load<f32>(from));
}

/** All positions below `position` were seen: closes the chunks that ended. */
function reachPosition(position: i32): void {
  const end = position / chunk;
  for (let index = next / chunk; index < end; index++) closeChunk(index);
  next = position;
}

function closeChunk(index: i32): void {
  const first = index * chunk;
  const local = attributeI(5);
  const sinks = attributeI(7);
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
  const numChosen = selectLargest(rest, numCandidates, min<i32>(attributeI(6), numRest), work, chosen);
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

/** Tokens `[t0, t1)`, all in chunk `index`. */
function attendChunk(t0: i32, t1: i32, sequence: i32, kvHead: i32, index: i32): void {
  const first = index * chunk;
  const groupSize = dim(0, 1) / dim(3, 1);
  let last = 0;
  for (let t = t0; t < t1; t++) last = max<i32>(last, positionOfToken(t));
  numChunkRows = last + 1 - first;
  for (let j = 0; j < numChunkRows; j++) bringPosition(first + j, j, sequence, kvHead, chunkKeys, chunkValues, present);
  for (let e = 0; e < count; e++) {
    bringPosition(
      load<i32>(memoryAt + ((<usize>e) << 2)),
      e,
      sequence,
      kvHead,
      memoryKeys,
      memoryValues,
      memoryPresent,
    );
  }
  const headTile = min<i32>(groupSize, TILE);
  const tokenTile = max<i32>(1, TILE / headTile);
  for (let t = t0; t < t1; t += tokenTile) {
    for (let h = 0; h < groupSize; h += headTile) {
      const head = kvHead * groupSize + h;
      openPanels(t, min<i32>(t1, t + tokenTile), head, min<i32>((kvHead + 1) * groupSize, head + headTile));
      const numOwn = numPanels;
      for (let panel = 0; panel < numOwn; panel++) {
        clearPanel(numOwn + panel);
        attendRows(panel, panel, chunkKeys, chunkValues, first);
        attendRows(panel, numOwn + panel, memoryKeys, memoryValues, -1);
        const shift = firstLaneOf(numOwn + panel) - firstLaneOf(panel);
        writePanel(panel, shift, kvHead);
        if (!hasMass) continue;
        for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
          mergeLane(lane, maximumOfLane(lane + shift), sumOfLane(lane + shift));
        }
        measureRows(panel, chunkKeys, first, kvHead);
        measureRows(panel, memoryKeys, -1, kvHead);
      }
    }
  }
}

/** Scores of a panel with the chunk that begins at `first`, or with the memory (-1); returns the number of rows. */
function scorePanel(panel: i32, keys: usize, first: i32): i32 {
  let low = i32.MAX_VALUE;
  let high = 0;
  for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
    low = min<i32>(low, positionOfLane(lane));
    high = max<i32>(high, positionOfLane(lane));
  }
  const isMemory = first < 0;
  const rows = isMemory ? count : min<i32>(numChunkRows, high + 1 - first);
  if (rows <= 0) return 0;
  scoreRows(panel, keys, rows, 0);
  capRows(rows);
  const flags = isMemory ? memoryPresent : present;
  for (let j = 0; j < rows; j++) {
    const position = isMemory ? load<i32>(memoryAt + ((<usize>j) << 2)) : first + j;
    if (load<i32>(flags + ((<usize>j) << 2)) === 0) dropRow(j);
    else if (position > low || high - position > reach) hideRow(panel, j, position, 0, reach);
  }
  return rows;
}

/** Masses of the same rows in the softmax over both. */
function measureRows(panel: i32, keys: usize, first: i32, kvHead: i32): void {
  const rows = scorePanel(panel, keys, first);
  if (rows > 0) addMassOfRows(panel, rows, kvHead, first < 0 ? memoryAt : 0, first);
}

/** A panel meets the chunk or the memory in a softmax of its own; weights go to the scores. */
function attendRows(panel: i32, statePanel: i32, keys: usize, values: usize, first: i32): void {
  const begin = firstLaneOf(panel);
  const end = lastLaneOf(panel);
  const isMemory = first < 0;
  const rows = scorePanel(panel, keys, first);
  if (rows <= 0) return;
  weighRows(statePanel, rows);
  const scores = isMemory ? memoryWeights : chunkWeights;
  let low4 = f32x4.splat(0);
  let high4 = f32x4.splat(0);
  const stride = outputStride();
  for (let lane = begin; lane < end; lane++) {
    const sum = sumOfLane(firstLaneOf(statePanel) + lane - begin);
    const inverse: f32 = sum === 0 ? 0 : 1 / sum;
    const i = lane - begin;
    if (i < 4) low4 = withLane(low4, i, inverse);
    else high4 = withLane(high4, i - 4, inverse);
  }
  for (let j = 0; j < rows; j++) {
    const at = logitsOf(j);
    let v = f32x4.mul(v128.load(at), low4);
    if (stride === 32) v = f32x4.add(v, f32x4.mul(v128.load(at, 16), high4));
    const weight =
      f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
    const to = scores + ((<usize>j) << 2);
    store<f32>(to, load<f32>(to) + weight);
  }
  sumRows(statePanel, values, rows, 0);
}

/** Merges the softmaxes of chunk and memory; `shift` lanes lie between them. */
function writePanel(panel: i32, shift: i32, kvHead: i32): void {
  const stride = outputStride();
  const numHeads = dim(0, 1);
  for (let lane = firstLaneOf(panel); lane < lastLaneOf(panel); lane++) {
    const token = tokenOfLane(lane);
    const a = maximumOfLane(lane);
    const b = maximumOfLane(lane + shift);
    const top = max<f32>(a, b);
    const factorA: f32 = a === -Infinity ? 0 : <f32>Math.exp(<f64>a - <f64>top);
    const factorB: f32 = b === -Infinity ? 0 : <f32>Math.exp(<f64>b - <f64>top);
    const sum = sumOfLane(lane) * factorA + sumOfLane(lane + shift) * factorB;
    const inverse: f32 = sum === 0 ? 0 : 1 / sum;
    const from = outputOfLane(lane);
    const memoryFrom = outputOfLane(lane + shift);
    const y = addressOf(14) + <usize>(token * numHeads + headOfLane(lane)) * ((<usize>valueDim) << 2);
    for (let i: usize = 0; i < <usize>valueDim; i++) {
      const value = load<f32>(from + i * stride) * factorA + load<f32>(memoryFrom + i * stride) * factorB;
      store<f32>(y + (i << 2), value * inverse);
    }
    if (headOfLane(lane) === kvHead * (numHeads / dim(3, 1))) countPairs(token, positionOfLane(lane), kvHead);
  }
}

function countPairs(token: i32, position: i32, kvHead: i32): void {
  const first = (position / chunk) * chunk;
  let numKeys = 0;
  for (let j = first; j <= position; j++) {
    if (position - j <= reach) numKeys += load<i32>(present + ((<usize>(j - first)) << 2));
  }
  for (let e = 0; e < count; e++) {
    const at = (<usize>e) << 2;
    if (position - load<i32>(memoryAt + at) <= reach) numKeys += load<i32>(memoryPresent + at);
  }
  store<i32>(addressOf(15) + ((<usize>(token * dim(3, 1) + kvHead)) << 2), numKeys);
}
