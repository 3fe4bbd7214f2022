/** Recomputes the summaries of a block from the storage. */
import { expect } from 'vitest';
import type { KvCache, KvPool } from '../src/index.js';

const unit = 2 ** -24;

/** Filled physical slots of a cache, by block. */
export function filledSlots({ sequence, pool }: KvCache): Map<number, number[]> {
  const { blockSize } = pool.storage.shape;
  const byBlock = new Map<number, number[]>();
  sequence.positions.forEach((position, slot) => {
    const block = sequence.blocks[Math.floor(slot / blockSize)]!;
    if (!byBlock.has(block)) byBlock.set(block, []);
    if (position >= 0) byBlock.get(block)?.push(block * blockSize + (slot % blockSize));
  });
  return byBlock;
}

/** Equal as numbers: the sign of a zero depends on which slot came first. */
function expectSame(actual: Float32Array, expected: Float32Array): void {
  expect(actual.length === expected.length && actual.every((value, i) => value === expected[i])).toBe(true);
}

/**
 * After each token, `mean += (x - mean) / n` is rounded to f32: at most 4 roundings of values up to twice the largest, and
 * errors of earlier tokens do not grow.
 */
export function expectMean(actual: Float32Array, rows: readonly Float32Array[]): void {
  const largest = Math.max(0, ...rows.map((row) => Math.max(...row.map(Math.abs))));
  const errors = actual.map((value, i) => Math.abs(value - rows.reduce((sum, row) => sum + row[i]! / rows.length, 0)));
  expect(Math.max(...errors)).toBeLessThanOrEqual(rows.length * 8 * unit * largest);
}

/** Compares every summary of a block whose filled slots are `slots`. */
export async function compareBlock({ storage, summaries }: KvPool, block: number, slots: number[]): Promise<void> {
  if (summaries === undefined) throw new Error('no summaries');
  expect(summaries.count(block)).toBe(slots.length);
  const { blockSize, numKvHeads, headDim } = storage.shape;
  for (let head = 0; head < numKvHeads; head++) {
    const keys = await Promise.all(slots.map((slot) => storage.readKey(slot, head)));
    const values = await Promise.all(slots.map((slot) => storage.readValue(slot, head)));
    const component = (i: number): number[] => keys.map((key) => key[i]!);
    const each = (f: (components: number[]) => number): Float32Array =>
      Float32Array.from({ length: headDim }, (_, i) => f(component(i)));
    expectSame(
      await summaries.read('keyMin', block, head),
      each((xs) => Math.min(Infinity, ...xs)),
    );
    expectSame(
      await summaries.read('keyMax', block, head),
      each((xs) => Math.max(-Infinity, ...xs)),
    );
    const columns = await summaries.read('columns', block, head);
    for (const i of [0, 5, headDim - 1]) {
      const expected = new Float32Array(blockSize);
      slots.forEach((slot, t) => (expected[slot % blockSize] = keys[t]![i]!));
      expectSame(columns.slice(i * blockSize, (i + 1) * blockSize), expected);
    }
    const norm = Math.max(0, ...values.map((value) => Math.hypot(...value)));
    const [bound] = await summaries.read('valueNorms', block, head);
    expect(bound).toBeGreaterThanOrEqual(norm);
    expect(bound).toBeLessThanOrEqual(norm * (1 + 2 ** -17));
    expectMean(await summaries.read('keyMeans', block, head), keys);
    expectMean(await summaries.read('valueMeans', block, head), values);
  }
}
