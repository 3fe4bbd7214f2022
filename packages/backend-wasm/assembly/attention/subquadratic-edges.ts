/**
 * The keys of a query outside of its window: globals, distances 1, 2, 4, ..., and landmarks, listed query by query. Logical
 * slot `j` of a sequence holds position `j`, or is empty.
 */
import * as cache from './kv-cache-view';
import { LIST_BYTES, LIST_ROWS, setRow } from './online-softmax-row';
import * as op from '../operands/subquadratic-attention.generated';
import { intAt, setInt } from '../runtime/arrays';
import * as tile from './query-tiles';

const MAX_GLOBALS: i32 = 16;

/** Keys up to this distance are in the window. */
export let local: i32 = 0;
/** Tokens of a landmark's block. */
export let partSize: i32 = 1;
/** The list for `pushRows`: globals, distances in two directions, landmarks in two directions. */
export let edgeList: usize = 0;
export let numGlobals: i32 = 0;

let numParts: i32 = 1;
let edgeKeys: usize = 0;
let edgeValues: usize = 0;
let edgeSlots: usize = 0; // i32, -1 for landmarks
let globals: usize = 0;

/** Lays out scratch, the list, rows and globals, and returns its end. */
export function layEdges(scratch: usize): usize {
  edgeList = scratch;
  edgeKeys = edgeList + LIST_BYTES;
  edgeValues = edgeKeys + <usize>LIST_ROWS * cache.keyStride;
  globals = edgeValues + <usize>LIST_ROWS * cache.valueStride;
  edgeSlots = globals + <usize>MAX_GLOBALS * 4;
  return edgeSlots + <usize>LIST_ROWS * 4;
}

/** Reads the attributes of the record. */
export function enterEdges(): void {
  local = min<i32>(op.attributes.local, i32.MAX_VALUE - 1); // so that local + 1 does not overflow
  numParts = op.attributes.landmarks === 0 ? 1 : op.keyMeans.numParts;
  partSize = cache.blockSize / numParts;
  numGlobals = 0;
  for (let i = 0; i < MAX_GLOBALS; i++) {
    const global = op.attributes.global(i);
    if (global < 0 || isGlobal(global)) continue;
    setInt(globals, numGlobals, global);
    numGlobals += 1;
  }
}

/** The logical slot of a row of the list, -1 for a landmark. */
export function slotOfEdge(row: i32): i32 {
  return intAt(edgeSlots, row);
}

export function globalAt(index: i32): i32 {
  return intAt(globals, index);
}
export function isGlobal(position: i32): bool {
  for (let i = 0; i < numGlobals; i++) if (globalAt(i) === position) return true;
  return false;
}

/** Whether the cache holds a position. */
export function isThere(position: i32): bool {
  return cache.indexOfPosition(tile.sequence, position) >= 0;
}

/** The first distance of a power of two beyond the window. */
export function firstStride(): i32 {
  return local < 1 ? 1 : 1 << (32 - clz(local));
}

/** Lists a token as row `count` unless its slot is empty; returns the new count. */
function listSlot(position: i32, count: i32): i32 {
  const index = cache.indexOfPosition(tile.sequence, position);
  if (index < 0) return count;
  const key = cache.keysOf(index, tile.kvHead, 1, edgeKeys + <usize>count * cache.keyStride);
  const value = cache.valuesOf(index, tile.kvHead, 1, edgeValues + <usize>count * cache.valueStride);
  return listEdge(count, key, value, 0, position);
}

function listEdge(count: i32, key: usize, value: usize, bias: f32, slot: i32): i32 {
  setRow(edgeList, count, key, value, bias);
  setInt(edgeSlots, count, slot);
  return count + 1;
}

/** Lists the keys outside of the window, except landmarks and globals that are rows of panels; returns their number. */
export function listEdges(query: i32, hasPanels: bool, hasGlobalsInPanels: bool): i32 {
  let count = 0;
  for (let i = 0; i < numGlobals && !hasGlobalsInPanels; i++) count = addToken(globalAt(i), query, count);
  const farthest = max<i32>(query, tile.context - 1 - query);
  for (let s = firstStride(); op.attributes.logStride && s <= farthest && s > 0; s <<= 1) {
    if (!isGlobal(query - s)) count = addToken(query - s, query, count);
    if (!op.attributes.causal && !isGlobal(query + s)) count = addToken(query + s, query, count);
  }
  return op.attributes.landmarks === 0 || hasPanels ? count : listLandmarks(query, count);
}

/** Appends the landmarks of a query; returns the new count. */
export function listLandmarks(query: i32, count: i32): i32 {
  const farthest = max<i32>(query, tile.context - 1 - query);
  const isCausal = op.attributes.causal;
  const pivot = isCausal ? (query + 1) / partSize - 1 : query / partSize;
  if (isCausal) count = addLandmark(pivot, query, count);
  for (let s = 1; s === 1 || (op.attributes.logStride && s <= farthest / partSize + 1 && s > 0); s <<= 1) {
    count = addLandmark(pivot - s, query, count);
    if (!isCausal) count = addLandmark(pivot + s, query, count);
  }
  return count;
}

/** Whether the model lets the query see a position. */
function isAllowed(query: i32, position: i32): bool {
  return query - position >= cache.minDistance && query - position <= cache.maxDistance;
}

function addToken(position: i32, query: i32, count: i32): i32 {
  if (position < 0 || abs<i32>(query - position) <= local || !isAllowed(query, position)) return count;
  return listSlot(position, count);
}

function addLandmark(block: i32, query: i32, count: i32): i32 {
  const first = block * partSize;
  if (block < 0 || first >= tile.context) return count;
  const last = min<i32>(tile.context, first + partSize) - 1;
  if (op.attributes.causal && last !== first + partSize - 1) return count;
  if (!isAllowed(query, first) || !isAllowed(query, last)) return count;
  if (op.attributes.landmarks === 2 && isCovered(query, first, last)) return count;
  const part = cache.cacheBlock(tile.sequence, first) * numParts + (block % numParts);
  const summary = <usize>(part * cache.numKvHeads + tile.kvHead);
  if (load<i32>(op.meanCounts.address + (summary << 2)) !== last - first + 1) return count;
  const bias: f32 = !op.attributes.logCount ? 0 : <f32>Math.log(<f64>(last - first + 1));
  const key = op.keyMeans.address + summary * cache.keyStride;
  return listEdge(count, key, op.valueMeans.address + summary * cache.valueStride, bias, -1);
}

/** Whether the query sees every token of a block as a key. */
function isCovered(query: i32, first: i32, last: i32): bool {
  for (let j = first; j <= last; j++) {
    const distance = abs<i32>(query - j);
    if (distance <= local) {
      // skip to the end of the window
      if (j < query) j = min<i32>(last, query);
      continue;
    }
    if (op.attributes.logStride && (distance & (distance - 1)) === 0) continue;
    if (!isGlobal(j)) return false;
  }
  return true;
}
