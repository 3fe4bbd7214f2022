import type { Backend } from '@winnow/ops';
import { ArgumentError, createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { testBackends } from '../../test/backends.js';
import { gaussians } from '../../test/random-kv.js';
import {
  createPagedCache,
  createPageStore,
  createStates,
  finishStates,
  KvPool,
  memoryPageFile,
  openPageFrames,
  PageError,
  StreamedAttention,
  type KvCache,
  type PageFile,
  type PageStore,
} from '../index.js';

const sizes = { numKvHeads: 2, headDim: 32, dtype: { keys: 'q4_0', values: 'q8_0' }, rotateKeys: true } as const;
const numHeads = 4;
const blockSize = 4;

interface Setup {
  readonly cache: KvCache;
  readonly store: PageStore;
  readonly expected: Float32Array;
  readonly q: Float32Array;
}

/** A cache of 50 tokens; all full blocks but the last two are in the page store. */
async function setUp(backend: Backend, file: PageFile, warmBytes = 0): Promise<Setup> {
  const pool = await KvPool.create({ ...sizes, backend }, { numBlocks: 13, blockSize });
  const cache = createPagedCache(pool);
  const rng = createRng(1);
  await cache.append(gaussians(rng, 50 * 64), gaussians(rng, 50 * 64));
  await cache.evict([5, 6, 30]); // pages may have gaps
  const q = gaussians(rng, numHeads * 32);
  const expected = await cache.attend(q, { position: 45 });
  const { pageBytes } = pool.storage.shape;
  const frames = await openPageFrames(file, { pageBytes, blockSize });
  const store = createPageStore({ pageBytes, blockSize, warmBytes, frames });
  const { sequence } = cache;
  const pages = sequence.blocks
    .slice(0, 10)
    .map((block, tableIndex) => ({ block, tableIndex, pageId: 100 + tableIndex }));
  for (const { block, tableIndex, pageId } of pages) {
    const bytes = new Uint8Array(pageBytes);
    await pool.storage.readPage(block, bytes);
    await store.put(pageId, bytes, sequence.positions.slice(tableIndex * blockSize, (tableIndex + 1) * blockSize));
  }
  await pool.apply(pool.manager.detach(sequence.id, pages));
  return { cache, store, expected, q };
}

/** Records when pages are read and when programs run. */
function observe(store: PageStore, backend: Backend, events: string[]): { store: PageStore; backend: Backend } {
  return {
    store: {
      ...store,
      pageBytes: store.pageBytes,
      blockSize: store.blockSize,
      async read(pageId, target) {
        events.push(`begin ${pageId}`);
        await store.read(pageId, target);
        await new Promise((resolve) => setTimeout(resolve, 20));
        events.push(`end ${pageId}`);
      },
    },
    backend: {
      ...backend,
      async prepare(program, options) {
        const executable = await backend.prepare(program, options);
        return { ...executable, run: (...args) => (events.push('compute'), executable.run(...args)) };
      },
    },
  };
}

describe.each(testBackends)('streamed attention on $name', ({ name, backend }) => {
  it.each([1, 3, 10, 20])('resident and streamed parts in chunks of %d merge to full attention', async (chunkPages) => {
    const { cache, store, expected, q } = await setUp(backend, memoryPageFile(), 2000);
    await using streamed = await StreamedAttention.create({ ...sizes, backend, store, chunkPages });
    expect(streamed.sizeBytes).toBe(2 * chunkPages * (2 * store.pageBytes + 4 * blockSize));
    const states = createStates(numHeads, 32);
    await cache.attendPartial(q, states, { position: 45 });
    await streamed.attend(q, cache.sequence.detachedPages, states, { position: 45 });
    // every merge rounds l and o to f32 a few times; |v| < 6 and at most 12 states merge. Kernels sum 46 weights in
    // f32, and round logits below 12 at most 34 times
    const numRoundings = 12 * 4 + (name === 'reference' ? 0 : 2 * (34 * 12 + 46 + 80));
    const bound = numRoundings * 2 ** -24 * 6;
    finishStates(states).forEach((value, i) => expect(Math.abs(value - expected[i])).toBeLessThanOrEqual(bound));
    expect(store.statistics().warmHits).toBeGreaterThan(0);
    await cache.pool.close();
  });

  it('reads the next chunk while it computes this one', async () => {
    const events: string[] = [];
    const { cache, store, q } = await setUp(backend, memoryPageFile());
    const observed = observe(store, backend, events);
    await using streamed = await StreamedAttention.create({ ...sizes, ...observed, chunkPages: 1 });
    const states = createStates(numHeads, 32);
    await streamed.attend(q, cache.sequence.detachedPages.slice(0, 4), states);
    const [a, b, c, d] = cache.sequence.detachedPages.map(({ pageId }) => pageId);
    const rest = [b, c, d].map((page) => `begin ${page}, compute, end ${page}`);
    expect(events.join(', ')).toBe([`begin ${a}, end ${a}`, ...rest, 'compute'].join(', '));
    expect(store.statistics().misses).toBe(4);
    await cache.pool.close();
  });

  it('can be aborted', async () => {
    const { cache, store, q } = await setUp(backend, memoryPageFile());
    await using streamed = await StreamedAttention.create({ ...sizes, backend, store, chunkPages: 2 });
    const states = createStates(numHeads, 32);
    const signal = AbortSignal.abort(new Error('enough'));
    const attending = streamed.attend(q, cache.sequence.detachedPages, states, { signal });
    await expect(attending).rejects.toThrow('enough');
    await cache.pool.close();
  });

  it('rejects a store with another page size', async () => {
    const store = createPageStore({ pageBytes: 8, blockSize, warmBytes: 100 });
    await expect(StreamedAttention.create({ ...sizes, backend, store })).rejects.toThrow(ArgumentError);
  });
});

describe.each(testBackends)('damaged pages on $name', ({ backend }) => {
  it('are reported with their positions; the states stay unchanged', async () => {
    const file = memoryPageFile();
    const { cache, store, expected, q } = await setUp(backend, file);
    await using streamed = await StreamedAttention.create({ ...sizes, backend, store, chunkPages: 2 });
    const pages = cache.sequence.detachedPages;
    const bad = pages.slice(4, 6);
    const frameBytes = file.sizeBytes / 10;
    for (const { pageId } of bad) await file.write((pageId - 100) * frameBytes + 200, Uint8Array.of(255, 254, 253));
    const states = createStates(numHeads, 32);
    await cache.attendPartial(q, states, { position: 45 });
    const before = finishStates(states);
    const error = await streamed.attend(q, pages, states).catch((caught: unknown) => caught);
    expect(PageError.isInstance(error)).toBe(true);
    const positions = bad.flatMap((page) => Array.from(page.positions)).filter((position) => position >= 0);
    expect(error).toMatchObject({ pageIds: bad.map(({ pageId }) => pageId), positions });
    expect(finishStates(states)).toEqual(before);
    // attention continues without the damaged pages
    const intact = pages.filter((page) => !bad.includes(page));
    await streamed.attend(q, intact, states, { position: 45 });
    expect(finishStates(states)).not.toEqual(expected);
    await cache.pool.close();
  });
});
