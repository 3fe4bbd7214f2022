/**
 * Attention mass of each slot. Work items: (sequence, KV head), so that the order of summation does not depend on the number
 * of threads. The keys of a block are dequantized once for all query heads of a token.
 */
import * as cache from '../attention/kv-cache-view';
import { logits4 } from '../attention/online-softmax-row';
import * as op from '../operands/attention-mass.generated';
import { localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { sum4, weight4 } from '../simd/vector';

let logits: usize = 0; // a row for each head of the group
let rowBytes: usize = 0;
let keyRows: usize = 0;

export function attentionMass(): void {
  attentionMassScratch(localScratch());
  const massBytes = (<usize>cache.maxSlots) << 2;
  const numItems = op.contextLengths.numSequences * cache.numKvHeads;
  for (let item = nextItems(1); item < numItems; item = nextItems(1)) {
    const sequence = item / cache.numKvHeads;
    const at = <usize>item * massBytes;
    const mass = op.mass.address + at;
    if (!op.previous.isPresent) memory.fill(mass, 0, massBytes);
    else if (op.previous.address + at !== mass) memory.copy(mass, op.previous.address + at, massBytes);
    for (let token = 0; token < cache.numTokens; token++) {
      if (cache.sequenceOfToken(token) === sequence) addToken(token, sequence, item % cache.numKvHeads, mass);
    }
  }
}

/** Reads the record, lays out scratch and returns its end. */
export function attentionMassScratch(base: usize): usize {
  cache.enterCache();
  logits = base;
  rowBytes = (<usize>cache.maxSlots + 4) << 2;
  keyRows = logits + <usize>cache.groupSize * rowBytes;
  return keyRows + <usize>cache.blockSize * cache.keyStride;
}

function addToken(token: i32, sequence: i32, kvHead: i32, mass: usize): void {
  const context = cache.contextOfSequence(sequence);
  const position = cache.positionOfToken(token);
  const firstQuery = cache.queryAt(token * cache.numHeads + kvHead * cache.groupSize);
  for (let slot = 0; slot < context;) {
    const count = cache.slotsInBlock(slot, context - slot);
    const index = cache.slotIndex(sequence, slot);
    const keys = cache.keysOf(index, kvHead, count, keyRows);
    const last = keys + <usize>(count - 1) * cache.keyStride;
    for (let head = 0; head < cache.groupSize; head++) {
      const query = firstQuery + <usize>head * cache.keyStride;
      const row = logits + <usize>head * rowBytes + ((<usize>slot) << 2);
      for (let i = 0; i < count; i += 4) {
        const k0 = keys + <usize>i * cache.keyStride;
        const k1 = min<usize>(k0 + cache.keyStride, last);
        const k2 = min<usize>(k1 + cache.keyStride, last);
        v128.store(row + ((<usize>i) << 2), logits4(query, k0, k1, k2, min<usize>(k2 + cache.keyStride, last)));
      }
      for (let i = 0; i < count; i++) {
        if (!cache.sees(position, cache.positionAt(index + i))) store<f32>(row + ((<usize>i) << 2), -Infinity);
      }
    }
    slot += count;
  }
  for (let head = 0; head < cache.groupSize; head++) addHead(logits + <usize>head * rowBytes, context, mass);
}

/** Adds the softmax of a row of logits to the mass. */
function addHead(row: usize, context: i32, mass: usize): void {
  const bytes = (<usize>context) << 2;
  let top: f32 = -Infinity;
  for (let j: usize = 0; j < bytes; j += 4) top = max<f32>(top, load<f32>(row + j));
  if (top === -Infinity) return;
  v128.store(row + bytes, f32x4.splat(-Infinity)); // pads to whole vectors
  let sum: f32 = 0;
  for (let j: usize = 0; j < bytes; j += 16) {
    const v = weight4(f32x4.sub(v128.load(row + j), f32x4.splat(top)));
    v128.store(row + j, v);
    sum += sum4(v);
  }
  const factor: f32 = 1 / sum;
  let j: usize = 0;
  for (; j + 16 <= bytes; j += 16) {
    v128.store(mass + j, f32x4.add(v128.load(mass + j), f32x4.mul(v128.load(row + j), f32x4.splat(factor))));
  }
  for (; j < bytes; j += 4) store<f32>(mass + j, load<f32>(mass + j) + load<f32>(row + j) * factor);
}
