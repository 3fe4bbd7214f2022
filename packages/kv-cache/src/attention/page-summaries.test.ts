/** Summaries against recomputation after random appends, truncations, forks, evictions and reloads. */
import { ArgumentError, CapacityError, createRng, type DType, type Rng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { testBackends } from '../../test/backends.js';
import { gaussians } from '../../test/random-kv.js';
import { compareBlock, filledSlots } from '../../test/summary-truth.js';
import { createPagedCache, KvPool, type KvCache } from '../index.js';

const numKvHeads = 2;
const headDim = 32;
const everything = { landmarks: true, bounds: true, transposedKeys: true };

async function appendRandom(cache: KvCache, rng: Rng): Promise<void> {
  const count = 1 + rng.nextInt(9);
  const tokens = Array.from({ length: count }, () => rng.nextInt(2));
  const [k, v] = [gaussians(rng, count * numKvHeads * headDim), gaussians(rng, count * numKvHeads * headDim)];
  if (cache.pool.manager.canAppend(cache.sequence.id, count)) await cache.append(k, v, tokens);
}

/** Evicts about every fifth slot. Frees the sequence if there is no room for copies. @returns whether it was freed */
async function evictRandom(cache: KvCache, rng: Rng): Promise<boolean> {
  const { positions } = cache.sequence;
  const slots = [...positions.keys()].filter((slot) => positions[slot] >= 0 && rng.nextInt(5) === 0);
  try {
    await cache.evict(slots);
    return false;
  } catch (error) {
    if (!CapacityError.isInstance(error)) throw error;
    await cache.free();
    return true;
  }
}

/** Detaches the first block as a page and restores it into another block. */
async function reloadFirst({ pool, sequence }: KvCache, pageId: number): Promise<void> {
  if (sequence.positions.length < pool.storage.shape.blockSize) return;
  const bytes = new Uint8Array(pool.storage.shape.pageBytes);
  await pool.storage.readPage(sequence.blocks[0], bytes);
  await pool.apply(pool.manager.detach(sequence.id, [{ tableIndex: 0, pageId }]));
  const { block, positions, ...changes } = pool.manager.attach(sequence.id, pageId);
  await pool.apply(changes);
  await pool.storage.writePage(block, bytes, positions);
  pool.summaries?.reload(block, positions);
}

async function runCommand(pool: KvPool, caches: KvCache[], rng: Rng, command: number): Promise<void> {
  const cache = caches[rng.nextInt(caches.length)];
  const kind = rng.nextInt(7);
  if (kind <= 2 && cache.numTokens < 60) await appendRandom(cache, rng);
  else if (kind === 3) await cache.truncate(rng.nextInt(cache.numTokens + 1));
  else if (kind === 4 && caches.length < 4) {
    caches.push(rng.nextInt(2) === 0 ? cache.fork() : createPagedCache(pool, cache.sequence.tokens.slice()));
  } else if (kind === 5 && (await evictRandom(cache, rng))) {
    caches.splice(0, caches.length, createPagedCache(pool));
  } else if (kind === 6) await reloadFirst(cache, command);
}

describe.each(testBackends)('summaries equal recomputation on $name', ({ backend }) => {
  const cases: [DType, boolean][] = [
    ['f32', false],
    ['q8_0', false],
    ['q4_0', true],
  ];
  it.each(cases)('keys %s, rotation %s', async (keys, rotateKeys) => {
    const options = {
      numKvHeads,
      headDim,
      dtype: { keys, values: 'f32' } as const,
      rotateKeys,
      backend,
      summaries: everything,
      prefixSharing: true,
    };
    for (let seed = 0; seed < 3; seed++) {
      const rng = createRng(seed);
      await using pool = await KvPool.create(options, { numBlocks: 40, blockSize: 4 });
      const caches = [createPagedCache(pool)];
      for (let command = 0; command < 60; command++) {
        await runCommand(pool, caches, rng, command);
        if (command % 3 !== 0) continue; // leaves some changes to the next refresh
        for (const cache of caches) {
          for (const [block, slots] of filledSlots(cache)) {
            // the summary of a shared block covers the slots of the sequence that fills most of it
            if (pool.manager.refCount(block) === 1) await compareBlock(pool, block, slots);
          }
        }
      }
    }
  });
});

describe.each(testBackends)('summaries on $name', ({ backend }) => {
  const small = { numKvHeads: 1, headDim: 2 };
  const oneBlock = { numBlocks: 1, blockSize: 4 };

  it('recover from non-finite values', async () => {
    await using pool = await KvPool.create({ ...small, backend, summaries: everything }, oneBlock);
    const cache = createPagedCache(pool);
    await cache.append(Float32Array.of(1, 2, Infinity, NaN, 3, 6), Float32Array.of(1, 2, 3, 4, 5, 6));
    await pool.summaries?.refresh();
    await cache.evict([1]);
    expect([...((await pool.summaries?.read('keyMeans', 0, 0)) ?? [])]).toEqual([2, 4]);
  });

  it('are empty for empty blocks, and reject disabled summaries', async () => {
    await using pool = await KvPool.create({ ...small, backend, summaries: { bounds: true } }, oneBlock);
    const { summaries } = pool;
    expect([...((await summaries?.read('keyMin', 0, 0)) ?? [])]).toEqual([Infinity, Infinity]);
    expect([...((await summaries?.read('valueNorms', 0, 0)) ?? [])]).toEqual([0]);
    await expect(summaries?.read('keyMeans', 0, 0)).rejects.toThrow(ArgumentError);
    expect([...(summaries?.buffers.keys() ?? [])]).toEqual(['boxCounts', 'keyMin', 'keyMax', 'valueNorms']);
    expect(summaries?.sizeBytes).toBe(4 * (1 + 2 + 2 + 1) + 4 + 4);
  });
});
