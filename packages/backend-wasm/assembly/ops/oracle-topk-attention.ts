/** Attention of every query head to the keys of its k largest logits. */
import { addMass, enterMass, hasMass, massOf } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as single from '../attention/online-softmax-row';
import * as tile from '../attention/query-tiles';
import { BINS_BYTES, selectLargest } from '../attention/select-top-k';
import { listContext, numListed, openList } from '../attention/slot-list';
import * as op from '../operands/oracle-topk-attention.generated';
import { floatAt, intAt, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';

// scratch
let list: usize = 0; // i32 index in the cache of each visible slot
let logical: usize = 0; // i32 logical slot of each visible slot, for masses
let logits: usize = 0; // f32
let work: usize = 0;
let selected: usize = 0; // i32 index among the visible slots
let keyRows: usize = 0;

export function oracleTopkAttention(): void {
  oracleTopkAttentionScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  tile.attendGroups(1, attendHead);
}

/** Reads the record, lays out scratch and returns its end. */
export function oracleTopkAttentionScratch(base: usize): usize {
  cache.enterCache();
  const slotBytes = (<usize>cache.maxSlots) << 2;
  list = base;
  logical = list + slotBytes;
  logits = logical + slotBytes;
  work = logits + slotBytes + 16;
  selected = work + slotBytes + BINS_BYTES;
  keyRows = selected + slotBytes + 64;
  const valueRows = keyRows + <usize>single.ROW_SLOTS * cache.keyStride;
  return single.layRow(valueRows + <usize>single.ROW_SLOTS * cache.valueStride, keyRows, valueRows);
}

/** Attends one head of a token to the keys of its largest logits. */
function attendHead(head: i32): void {
  const row = tile.token * cache.numHeads + head;
  const query = cache.queryAt(row);
  openList(list, 0, hasMass ? logical : 0);
  listContext();
  scoreList(query);
  const numSelected = selectLargest(logits, numListed, op.attributes.k, work, selected);
  single.openRow();
  for (let i = 0; i < numSelected; i++) single.pushSlot(query, intAt(list, intAt(selected, i)), tile.kvHead);
  single.flushRow(query);
  single.closeRow(op.y.address + <usize>row * cache.valueStride);
  if (head === 0) setInt(op.pairs.address, tile.token, numSelected);
  if (!hasMass) return;
  const top = <f64>floatAt(single.rowState, 0);
  const sum = floatAt(single.rowState, 1);
  const factor: f32 = sum === 0 ? 0 : 1 / sum;
  for (let i = 0; i < numSelected; i++) {
    const index = intAt(selected, i);
    const weight = <f32>Math.exp(<f64>floatAt(logits, index) - top);
    addMass(massOf(tile.token, tile.kvHead), intAt(logical, index), weight * factor);
  }
}

/** Computes the logits of all slots in the list. */
function scoreList(query: usize): void {
  const last = numListed - 1;
  for (let i = 0; i <= last; i += 4) {
    const k0 = gatheredKey(i, keyRows);
    const k1 = gatheredKey(min<i32>(i + 1, last), keyRows + cache.keyStride);
    const k2 = gatheredKey(min<i32>(i + 2, last), keyRows + 2 * cache.keyStride);
    const k3 = gatheredKey(min<i32>(i + 3, last), keyRows + 3 * cache.keyStride);
    v128.store(logits + ((<usize>i) << 2), single.logits4(query, k0, k1, k2, k3));
  }
}

function gatheredKey(i: i32, to: usize): usize {
  return cache.keysOf(intAt(list, i), tile.kvHead, 1, to);
}
