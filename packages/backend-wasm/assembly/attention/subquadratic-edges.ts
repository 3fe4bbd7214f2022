/** The keys of a query outside of its window: globals, distances 1, 2, 4, ..., landmarks; found anew for each query. */
import {
  cacheBlock,
  isPlain,
  keyOf,
  keyRowAt,
  modelReach,
  positionAt,
  slotIndex,
  valueOf,
  valueRowAt,
} from './kv-cache-view';
import { addressOf, attributeI, dim } from '../runtime/record';
import { ENTRY_BYTES, setEntry } from './online-softmax-row';

/** Most of them: globals, two sides of distances, two sides of landmarks. */
const MAX_EDGES: i32 = 160;
const MAX_GLOBALS: i32 = 16;

let isCausal: bool = true;
let local: i32 = 0;
let reach: i32 = 0; // of the model
let landmarks: i32 = 0;
let partSize: i32 = 1;
let numParts: i32 = 1;
let headDim: i32 = 0;
let valueDim: i32 = 0;
let hasStride: bool = false;
let entries: usize = 0;
let edgeKeys: usize = 0;
let edgeValues: usize = 0;
let edgeSlots: usize = 0; // i32, -1 for landmarks
let globals: usize = 0;
let numGlobals: i32 = 0;

/** Reads the attributes of `subquadratic-attention` and lays out scratch: the list, rows, globals. Returns its end. */
export function layEdges(scratch: usize): usize {
  isCausal = attributeI(1) !== 0;
  local = attributeI(4);
  hasStride = attributeI(5) !== 0;
  landmarks = attributeI(6);
  reach = modelReach();
  headDim = dim(0, 2);
  valueDim = dim(4, 3);
  numParts = landmarks === 0 ? 1 : dim(8, 1);
  partSize = dim(3, 2) / numParts;
  entries = scratch;
  edgeKeys = entries + <usize>MAX_EDGES * ENTRY_BYTES;
  edgeValues = edgeKeys + <usize>MAX_EDGES * ((<usize>headDim) << 2);
  globals = edgeValues + <usize>MAX_EDGES * ((<usize>valueDim) << 2);
  edgeSlots = globals + <usize>MAX_GLOBALS * 4;
  numGlobals = 0;
  for (let i = 0; i < MAX_GLOBALS; i++) {
    const global = attributeI(8 + i);
    if (global < 0 || isGlobal(global)) continue;
    store<i32>(globals + ((<usize>numGlobals) << 2), global);
    numGlobals += 1;
  }
  return edgeSlots + <usize>MAX_EDGES * 4;
}

/** The list, for `pushRows`. */
export function edgeEntries(): usize {
  return entries;
}

/** The logical slot of an entry, -1 for a landmark. */
export function slotOfEdge(entry: i32): i32 {
  return load<i32>(edgeSlots + ((<usize>entry) << 2));
}

/** Tokens of a landmark's block. */
export function landmarkSize(): i32 {
  return partSize;
}

/** Lists a token whatever its place, as entry `count`, unless its slot holds something else; returns the new count. */
export function listSlot(key: i32, sequence: i32, kvHead: i32, count: i32): i32 {
  const index = slotIndex(sequence, key);
  if (positionAt(index) !== key) return count;
  const keyAt = keyOf(index, kvHead, edgeKeys + <usize>count * ((<usize>headDim) << 2));
  const valueAt = valueOf(index, kvHead, edgeValues + <usize>count * ((<usize>valueDim) << 2));
  setEntry(entries, count, keyAt, valueAt, 0);
  store<i32>(edgeSlots + ((<usize>count) << 2), key);
  return count + 1;
}

/** The globals' number, and one of them. */
export function countGlobals(): i32 {
  return numGlobals;
}
export function globalAt(index: i32): i32 {
  return load<i32>(globals + ((<usize>index) << 2));
}

/**
 * Lists the keys outside of the window, without landmarks and without globals where these are in panels, and returns their
 * number.
 */
export function listEdges(
  position: i32,
  sequence: i32,
  context: i32,
  kvHead: i32,
  inPanels: bool,
  hasGlobalsInPanels: bool,
): i32 {
  let count = 0;
  if (inPanels && hasGlobalsInPanels && isPlain()) return listDistances(position, sequence, context, kvHead);
  for (let i = 0; i < numGlobals && !hasGlobalsInPanels; i++) {
    const global = load<i32>(globals + ((<usize>i) << 2));
    count = addToken(global, position, sequence, context, kvHead, count);
  }
  const farthest = max<i32>(position, context - 1 - position);
  if (hasStride) {
    // the first power of two beyond the window
    for (let s = local < 1 ? 1 : 1 << (32 - clz(local)); s <= farthest && s > 0; s <<= 1) {
      if (position >= s && !isGlobal(position - s)) {
        count = addToken(position - s, position, sequence, context, kvHead, count);
      }
      if (!isCausal && !isGlobal(position + s)) {
        count = addToken(position + s, position, sequence, context, kvHead, count);
      }
    }
  }
  if (landmarks === 0 || inPanels) return count;
  return listLandmarks(position, sequence, context, kvHead, count);
}

/** The distances alone, of a causal model without a window of its own, where rows of the cache are f32. */
function listDistances(position: i32, sequence: i32, context: i32, kvHead: i32): i32 {
  if (!hasStride) return 0;
  let count = 0;
  let at = entries;
  for (let s = local < 1 ? 1 : 1 << (32 - clz(local)); s <= position && s > 0; s <<= 1) {
    const key = position - s;
    if (key >= context || isGlobal(key)) continue;
    const index = slotIndex(sequence, key);
    if (positionAt(index) !== key) continue;
    store<u32>(at, <u32>keyRowAt(index, kvHead));
    store<u32>(at, <u32>valueRowAt(index, kvHead), 4);
    store<f32>(at, 0, 8);
    store<i32>(edgeSlots + ((<usize>count) << 2), key);
    at += ENTRY_BYTES;
    count += 1;
  }
  return count;
}

export function listLandmarks(position: i32, sequence: i32, context: i32, kvHead: i32, begin: i32): i32 {
  let count = begin;
  const farthest = max<i32>(position, context - 1 - position);
  const pivot = isCausal ? (position + 1) / partSize - 1 : position / partSize;
  if (isCausal) count = addLandmark(pivot, position, sequence, context, kvHead, count);
  for (let s = 1; s === 1 || (hasStride && s <= farthest / partSize + 1 && s > 0); s <<= 1) {
    count = addLandmark(pivot - s, position, sequence, context, kvHead, count);
    if (!isCausal) count = addLandmark(pivot + s, position, sequence, context, kvHead, count);
  }
  return count;
}

export function isGlobal(position: i32): bool {
  for (let i = 0; i < numGlobals; i++) if (load<i32>(globals + ((<usize>i) << 2)) === position) return true;
  return false;
}

/** Whether the model lets the query see a position. */
function isVisible(position: i32, key: i32): bool {
  const distance = position - key;
  return isCausal ? distance >= 0 && distance <= reach : abs<i32>(distance) <= reach;
}

function addToken(key: i32, position: i32, sequence: i32, context: i32, kvHead: i32, count: i32): i32 {
  if (key < 0 || key >= context || abs<i32>(position - key) <= local || !isVisible(position, key)) return count;
  return listSlot(key, sequence, kvHead, count);
}

function addLandmark(block: i32, position: i32, sequence: i32, context: i32, kvHead: i32, count: i32): i32 {
  const first = block * partSize;
  if (block < 0 || first >= context) return count;
  const last = min<i32>(context, first + partSize) - 1;
  if (isCausal && last !== first + partSize - 1) return count;
  if (!isVisible(position, first) || !isVisible(position, last)) return count;
  if (landmarks === 2 && isCovered(position, first, last)) return count;
  const part = cacheBlock(sequence, first) * numParts + (block % numParts);
  const summary = <usize>(part * dim(3, 1) + kvHead);
  if (load<i32>(addressOf(10) + (summary << 2)) !== last - first + 1) return count;
  const bias: f32 = attributeI(7) === 0 ? 0 : <f32>Math.log(<f64>(last - first + 1));
  const key = addressOf(8) + summary * ((<usize>headDim) << 2);
  setEntry(entries, count, key, addressOf(9) + summary * ((<usize>valueDim) << 2), bias);
  store<i32>(edgeSlots + ((<usize>count) << 2), -1);
  return count + 1;
}

/** Whether every token of a block is a key of its own. */
function isCovered(position: i32, first: i32, last: i32): bool {
  for (let j = first; j <= last; j++) {
    const distance = abs<i32>(position - j);
    if (distance <= local) {
      // the window covers up to here
      if (j < position) j = min<i32>(last, position);
      continue;
    }
    if (hasStride && (distance & (distance - 1)) === 0) continue;
    if (!isGlobal(j)) return false;
  }
  return true;
}
