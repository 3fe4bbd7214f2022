/**
 * Chunked prefill with a memory of heavy hitters, fused: chunk and memory of a panel of queries are two softmaxes, whose
 * weights give the scores, merged when the output is written. Units: (sequence, KV head); chunks follow each other inside.
 * Tensors: as in `cache-view.ts`, 8 stateFrom, 9 stateTo, 10 memory, 11 memoryScores, 12 chunkScores, 13 progress, 14 y,
 * 15 pairs, 16 mass. Attributes: 4 chunk, 5 local, 6 heavy, 7 sinks.
 */
import {
  contextOfSequence,
  enterCache,
  keyOf,
  modelReach,
  positionAt,
  positionOfToken,
  runEnd,
  sequenceOfToken,
  slotIndex,
  valueOf,
} from '../cache-view';
import { addMassOfRows, clearMass, enterMass } from '../key-mass';
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
} from '../query-panels';
import { addressOf, attributeI, dim, localScratch } from '../record';
import { selectLargest } from '../select';
import { takeUnits } from '../threads';

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
let memoryAt: usize = 0; // i32 [E]
let scoresAt: usize = 0; // f32 [E]
let sumsAt: usize = 0; // f32 [U]

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
  const both = <usize>(chunk + capacity) << 2;
  memoryAt = layPanels(localScratch(), max<i32>(chunk, capacity));
  scoresAt = memoryAt + (<usize>capacity << 2);
  sumsAt = scoresAt + (<usize>capacity << 2);
  present = sumsAt + (<usize>chunk << 2);
  memoryPresent = present + (<usize>chunk << 2);
  candidates = memoryPresent + (<usize>capacity << 2);
  candidateScores = candidates + both;
  rest = candidateScores + both;
  work = rest + both;
  chosen = work + both;
  chunkKeys = chosen + both;
  chunkValues = chunkKeys + <usize>chunk * (<usize>headDim << 2);
  memoryKeys = chunkValues + <usize>chunk * (<usize>valueDim << 2);
  memoryValues = memoryKeys + <usize>capacity * (<usize>headDim << 2);
  const numTokens = dim(0, 0);
  // sequences are runs of tokens: count them, then take (run, head) in turn
  let numRuns = 0;
  for (let t = 0; t < numTokens; t = runEnd(t, numTokens)) numRuns += 1;
  const numUnits = numRuns * numKvHeads;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    let begin = 0;
    for (let run = unit / numKvHeads; run > 0; run--) begin = runEnd(begin, numTokens);
    advance(begin, runEnd(begin, numTokens), unit % numKvHeads);
  }
}

/** Tokens `[begin, end)` of one sequence. */
function advance(begin: i32, end: i32, kvHead: i32): void {
  const sequence = sequenceOfToken(begin);
  const from = load<i32>(addressOf(8) + (<usize>sequence << 2));
  const to = load<i32>(addressOf(9) + (<usize>sequence << 2));
  const numKvHeads = dim(3, 1);
  clearMass(begin, end, kvHead);
  next = 0;
  count = 0;
  memory.fill(sumsAt, 0, <usize>chunk << 2);
  if (from >= 0 && positionOfToken(begin) != 0) {
    const row = <usize>(from * numKvHeads + kvHead);
    next = load<i32>(addressOf(13) + (row << 3));
    count = load<i32>(addressOf(13) + (row << 3), 4);
    memory.copy(memoryAt, addressOf(10) + row * (<usize>capacity << 2), <usize>count << 2);
    memory.copy(scoresAt, addressOf(11) + row * (<usize>capacity << 2), <usize>count << 2);
    memory.copy(sumsAt, addressOf(12) + row * (<usize>chunk << 2), <usize>chunk << 2);
  }
  for (let t = begin; t < end; ) {
    const index = positionOfToken(t) / chunk;
    let last = t + 1;
    while (last < end && positionOfToken(last) / chunk == index) last++;
    reachPosition(positionOfToken(t));
    attendChunk(t, last, sequence, kvHead, index);
    reachPosition(positionOfToken(last - 1) + 1);
    t = last;
  }
  const row = <usize>(to * numKvHeads + kvHead);
  store<i32>(addressOf(13) + (row << 3), next);
  store<i32>(addressOf(13) + (row << 3), count, 4);
  const positions = addressOf(10) + row * (<usize>capacity << 2);
  const scores = addressOf(11) + row * (<usize>capacity << 2);
  for (let e = 0; e < capacity; e++) {
    const at = <usize>e << 2;
    store<i32>(positions + at, e < count ? load<i32>(memoryAt + at) : -1);
    store<f32>(scores + at, e < count ? load<f32>(scoresAt + at) : 0);
  }
  memory.copy(addressOf(12) + row * (<usize>chunk << 2), sumsAt, <usize>chunk << 2);
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
    const at = <usize>i << 2;
    const inChunk = <usize>(i - count) << 2;
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
    const at = <usize>i << 2;
    const isChosen = nextChosen < numChosen && load<i32>(chosen + (<usize>nextChosen << 2)) == i;
    if (isChosen) nextChosen += 1;
    if (!isChosen && load<f32>(rest + at) != -Infinity) continue;
    const to = <usize>count << 2;
    store<i32>(memoryAt + to, load<i32>(candidates + at));
    store<f32>(scoresAt + to, load<f32>(candidateScores + at));
    count += 1;
  }
  memory.fill(sumsAt, 0, <usize>chunk << 2);
}

/** Tokens `[t0, t1)`, all in chunk `index`. */
function attendChunk(t0: i32, t1: i32, sequence: i32, kvHead: i32, index: i32): void {
  const first = index * chunk;
  const groupSize = dim(0, 1) / dim(3, 1);
  let last = 0;
  for (let t = t0; t < t1; t++) last = max<i32>(last, positionOfToken(t));
  numChunkRows = last + 1 - first;
  for (let j = 0; j < numChunkRows; j++) bring(first + j, j, sequence, kvHead, chunkKeys, chunkValues, present);
  for (let e = 0; e < count; e++) {
    bring(load<i32>(memoryAt + (<usize>e << 2)), e, sequence, kvHead, memoryKeys, memoryValues, memoryPresent);
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

/** Brings key and value of a position to row `row`. */
function bring(position: i32, row: i32, sequence: i32, kvHead: i32, keys: usize, values: usize, flags: usize): void {
  let isThere = position < contextOfSequence(sequence);
  const index = isThere ? slotIndex(sequence, position) : 0;
  if (isThere) isThere = positionAt(index) == position;
  store<i32>(flags + (<usize>row << 2), isThere ? 1 : 0);
  const keyTo = keys + <usize>row * (<usize>headDim << 2);
  const valueTo = values + <usize>row * (<usize>valueDim << 2);
  if (!isThere) {
    memory.fill(keyTo, 0, <usize>headDim << 2);
    memory.fill(valueTo, 0, <usize>valueDim << 2);
    return;
  }
  const key = keyOf(index, kvHead, keyTo);
  if (key != keyTo) memory.copy(keyTo, key, <usize>headDim << 2);
  const value = valueOf(index, kvHead, valueTo);
  if (value != valueTo) memory.copy(valueTo, value, <usize>valueDim << 2);
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
    const position = isMemory ? load<i32>(memoryAt + (<usize>j << 2)) : first + j;
    if (load<i32>(flags + (<usize>j << 2)) == 0) dropRow(j);
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
  const scores = isMemory ? scoresAt : sumsAt;
  let low4 = f32x4.splat(0);
  let high4 = f32x4.splat(0);
  const stride = outputStride();
  for (let lane = begin; lane < end; lane++) {
    const sum = sumOfLane(firstLaneOf(statePanel) + lane - begin);
    const inverse: f32 = sum == 0 ? 0 : 1 / sum;
    const i = lane - begin;
    if (i == 0) low4 = f32x4.replace_lane(low4, 0, inverse);
    else if (i == 1) low4 = f32x4.replace_lane(low4, 1, inverse);
    else if (i == 2) low4 = f32x4.replace_lane(low4, 2, inverse);
    else if (i == 3) low4 = f32x4.replace_lane(low4, 3, inverse);
    else if (i == 4) high4 = f32x4.replace_lane(high4, 0, inverse);
    else if (i == 5) high4 = f32x4.replace_lane(high4, 1, inverse);
    else if (i == 6) high4 = f32x4.replace_lane(high4, 2, inverse);
    else high4 = f32x4.replace_lane(high4, 3, inverse);
  }
  for (let j = 0; j < rows; j++) {
    const at = logitsOf(j);
    let v = f32x4.mul(v128.load(at), low4);
    if (stride == 32) v = f32x4.add(v, f32x4.mul(v128.load(at, 16), high4));
    const weight =
      f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
    const to = scores + (<usize>j << 2);
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
    const factorA: f32 = a == -Infinity ? 0 : <f32>Math.exp(<f64>a - <f64>top);
    const factorB: f32 = b == -Infinity ? 0 : <f32>Math.exp(<f64>b - <f64>top);
    const sum = sumOfLane(lane) * factorA + sumOfLane(lane + shift) * factorB;
    const inverse: f32 = sum == 0 ? 0 : 1 / sum;
    const from = outputOfLane(lane);
    const memoryFrom = outputOfLane(lane + shift);
    const y = addressOf(14) + <usize>(token * numHeads + headOfLane(lane)) * (<usize>valueDim << 2);
    for (let i: usize = 0; i < <usize>valueDim; i++) {
      const value = load<f32>(from + i * stride) * factorA + load<f32>(memoryFrom + i * stride) * factorB;
      store<f32>(y + (i << 2), value * inverse);
    }
    if (headOfLane(lane) == kvHead * (numHeads / dim(3, 1))) countPairs(token, positionOfLane(lane), kvHead);
  }
}

function countPairs(token: i32, position: i32, kvHead: i32): void {
  const first = (position / chunk) * chunk;
  let numKeys = 0;
  for (let j = first; j <= position; j++) {
    if (position - j <= reach) numKeys += load<i32>(present + (<usize>(j - first) << 2));
  }
  for (let e = 0; e < count; e++) {
    const at = <usize>e << 2;
    if (position - load<i32>(memoryAt + at) <= reach) numKeys += load<i32>(memoryPresent + at);
  }
  store<i32>(addressOf(15) + (<usize>(token * dim(3, 1) + kvHead) << 2), numKeys);
}
