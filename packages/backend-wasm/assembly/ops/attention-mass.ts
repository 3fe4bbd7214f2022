/**
 * How much queries look at each slot. A KV head of a sequence is one unit: its masses stay with one thread, whose sums are in
 * one order whatever the number of threads. The keys of a block are decoded once for all query heads of a token.
 * Tensors: as in `kv-cache-view.ts`, 8 previous, 9 mass.
 */
import {
  contextOfSequence,
  enterCache,
  keysOf,
  modelReach,
  positionAt,
  positionOfToken,
  sequenceOfToken,
  slotIndex,
  slotsInBlock,
} from '../attention/kv-cache-view';
import { addressOf, attributeF, attributeI, dim, isPresent, localScratch } from '../runtime/record';
import { dots4 } from '../attention/online-softmax-row';
import { sum4, tanh4, weight4 } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

let headDim: i32 = 0;
let scale: f32 = 1;
let cap: f32 = 0;
let reach: i32 = 0;
let lead: i32 = 0;
let groupSize: i32 = 1;
let logits: usize = 0; // of each head of the group, a row per head
let rowBytes: usize = 0;
let keyRows: usize = 0;

export function attentionMass(): void {
  enterCache();
  headDim = dim(0, 2);
  scale = attributeF(0);
  cap = attributeF(3);
  reach = modelReach();
  lead = attributeI(1) !== 0 ? 0 : -reach;
  const numTokens = dim(0, 0);
  const numKvHeads = dim(3, 1);
  groupSize = dim(0, 1) / numKvHeads;
  const maxSlots = dim(6, 1) * dim(3, 2);
  logits = localScratch();
  rowBytes = (<usize>maxSlots + 4) << 2;
  keyRows = logits + <usize>groupSize * rowBytes;
  const numUnits = dim(7, 0) * numKvHeads;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const sequence = unit / numKvHeads;
    const kvHead = unit % numKvHeads;
    const at = <usize>unit * ((<usize>maxSlots) << 2);
    const mass = addressOf(9) + at;
    if (!isPresent(8)) memory.fill(mass, 0, (<usize>maxSlots) << 2);
    else if (addressOf(8) + at !== mass) memory.copy(mass, addressOf(8) + at, (<usize>maxSlots) << 2);
    for (let token = 0; token < numTokens; token++) {
      if (sequenceOfToken(token) === sequence) addToken(token, sequence, kvHead, mass);
    }
  }
}

function addToken(token: i32, sequence: i32, kvHead: i32, mass: usize): void {
  const context = contextOfSequence(sequence);
  const position = positionOfToken(token);
  const firstQuery = addressOf(0) + ((<usize>(token * dim(0, 1) + kvHead * groupSize) * <usize>headDim) << 2);
  for (let slot = 0; slot < context;) {
    const count = slotsInBlock(slot, context - slot);
    const index = slotIndex(sequence, slot);
    const keys = keysOf(index, kvHead, count, keyRows);
    for (let head = 0; head < groupSize; head++) {
      const query = firstQuery + <usize>head * ((<usize>headDim) << 2);
      const row = logits + <usize>head * rowBytes + ((<usize>slot) << 2);
      for (let i = 0; i < count; i += 4) store4(row, i, count, query, keys);
      for (let i = 0; i < count; i++) {
        const key = positionAt(index + i);
        const distance = position - key;
        if (key < 0 || distance > reach || distance < lead) store<f32>(row + ((<usize>i) << 2), -Infinity);
      }
    }
    slot += count;
  }
  for (let head = 0; head < groupSize; head++) addHead(logits + <usize>head * rowBytes, context, mass);
}

/** Logits of rows `[i, i + 4)` of a block; what is beyond its end repeats the last one and is overwritten. */
function store4(row: usize, i: i32, count: i32, query: usize, keys: usize): void {
  const stride = (<usize>headDim) << 2;
  const last = count - 1;
  let v = dots4(
    query,
    keys + <usize>i * stride,
    keys + <usize>min<i32>(i + 1, last) * stride,
    keys + <usize>min<i32>(i + 2, last) * stride,
    keys + <usize>min<i32>(i + 3, last) * stride,
    headDim,
  );
  v = f32x4.mul(v, f32x4.splat(scale));
  if (cap !== 0) v = f32x4.mul(f32x4.splat(cap), tanh4(f32x4.div(v, f32x4.splat(cap))));
  v128.store(row + ((<usize>i) << 2), v);
}

/** Adds the softmax of a row of logits. */
function addHead(row: usize, context: i32, mass: usize): void {
  let top: f32 = -Infinity;
  for (let j = 0; j < context; j++) top = max<f32>(top, load<f32>(row + ((<usize>j) << 2)));
  if (top === -Infinity) return;
  v128.store(row + ((<usize>context) << 2), f32x4.splat(-Infinity)); // whole vectors
  let sum: f32 = 0;
  let j = 0;
  for (; j < context; j += 4) {
    const at = row + ((<usize>j) << 2);
    const v = weight4(f32x4.sub(v128.load(at), f32x4.splat(top)));
    v128.store(at, v);
    sum += sum4(v);
  }
  const factor: f32 = 1 / sum;
  j = 0;
  for (; j + 4 <= context; j += 4) {
    const at = (<usize>j) << 2;
    v128.store(mass + at, f32x4.add(v128.load(mass + at), f32x4.mul(v128.load(row + at), f32x4.splat(factor))));
  }
  for (; j < context; j++) {
    const at = (<usize>j) << 2;
    store<f32>(mass + at, load<f32>(mass + at) + load<f32>(row + at) * factor);
  }
}
