/**
 * Attention of every query head to the keys of its k largest logits. Work items: (token, head), or (token, KV head) for
 * masses.
 */
import * as cache from '../attention/kv-cache-view';
import { addMass, clearMass, enterMass, massOf } from '../attention/key-mass';
import * as single from '../attention/online-softmax-row';
import { selectLargest } from '../attention/select-top-k';
import { listContext, numListed, openList } from '../attention/slot-list';
import * as op from '../operands/oracle-topk-attention.generated';
import { localScratch } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { ALIGNMENT_BYTES } from '../attention/scratch-sizes';

// scratch
let list: usize = 0; // i32 index in the cache of each visible slot
let logits: usize = 0; // f32
let work: usize = 0;
let chosen: usize = 0; // i32 index among the visible slots
let keyRows: usize = 0;
let logical: usize = 0; // i32 logical slot of each visible slot; 0 without masses

export function oracleTopkAttention(): void {
  cache.enterCache();
  layScratch(localScratch());
  const hasMass = enterMass(op.mass.isPresent ? op.mass.address : 0);
  const headsOfItem = hasMass ? cache.groupSize : 1;
  const numItems = cache.numTokens * (cache.numHeads / headsOfItem);
  for (let item = takeUnits(1); item < numItems; item = takeUnits(1)) {
    const token = (item * headsOfItem) / cache.numHeads;
    const kvHead = ((item * headsOfItem) % cache.numHeads) / cache.groupSize;
    clearMass(token, token + 1, kvHead);
    openList(list, 0, logical);
    listContext(cache.sequenceOfToken(token), cache.positionOfToken(token));
    for (let row = item * headsOfItem; row < (item + 1) * headsOfItem; row++) attendRow(row, token, kvHead);
  }
}

/** Lays out scratch and returns its end. */
function layScratch(base: usize): usize {
  const slotBytes = (<usize>cache.maxSlots) << 2;
  list = base;
  logits = list + slotBytes;
  work = logits + slotBytes + 16;
  chosen = work + slotBytes;
  keyRows = chosen + slotBytes + 64;
  const valueRows = keyRows + <usize>single.ROW_SLOTS * cache.keyStride;
  const end = single.layRow(valueRows + <usize>single.ROW_SLOTS * cache.valueStride, keyRows, valueRows);
  logical = op.mass.isPresent ? end : 0;
  return op.mass.isPresent ? end + slotBytes : end;
}

/** Attends one head of a token to the keys of its largest logits. */
function attendRow(row: i32, token: i32, kvHead: i32): void {
  const query = cache.queryAt(row);
  scoreList(query, kvHead);
  const numChosen = selectLargest(logits, numListed, op.attributes.k, work, chosen);
  single.openRow();
  for (let i = 0; i < numChosen; i++) {
    single.pushSlot(query, load<i32>(list + ((<usize>load<i32>(chosen + ((<usize>i) << 2))) << 2)), kvHead);
  }
  single.flushRow(query);
  single.closeRow(op.y.address + <usize>row * cache.valueStride);
  if (row % cache.numHeads === 0) store<i32>(op.pairs.address + ((<usize>token) << 2), numChosen);
  if (logical === 0) return;
  const top = <f64>load<f32>(single.stateOfRow());
  const sum = load<f32>(single.stateOfRow(), 4);
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  for (let i = 0; i < numChosen; i++) {
    const at = (<usize>load<i32>(chosen + ((<usize>i) << 2))) << 2;
    const weight = <f32>Math.exp(<f64>load<f32>(logits + at) - top);
    addMass(massOf(token, kvHead), load<i32>(logical + at), weight * factor);
  }
}

/** Computes the logits of all listed slots. */
function scoreList(query: usize, kvHead: i32): void {
  const last = numListed - 1;
  for (let i = 0; i <= last; i += 4) {
    const k0 = listedKey(i, kvHead, keyRows);
    const k1 = listedKey(min<i32>(i + 1, last), kvHead, keyRows + cache.keyStride);
    const k2 = listedKey(min<i32>(i + 2, last), kvHead, keyRows + 2 * cache.keyStride);
    const k3 = listedKey(min<i32>(i + 3, last), kvHead, keyRows + 3 * cache.keyStride);
    v128.store(logits + ((<usize>i) << 2), single.logits4(query, k0, k1, k2, k3));
  }
}

function listedKey(i: i32, kvHead: i32, to: usize): usize {
  return cache.keyOf(load<i32>(list + ((<usize>i) << 2)), kvHead, to);
}

/** Bytes of scratch per thread. */
export function oracleTopkAttentionLocalBytes(): u64 {
  cache.enterCache();
  return layScratch(0) + ALIGNMENT_BYTES;
}
