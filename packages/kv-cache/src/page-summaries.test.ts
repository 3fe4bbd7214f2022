/** Summaries against recomputation after random appends, truncations, forks, evictions and reloads. */
import { ArgumentError, createRng, type DType } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { gaussians } from '../test/random-kv.js';
import { applyChanges, createKvPool, createPagedCache, type KvCache, type KvPool } from './index.js';

const numKvHeads = 2;
const headDim = 32;
const valueDim = 32;

/** Physical slots of a cache that hold something, by block. */
function filledSlots({ sequence, pool }: KvCache): Map<number, number[]> {
  const { blockSize } = pool.storage;
  const byBlock = new Map<number, number[]>();
  sequence.positions.forEach((position, slot) => {
    const block = sequence.blocks[Math.floor(slot / blockSize)];
    if (!byBlock.has(block)) byBlock.set(block, []);
    if (position >= 0) byBlock.get(block)?.push(block * blockSize + (slot % blockSize));
  });
  return byBlock;
}

/** Equal as numbers: the sign of a zero depends on which slot came first. */
function expectSame(actual: Float32Array, expected: Float32Array): void {
  expect(actual.length === expected.length && actual.every((value, i) => value === expected[i])).toBe(true);
}

function compareBlock({ storage, summaries }: KvPool, block: number, slots: number[], numOperations: number): void {
  if (summaries === undefined) throw new Error('no summaries');
  expect(summaries.count(block)).toBe(slots.length);
  const { blockSize } = storage;
  const key = new Float32Array(headDim);
  const value = new Float32Array(valueDim);
  for (let head = 0; head < numKvHeads; head++) {
    const keySum = new Float64Array(headDim);
    const valueSum = new Float64Array(valueDim);
    const min = new Float32Array(headDim).fill(Infinity);
    const max = new Float32Array(headDim).fill(-Infinity);
    const components = Array.from({ length: headDim }, () => new Float32Array(blockSize));
    let norm = 0;
    for (const slot of slots) {
      storage.readKey(slot, head, key, 0);
      storage.readValue(slot, head, value, 0);
      for (let i = 0; i < headDim; i++) {
        keySum[i] += key[i];
        if (key[i] < min[i]) min[i] = key[i];
        if (key[i] > max[i]) max[i] = key[i];
        components[i][slot % blockSize] = key[i];
      }
      for (let i = 0; i < valueDim; i++) valueSum[i] += value[i];
      norm = Math.max(norm, Math.hypot(...value));
    }
    expectSame(summaries.minKey(block, head), min);
    expectSame(summaries.maxKey(block, head), max);
    components.forEach((component, i) => expectSame(summaries.keyComponent(block, head, i), component));
    const bound = summaries.maxValueNorm(block, head);
    expect(bound).toBeGreaterThanOrEqual(norm);
    expect(bound).toBeLessThanOrEqual(norm * (1 + 2 ** -22));
    const mean = new Float32Array(headDim);
    // |values| < 8: each addition and removal rounds a sum below 8 blockSize by 2^-53 of it; then one rounding to f32
    const drift = numOperations * 8 * blockSize * 2 ** -53;
    const check = (sum: Float64Array): void => {
      mean.forEach((actual, i) => {
        const expected = slots.length === 0 ? 0 : sum[i] / slots.length;
        expect(Math.abs(actual - expected)).toBeLessThanOrEqual(drift + Math.abs(expected) * 2 ** -24);
      });
    };
    summaries.meanKey(block, head, mean);
    check(keySum);
    summaries.meanValue(block, head, mean);
    check(valueSum);
  }
}

function compareMean(cache: KvCache, numOperations: number): void {
  const { valueMean, pool } = cache;
  const slots = [...filledSlots(cache).values()].flat();
  expect(valueMean?.count).toBe(slots.length);
  const value = new Float32Array(valueDim);
  const mean = new Float32Array(valueDim);
  for (let head = 0; head < numKvHeads; head++) {
    const sum = new Float64Array(valueDim);
    for (const slot of slots) {
      pool.storage.readValue(slot, head, value, 0);
      for (let i = 0; i < valueDim; i++) sum[i] += value[i];
    }
    valueMean?.read(head, mean);
    const drift = numOperations * 8 * 200 * 2 ** -53;
    mean.forEach((actual, i) => {
      const expected = slots.length === 0 ? 0 : sum[i] / slots.length;
      expect(Math.abs(actual - expected)).toBeLessThanOrEqual(drift + Math.abs(expected) * 2 ** -24);
    });
  }
}

const everything = { landmarks: true, bounds: true, transposedKeys: true };

describe('summaries equal recomputation', () => {
  const cases: [DType, boolean][] = [
    ['f32', false],
    ['q8_0', false],
    ['q4_0', true],
  ];
  it.each(cases)('keys %s, rotation %s', (keyDType, rotateKeys) => {
    for (let seed = 0; seed < 6; seed++) {
      const rng = createRng(seed);
      const pool = createKvPool({
        numKvHeads,
        headDim,
        keyDType,
        rotateKeys,
        numBlocks: 40,
        blockSize: 4,
        prefixSharing: true,
        summaries: everything,
        keepValueMean: true,
      });
      let caches = [createPagedCache(pool)];
      let numOperations = 0;
      for (let command = 0; command < 60; command++) {
        const cache = caches[rng.nextInt(caches.length)];
        const kind = rng.nextInt(7);
        if (kind <= 2 && cache.numTokens < 60) {
          const count = 1 + rng.nextInt(9);
          numOperations += count;
          const tokens = Array.from({ length: count }, () => rng.nextInt(2));
          const k = gaussians(rng, count * numKvHeads * headDim);
          if (pool.manager.canAppend(cache.sequence.id, count)) {
            cache.append(k, gaussians(rng, count * numKvHeads * valueDim), tokens);
          }
        } else if (kind === 3) {
          const numTokens = rng.nextInt(cache.numTokens + 1);
          cache.truncate(numTokens);
          numOperations += 10;
        } else if (kind === 4 && caches.length < 4) {
          caches.push(rng.nextInt(2) === 0 ? cache.fork() : createPagedCache(pool, cache.sequence.tokens.slice()));
        } else if (kind === 5) {
          const { positions } = cache.sequence;
          const slots = [...positions.keys()].filter((slot) => positions[slot] >= 0 && rng.nextInt(5) === 0);
          numOperations += slots.length;
          try {
            cache.evict(slots);
          } catch {
            cache.free();
            caches = [createPagedCache(pool)];
          }
        } else if (kind === 6 && cache.sequence.positions.length >= 4) {
          // out to a page and back into another block
          const bytes = new Uint8Array(pool.storage.pageBytes);
          pool.storage.readPage(cache.sequence.blocks[0], bytes);
          pool.manager.detach(cache.sequence.id, [{ tableIndex: 0, pageId: command }]);
          const { block, positions, ...changes } = pool.manager.attach(cache.sequence.id, command);
          applyChanges(pool, changes);
          pool.storage.writePage(block, bytes, positions);
          pool.summaries?.reload(block);
        }
        for (const each of caches) {
          compareMean(each, numOperations);
          for (const [block, slots] of filledSlots(each)) {
            // a block shared with a sequence that holds more of it is summarised as that sequence sees it
            if (pool.manager.refCount(block) === 1) compareBlock(pool, block, slots, numOperations);
          }
        }
      }
    }
  });
});

describe('summaries', () => {
  it('recover from values that are not finite', () => {
    const pool = createKvPool({ numKvHeads: 1, headDim: 2, numBlocks: 1, blockSize: 4, summaries: everything });
    const cache = createPagedCache(pool);
    cache.append(Float32Array.of(1, 2, Infinity, NaN, 3, 6), Float32Array.of(1, 2, 3, 4, 5, 6));
    cache.evict([1]);
    const mean = new Float32Array(2);
    pool.summaries?.meanKey(0, 0, mean);
    expect([...mean]).toEqual([2, 4]);
  });

  it('refuse what they do not keep', () => {
    const pool = createKvPool({ numKvHeads: 1, headDim: 2, numBlocks: 1, blockSize: 4, summaries: {} });
    expect(() => pool.summaries?.minKey(0, 0)).toThrow(ArgumentError);
  });
});
