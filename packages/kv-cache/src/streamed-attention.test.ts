import { createRng } from '@winnow/tensor';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { gaussians } from '../test/random-kv.js';
import {
  applyChanges,
  attendPartial,
  createKvPool,
  createPagedCache,
  createPageStore,
  createStates,
  createStreamedAttention,
  finishStates,
  memoryPageFile,
  openPageRecords,
  PageError,
  type KvCache,
  type PageFile,
  type PageStore,
} from './index.js';

const sizes = { numKvHeads: 2, headDim: 32, keyDType: 'q4_0', valueDType: 'q8_0', rotateKeys: true } as const;
const numHeads = 4;
const blockSize = 4;

interface Setup {
  readonly cache: KvCache;
  readonly store: PageStore;
  readonly expected: Float32Array;
  readonly q: Float32Array;
}

/** A cache of 50 tokens of which all full blocks but the last two went to the store. */
async function setUp(file: PageFile, warmBytes = 0): Promise<Setup> {
  const pool = createKvPool({ ...sizes, numBlocks: 13, blockSize });
  const cache = createPagedCache(pool);
  const rng = createRng(1);
  cache.append(gaussians(rng, 50 * 64), gaussians(rng, 50 * 64));
  cache.evict([5, 6, 30]); // pages may have holes
  const q = gaussians(rng, numHeads * 32);
  const expected = cache.attend(q, { position: 45 });
  const { pageBytes } = pool.storage;
  const records = await openPageRecords(file, { pageBytes, blockSize });
  const store = createPageStore({ pageBytes, blockSize, warmBytes, records });
  const { sequence } = cache;
  const pages = sequence.blocks
    .slice(0, 10)
    .map((block, tableIndex) => ({ block, tableIndex, pageId: 100 + tableIndex }));
  for (const { block, tableIndex, pageId } of pages) {
    const bytes = new Uint8Array(pageBytes);
    pool.storage.readPage(block, bytes);
    await store.put(pageId, bytes, sequence.positions.slice(tableIndex * blockSize, (tableIndex + 1) * blockSize));
  }
  applyChanges(pool, pool.manager.detach(sequence.id, pages));
  return { cache, store, expected, q };
}

afterEach(() => vi.restoreAllMocks());

describe('streamed attention', () => {
  for (const chunkPages of [1, 3, 10, 20]) {
    it(`resident and streamed parts in chunks of ${chunkPages} merge to the attention of the whole cache`, async () => {
      const { cache, store, expected, q } = await setUp(memoryPageFile(), 2000);
      const streamed = createStreamedAttention({ ...sizes, store, chunkPages });
      const states = createStates(numHeads, 32);
      attendPartial(cache, q, states, { position: 45 });
      await streamed.attend(q, cache.sequence.detachedPages, states, { position: 45 });
      // every merge rounds l and o to f32 a few times; |v| < 6 and at most 12 states merge
      const bound = 12 * 4 * 2 ** -24 * 6;
      finishStates(states).forEach((value, i) => expect(Math.abs(value - expected[i])).toBeLessThanOrEqual(bound));
      expect(store.statistics().warmHits).toBeGreaterThan(0);
    });
  }

  it('reads the next chunk while it computes this one', async () => {
    const events: string[] = [];
    const { cache, store, q } = await setUp(memoryPageFile());
    const observed: PageStore = {
      ...store,
      async read(pageId, target) {
        events.push(`begin ${pageId}`);
        await store.read(pageId, target);
        events.push(`end ${pageId}`);
      },
    };
    const exp = Math.exp;
    vi.spyOn(Math, 'exp').mockImplementation((value) => {
      if (events.at(-1) !== 'compute') events.push('compute');
      return exp(value);
    });
    const streamed = createStreamedAttention({ ...sizes, store: observed, chunkPages: 1 });
    const states = createStates(numHeads, 32);
    await streamed.attend(q, cache.sequence.detachedPages.slice(0, 4), states);
    const [a, b, c, d] = cache.sequence.detachedPages.map(({ pageId }) => pageId);
    expect(events.join(', ')).toBe(
      [
        `begin ${a}, end ${a}`,
        `begin ${b}, compute, end ${b}`,
        `begin ${c}, compute, end ${c}`,
        `begin ${d}, compute, end ${d}`,
        'compute',
      ].join(', '),
    );
    expect(store.statistics().misses).toBe(4);
  });

  it('a failing chunk names its positions and leaves the states as they were', async () => {
    const file = memoryPageFile();
    const { cache, store, expected, q } = await setUp(file);
    const streamed = createStreamedAttention({ ...sizes, store, chunkPages: 2 });
    const pages = cache.sequence.detachedPages;
    const bad = pages.slice(4, 6);
    const recordBytes = file.sizeBytes / 10;
    for (const { pageId } of bad) await file.write((pageId - 100) * recordBytes + 200, Uint8Array.of(255, 254, 253));
    const states = createStates(numHeads, 32);
    attendPartial(cache, q, states, { position: 45 });
    const before = finishStates(states);
    const error = await streamed.attend(q, pages, states).catch((caught: unknown) => caught);
    expect(PageError.isInstance(error)).toBe(true);
    const positions = bad.flatMap((page) => Array.from(page.positions)).filter((position) => position >= 0);
    expect(error).toMatchObject({ pageIds: bad.map(({ pageId }) => pageId), positions });
    expect(finishStates(states)).toEqual(before);
    // without the damaged pages it goes on
    await streamed.attend(
      q,
      pages.filter((page) => !bad.includes(page)),
      states,
      { position: 45 },
    );
    expect(finishStates(states)).not.toEqual(expected);
  });

  it('can be broken off', async () => {
    const { cache, store, q } = await setUp(memoryPageFile());
    const streamed = createStreamedAttention({ ...sizes, store, chunkPages: 2 });
    const states = createStates(numHeads, 32);
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(streamed.attend(q, cache.sequence.detachedPages, states, { signal })).rejects.toThrow('enough');
  });
});
