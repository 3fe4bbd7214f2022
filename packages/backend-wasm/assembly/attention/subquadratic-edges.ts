/**
 * The keys of a query outside of its window: globals, distances 1, 2, 4, ..., and landmarks, listed query by query. Logical
 * slot `j` of a sequence holds position `j`, or is empty.
 */
import * as cache from './kv-cache-view';
import { ENTRY_BYTES, setEntry } from './online-softmax-row';
import * as op from '../operands/subquadratic-attention.generated';
import { rowPairBytes } from './scratch-sizes';

/** Maximum number of edges: globals, distances in two directions, landmarks in two directions. */
const MAX_EDGES: i32 = 160;
const MAX_GLOBALS: i32 = 16;

/** Keys up to this distance are in the window. */
export let local: i32 = 0;
export let hasStride: bool = false;
/** Tokens of a landmark's block. */
export let partSize: i32 = 1;
/** The list, for `pushRows`. */
export let edgeEntries: usize = 0;
export let numGlobals: i32 = 0;

let isCausal: bool = true;
let landmarks: i32 = 0;
let numParts: i32 = 1;
let edgeKeys: usize = 0;
let edgeValues: usize = 0;
let edgeSlots: usize = 0; // i32, -1 for landmarks
let globals: usize = 0;

// the current run of tokens
export let sequence: i32 = 0;
export let context: i32 = 0;
export let kvHead: i32 = 0;

/** Reads the attributes of `subquadratic-attention` and lays out scratch: the list, rows, globals. Returns its end. */
export function layEdges(scratch: usize): usize {
  isCausal = op.attributes.causal;
  local = min<i32>(op.attributes.local, i32.MAX_VALUE - 1); // so that local + 1 does not overflow
  hasStride = op.attributes.logStride;
  landmarks = op.attributes.landmarks;
  numParts = landmarks === 0 ? 1 : op.keyMeans.numParts;
  partSize = cache.blockSize / numParts;
  edgeEntries = scratch;
  edgeKeys = edgeEntries + <usize>MAX_EDGES * ENTRY_BYTES;
  edgeValues = edgeKeys + <usize>MAX_EDGES * cache.keyStride;
  globals = edgeValues + <usize>MAX_EDGES * cache.valueStride;
  edgeSlots = globals + <usize>MAX_GLOBALS * 4;
  numGlobals = 0;
  for (let i = 0; i < MAX_GLOBALS; i++) {
    const global = op.attributes.global(i);
    if (global < 0 || isGlobal(global)) continue;
    store<i32>(globals + ((<usize>numGlobals) << 2), global);
    numGlobals += 1;
  }
  return edgeSlots + <usize>MAX_EDGES * 4;
}

/** Starts a run of queries of one sequence and one KV head. */
export function openRun(sequenceOfRun: i32, head: i32): void {
  sequence = sequenceOfRun;
  context = cache.contextOfSequence(sequence);
  kvHead = head;
}

/** The logical slot of an entry, -1 for a landmark. */
export function slotOfEdge(entry: i32): i32 {
  return load<i32>(edgeSlots + ((<usize>entry) << 2));
}

export function globalAt(index: i32): i32 {
  return load<i32>(globals + ((<usize>index) << 2));
}
export function isGlobal(position: i32): bool {
  for (let i = 0; i < numGlobals; i++) if (globalAt(i) === position) return true;
  return false;
}

/** Whether the cache holds a position. */
export function isThere(position: i32): bool {
  return position >= 0 && position < context && cache.positionAt(cache.slotIndex(sequence, position)) === position;
}

/** The first distance of a power of two beyond the window. */
export function firstStride(): i32 {
  return local < 1 ? 1 : 1 << (32 - clz(local));
}

/** Lists a token as entry `count` unless its slot is empty; returns the new count. */
export function listSlot(position: i32, count: i32): i32 {
  if (!isThere(position)) return count;
  const index = cache.slotIndex(sequence, position);
  const keyAt = cache.keyOf(index, kvHead, edgeKeys + <usize>count * cache.keyStride);
  setEntry(edgeEntries, count, keyAt, cache.valueOf(index, kvHead, edgeValues + <usize>count * cache.valueStride), 0);
  store<i32>(edgeSlots + ((<usize>count) << 2), position);
  return count + 1;
}

/**
 * Lists the keys outside of the window, except landmarks and globals that are rows of panels; returns their number.
 */
export function listEdges(query: i32, hasPanels: bool, hasGlobalsInPanels: bool): i32 {
  let count = 0;
  for (let i = 0; i < numGlobals && !hasGlobalsInPanels; i++) count = addToken(globalAt(i), query, count);
  const farthest = max<i32>(query, context - 1 - query);
  for (let s = firstStride(); hasStride && s <= farthest && s > 0; s <<= 1) {
    if (!isGlobal(query - s)) count = addToken(query - s, query, count);
    if (!isCausal && !isGlobal(query + s)) count = addToken(query + s, query, count);
  }
  return landmarks === 0 || hasPanels ? count : listLandmarks(query, count);
}

/** Appends the landmarks of a query; returns the new count. */
export function listLandmarks(query: i32, count: i32): i32 {
  const farthest = max<i32>(query, context - 1 - query);
  const pivot = isCausal ? (query + 1) / partSize - 1 : query / partSize;
  if (isCausal) count = addLandmark(pivot, query, count);
  for (let s = 1; s === 1 || (hasStride && s <= farthest / partSize + 1 && s > 0); s <<= 1) {
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
  if (block < 0 || first >= context) return count;
  const last = min<i32>(context, first + partSize) - 1;
  if (isCausal && last !== first + partSize - 1) return count;
  if (!isAllowed(query, first) || !isAllowed(query, last)) return count;
  if (landmarks === 2 && isCovered(query, first, last)) return count;
  const part = cache.cacheBlock(sequence, first) * numParts + (block % numParts);
  const summary = <usize>(part * cache.numKvHeads + kvHead);
  if (load<i32>(op.meanCounts.address + (summary << 2)) !== last - first + 1) return count;
  const bias: f32 = !op.attributes.logCount ? 0 : <f32>Math.log(<f64>(last - first + 1));
  setEntry(
    edgeEntries,
    count,
    op.keyMeans.address + summary * cache.keyStride,
    op.valueMeans.address + summary * cache.valueStride,
    bias,
  );
  store<i32>(edgeSlots + ((<usize>count) << 2), -1);
  return count + 1;
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
    if (hasStride && (distance & (distance - 1)) === 0) continue;
    if (!isGlobal(j)) return false;
  }
  return true;
}

/** What `layEdges` lays out. */
export function edgesBytes(): u64 {
  return MAX_EDGES * (ENTRY_BYTES + rowPairBytes() + 4) + MAX_GLOBALS * 4;
}
