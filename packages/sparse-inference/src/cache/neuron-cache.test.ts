import { IoError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { testMemory, testPieces, through } from '../../test/cache-parts.js';
import { failure, gate, itemBytes, numItems, range, setUp, shapes, ticks } from '../../test/cache-set-up.js';
import { createNeuronCache } from '../index.js';

describe('coalescing', () => {
  it.each([
    ['ten neighbors', range(30, 40), 3],
    ['two runs', [...range(3, 6), ...range(50, 57)], 6],
    ['every second one, gaps not allowed', range(0, 20, 2), 30],
    ['any order, repeated', [12, 10, 11, 10, 13], 3],
  ])('reads %s of three matrices with the expected number of reads', async (_, ids, numReads) => {
    const { source, cache, ensure, item, slot } = await setUp();
    const rows = await ensure(ids);
    expect(source.reads).toHaveLength(numReads);
    const numBytes = new Set(ids).size * itemBytes * 3;
    expect(cache.statistics()).toMatchObject({ numReads, bytesRead: numBytes, usefulBytesRead: numBytes });
    for (const [at, id] of ids.entries()) {
      for (const piece of [0, 1, 2]) expect(slot(piece, rows[at])).toEqual(item(piece, id));
    }
  });

  it('reads across gaps when that is cheaper than another read', async () => {
    const { source, cache, ensure } = await setUp({}, { reads: { maxGapBytes: itemBytes } });
    await ensure(range(0, 20, 2));
    expect(source.reads).toHaveLength(3);
    expect(cache.statistics()).toMatchObject({ bytesRead: 3 * 19 * itemBytes, usefulBytesRead: 3 * 10 * itemBytes });
    await ensure(range(0, 30, 3));
    expect(cache.statistics().numReads).toBe(3 + 3 * 6); // 3, 9, 15, 21, 24, 27: two gaps of two neighbors
  });

  it('reads the matrices of a bundle together', async () => {
    const { source, ensure, item, slot } = await setUp({}, { isBundle: true });
    const rows = await ensure([7, 8, 9, 40]);
    expect(source.reads).toEqual([
      [13 + 7 * 3 * itemBytes, 3 * 3 * itemBytes],
      [13 + 40 * 3 * itemBytes, 3 * itemBytes],
    ]);
    for (const piece of [0, 1, 2]) expect(slot(piece, rows[3])).toEqual(item(piece, 40));
  });

  it('splits long runs, and respects the limit on concurrent reads', async () => {
    const { source, ensure } = await setUp({}, { reads: { readBytes: 4 * itemBytes, maxGapBytes: 0, maxReads: 2 } });
    await ensure(range(0, 20));
    expect(source.reads).toHaveLength(15);
    expect(source.peakRunning).toBe(2);
    for (const [, sizeBytes] of source.reads) expect(sizeBytes).toBe(4 * itemBytes);
  });

  it('bounds the memory of pending reads', async () => {
    const { cache, ensure } = await setUp({}, { reads: { readBytes: 4 * itemBytes, maxGapBytes: 0, maxReads: 2 } });
    await ensure(range(0, 20));
    expect(cache.statistics().bytes.staging).toBe(2 * 4 * itemBytes);
  });
});

describe('tiers', () => {
  it('reads nothing for items in slots, and returns the same promise', async () => {
    const { source, cache } = await setUp();
    const ids = Int32Array.from(range(0, 10));
    const rows = new Int32Array(10);
    await cache.ensure(0, ids, 10, rows);
    source.reads.length = 0;
    const first = cache.ensure(0, ids, 10, rows);
    expect(cache.ensure(0, ids, 10, rows)).toBe(first);
    expect(source.reads).toHaveLength(0);
    expect(cache.statistics()).toMatchObject({ requests: 30, hits: 20, misses: 10, coldReads: 10 });
  });

  it('evicts the least recently used items, never pinned ones', async () => {
    const { cache, ensure } = await setUp({ slots: 6, hot: [90, 91] });
    await ensure([1]);
    await ensure([2]);
    await ensure([3]);
    await ensure([4]);
    await ensure([1]);
    await ensure([5, 90]);
    const tiers = [1, 2, 3, 4, 5, 90, 91].map((id) => cache.tierOf(0, id));
    expect(tiers).toEqual(['hot', 'cold', 'hot', 'hot', 'hot', 'hot', 'hot']);
    expect(cache.statistics().evictions).toBe(1);
  });

  it('fills slots from the warm tier at its precision, from the file at full precision', async () => {
    const { source, cache, ensure, item, slot } = await setUp({ warmSlots: 4, warm: [5, 6] });
    expect(cache.tierOf(0, 5)).toBe('warm');
    const rows = await ensure([5, 50]);
    expect(source.reads).toHaveLength(3);
    expect(slot(0, rows[0])).toEqual(through('q8_0', 'f16', item(0, 5), 32));
    expect(slot(0, rows[1])).toEqual(item(0, 50));
    expect(cache.statistics()).toMatchObject({ warmHits: 1, coldReads: 1, bytes: { warm: 4 * 3 * 34 } });
  });
});

describe('encodings of tiers', () => {
  it('keeps the dtype in a warm tier of encoding same', async () => {
    const { ensure, item, slot } = await setUp({ warmSlots: 4, warm: [5] }, { warmEncoding: 'same' });
    const [row] = await ensure([5]);
    expect(slot(1, row)).toEqual(item(1, 5));
  });

  it('keeps frequently active items in the warm tier', async () => {
    const frequencies = new Float32Array(numItems).fill(0.01);
    frequencies[5] = 0.9;
    frequencies[6] = 0.8;
    const { cache, ensure } = await setUp({ slots: 2, warmSlots: 2, warm: [5, 6], frequencies });
    for (const id of range(10, 60)) await ensure([id]);
    expect([cache.tierOf(0, 5), cache.tierOf(0, 6)]).toEqual(['warm', 'warm']);
    for (let round = 0; round < 900; round++) await ensure([70 + (round % 3)]);
    // the observed frequency overtakes the calibrated one
    expect([5, 6].map((id) => cache.tierOf(0, id))).toEqual(['cold', 'cold']);
  });

  it('reads the file once when the cold tier is a 4-bit copy', async () => {
    const options = { coldEncoding: 'q4_0' } as const;
    const { source, cache, ensure, item, slot } = await setUp({ hot: [1], warmSlots: 1, warm: [2] }, options);
    const rows = await ensure([1, 2, 3]);
    expect(source.reads).toHaveLength(0);
    expect(slot(2, rows[0])).toEqual(item(2, 1));
    expect(slot(2, rows[1])).toEqual(through('q8_0', 'f16', item(2, 2), 32));
    expect(slot(2, rows[2])).toEqual(through('q4_0', 'f16', item(2, 3), 32));
    expect(cache.statistics().bytes.cold).toBe(98 * 3 * 18);
  });

  it('does not keep items that have no 8-bit encoding', async () => {
    const { source, cache, ensure, item, slot } = await setUp({ slots: 1, warmSlots: 4 });
    source.bytes.set([0x00, 0x7c], 13 + 9 * itemBytes); // Infinity in f16
    item(0, 9).set([0x00, 0x7c]);
    await ensure([9]);
    await ensure([10]);
    expect([cache.tierOf(0, 9), cache.tierOf(0, 10)]).toEqual(['cold', 'hot']);
    const [row] = await ensure([9]);
    expect(slot(0, row)).toEqual(item(0, 9));
    expect(cache.tierOf(0, 10)).toBe('warm');
  });
});

describe('prefetch', () => {
  it('loads items, so that the next ensure reads nothing', async () => {
    const { source, cache, ensure } = await setUp();
    cache.prefetch(0, Int32Array.of(4, 5, 6));
    await ticks(50);
    expect(source.reads).toHaveLength(3);
    await ensure([4, 5, 6]);
    expect(source.reads).toHaveLength(3);
    expect(cache.statistics()).toMatchObject({ hits: 3, prefetchHits: 3, misses: 0, prefetches: 3 });
    await ensure([4, 5, 6]);
    expect(cache.statistics().prefetchHits).toBe(3);
  });

  it('shares its read with an ensure that comes before the bytes', async () => {
    const { source, cache, ensure, item, slot } = await setUp();
    const { wait, open } = gate();
    source.before = () => wait;
    cache.prefetch(0, Int32Array.of(4, 5, 6));
    cache.prefetch(0, Int32Array.of(6, 5));
    await ticks(3);
    const running = ensure([5, 6, 7]);
    await ticks(3);
    open();
    const rows = await running;
    expect(source.reads).toHaveLength(6);
    expect(slot(0, rows[0])).toEqual(item(0, 5));
    expect(cache.statistics()).toMatchObject({ prefetches: 3, hits: 2, misses: 1 });
  });

  it('overtakes the prefetches of other layers once it is needed', async () => {
    const { pieces, source } = testPieces(shapes, numItems, true);
    const memories = shapes.map(() => testMemory(20 * itemBytes, true));
    const cache = await createNeuronCache({
      layers: [0, 1].map(() => ({ numItems, pieces, slots: 20, warmSlots: 4 })),
      slotMemory: (_, piece) => memories[piece],
      reads: { maxGapBytes: 0, maxReads: 1 },
    });
    cache.prefetch(1, Int32Array.of(10, 20, 30, 40));
    cache.prefetch(0, Int32Array.of(50));
    expect(cache.tierOf(0, 50)).toBe('cold');
    await cache.ensure(0, Int32Array.of(50), 1, new Int32Array(1));
    const items = source.reads.map(([byteOffset]) => (byteOffset - 13) / (3 * itemBytes));
    expect(items.slice(0, 2)).toEqual([10, 50]);
  });
});

describe('prefetch under pressure', () => {
  it('takes no slot that an ensure holds until it is released', async () => {
    const { cache, ensure } = await setUp({ slots: 4 });
    await ensure([1, 2, 3]);
    cache.prefetch(0, Int32Array.of(10, 11, 12));
    await ticks(50);
    expect([1, 2, 3, 10, 11].map((id) => cache.tierOf(0, id))).toEqual(['hot', 'hot', 'hot', 'hot', 'cold']);
    expect(cache.statistics()).toMatchObject({ prefetches: 1, prefetchesRefused: 2 });
    cache.release(0);
    cache.prefetch(0, Int32Array.of(10, 11, 12));
    await ticks(50);
    expect([10, 11, 12].map((id) => cache.tierOf(0, id))).toEqual(['hot', 'hot', 'hot']);
  });

  it('yields slots to items that are needed now', async () => {
    const { source, cache, ensure } = await setUp({ slots: 6 }, { reads: { maxGapBytes: 0, maxReads: 1 } });
    cache.prefetch(0, Int32Array.from(range(20, 32, 2)));
    await ensure([1, 3, 5, 7, 9, 11]);
    expect(cache.statistics()).toMatchObject({ prefetches: 6, prefetchesDropped: 6, coldReads: 6 });
    expect(source.reads.length).toBeLessThanOrEqual(18 + 1);
    cache.checkIntegrity();
  });

  it('is canceled by its signal, except for items that an ensure waits for', async () => {
    const { source, cache, ensure } = await setUp();
    const { wait, open } = gate();
    source.before = () => wait;
    const stop = new AbortController();
    cache.prefetch(0, Int32Array.of(4, 20), undefined, { signal: stop.signal });
    await ticks(3);
    const running = ensure([4]);
    stop.abort();
    open();
    await running;
    expect([cache.tierOf(0, 4), cache.tierOf(0, 20)]).toEqual(['hot', 'cold']);
    expect(cache.statistics().prefetchesDropped).toBe(1);
    cache.prefetch(0, Int32Array.of(30), 1, { signal: stop.signal });
    expect(cache.statistics().prefetches).toBe(2);
  });

  it('reports its failure when the item is needed', async () => {
    const { source, cache, ensure } = await setUp();
    source.before = async () => {
      throw new IoError({ source: 'weights', message: 'EIO: i/o error' });
    };
    cache.prefetch(0, Int32Array.of(4));
    await ticks(50);
    expect(cache.tierOf(0, 4)).toBe('cold');
    expect((await failure(ensure([4]))).items).toEqual([4]);
    source.before = undefined;
    await ensure([4]);
  });
});
