/** Query tiles: tokens of one sequence times query heads of one KV head. Each key and value is read once per tile. */
import { intAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { clearMass, hasMass } from './key-mass';
import * as cache from './kv-cache-view';
import * as panels from './query-panels';

/** The first token, and its position. */
export let token: i32 = 0;
export let position: i32 = 0;
export let sequence: i32 = 0;
export let context: i32 = 0;
export let kvHead: i32 = 0;
/** Heads `[firstHead, lastHead)` are the current group. */
export let firstHead: i32 = 0;
let lastHead: i32 = 0;
/** The split of the context that the tile attends to. */
export let split: i32 = 0;

/** Sum of the touched numbers, stored so that the loads are not eliminated. */
let touched: i32 = 0;

/**
 * Calls `attend` for each tile, with its panels open and its masses cleared. Work items: (KV heads, token tile, split of the
 * context); one thread computes all head tiles of an item.
 * @param lastFirst whether to start with the last tokens, which see the most keys of a prompt
 */
export function attendTiles(headsOfItem: i32, numSplits: i32, lastFirst: bool, y: usize, attend: () => void): void {
  const tokenTile = tokensOfTile(panels.LANES);
  const numTokenTiles = (cache.numTokens + tokenTile - 1) / tokenTile;
  const numItems = numTokenTiles * numSplits * ((cache.numKvHeads + headsOfItem - 1) / headsOfItem);
  for (let item = nextItems(1); item < numItems; item = nextItems(1)) {
    split = item % numSplits;
    const rest = item / numSplits;
    const index = rest % numTokenTiles;
    const first = (lastFirst ? numTokenTiles - 1 - index : index) * tokenTile;
    const last = min<i32>(cache.numTokens, first + tokenTile);
    const begin = (rest / numTokenTiles) * headsOfItem;
    const end = min<i32>(cache.numKvHeads, begin + headsOfItem);
    if (headsOfItem > 1) {
      touchRows(cache.queryAt(0), first, last, begin * cache.groupSize, end * cache.groupSize, cache.headDim);
      touchRows(y, first, last, begin * cache.groupSize, end * cache.groupSize, cache.valueDim);
    }
    for (let head = begin; head < end; head++) {
      for (let t = first, end = first; t < last; t = end) {
        end = cache.runEnd(t, last, numSplits > 1);
        clearMass(t, end, head);
        attendTokens(t, end, head, panels.LANES, attend);
      }
    }
  }
}

/** Calls `attend` for tiles of at most `lanes` queries: tokens `[t0, t1)` of one sequence times the heads of a KV head. */
export function attendTokens(t0: i32, t1: i32, head: i32, lanes: i32, attend: () => void): void {
  openToken(t0, head);
  const end = (head + 1) * cache.groupSize;
  const tokenTile = tokensOfTile(lanes);
  for (let t = t0; t < t1; t += tokenTile) {
    for (let h = head * cache.groupSize; h < end; h += lanes) {
      openTile(t, min<i32>(t1, t + tokenTile), h, min<i32>(end, h + lanes), 0);
      attend();
    }
  }
}

/**
 * Calls `attend` for the listed tokens `[begin, end)`, at most a tile of tokens of one sequence, times the heads of a KV
 * head.
 */
export function attendListed(list: usize, begin: i32, end: i32, head: i32, attend: () => void): void {
  openToken(intAt(list, begin), head);
  split = 0;
  const lastOfGroup = (head + 1) * cache.groupSize;
  for (let h = head * cache.groupSize; h < lastOfGroup; h += panels.LANES) {
    openTile(begin, end, h, min<i32>(lastOfGroup, h + panels.LANES), list);
    attend();
  }
}

/**
 * Calls `attend` with the first head of each group of heads of each token. Work items: (token, group), or (token, KV head)
 * when masses are requested.
 */
export function attendGroups(groupSize: i32, attend: (firstHead: i32) => void): void {
  const headsOfItem = hasMass ? cache.groupSize : groupSize;
  const numItems = (cache.numTokens * cache.numHeads) / headsOfItem;
  split = 0;
  for (let item = nextItems(1); item < numItems; item = nextItems(1)) {
    const first = (item * headsOfItem) % cache.numHeads;
    openToken((item * headsOfItem) / cache.numHeads, first / cache.groupSize);
    clearMass(token, token + 1, kvHead);
    for (let head = first; head < first + headsOfItem; head += groupSize) {
      firstHead = head;
      lastHead = head + groupSize;
      attend(head);
    }
  }
}

/** Calls `attend` for each tile of the current token and group of heads. */
export function attendHeads(attend: () => void): void {
  for (let h = firstHead; h < lastHead; h += panels.LANES) {
    openTile(token, token + 1, h, min<i32>(lastHead, h + panels.LANES), 0);
    attend();
  }
}

/** Opens the panels of a tile, with the sinks in the first split. */
function openTile(t0: i32, t1: i32, h0: i32, h1: i32, list: usize): void {
  panels.openPanels(t0, t1, h0, h1, list);
  if (cache.sinkLogits !== 0 && split === 0) panels.addSinks();
}

function openToken(t: i32, head: i32): void {
  token = t;
  position = cache.positionOfToken(t);
  sequence = cache.sequenceOfToken(t);
  context = cache.contextOfSequence(sequence);
  kvHead = head;
}

/** Number of tokens in a tile of at most `lanes` queries. */
export function tokensOfTile(lanes: i32): i32 {
  return max<i32>(1, lanes / min<i32>(cache.groupSize, lanes));
}

/**
 * Touches every cache line of heads `[h0, h1)` in rows `[T, N, length]`: reading row by row is twice as fast as loading or
 * storing eight rows of one head at a time.
 */
function touchRows(rows: usize, t0: i32, t1: i32, h0: i32, h1: i32, length: i32): void {
  const stride = (<usize>(cache.numHeads * length)) << 2;
  const bytes = (<usize>((h1 - h0) * length)) << 2;
  let row = rows + <usize>t0 * stride + ((<usize>(h0 * length)) << 2);
  let sum = 0;
  for (let t = t0; t < t1; t++, row += stride) {
    for (let i: usize = 0; i < bytes; i += 64) sum += load<i32>(row + i);
  }
  touched += sum;
}
