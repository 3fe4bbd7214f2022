import { ArgumentError, CapacityError, FormatError, IoError, ReleasedError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { testMemory, testPieces } from '../../test/cache-parts.js';
import { failure, gate, itemBytes, numItems, range, setUp, shapes, ticks } from '../../test/cache-set-up.js';
import { createNeuronCache, type NeuronCache, type NeuronCacheOptions } from '../index.js';

describe('failures', () => {
  it('name the layer and the items that could not be read; the cache stays usable', async () => {
    const { source, cache, ensure, item, slot } = await setUp({}, { reads: { maxGapBytes: 0, maxReads: 1 } });
    const cause = Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' });
    source.before = async (byteOffset) => {
      if (byteOffset === 13 + 30 * itemBytes) throw cause;
    };
    const error = await failure(ensure([10, 11, 30, 31, 32, 50]));
    expect(error.message).toBe('weights at byte 1933: layer 0, neurons 30 to 32 (piece 0): EIO: i/o error, read');
    expect(error).toMatchObject({ layer: 0, items: [30, 31, 32], piece: 'piece 0', byteOffset: 1933, cause });
    cache.checkIntegrity();
    expect(cache.statistics()).toMatchObject({ failedReads: 1, numReads: 2 }); // reads that had not started were dropped
    source.before = undefined;
    const [row] = await ensure([30]);
    expect(slot(0, row)).toEqual(item(0, 30));
  });

  it('report a file that was truncated', async () => {
    const { source, cache } = await setUp();
    source.before = async (byteOffset) => {
      if (byteOffset > 10_000) throw new IoError({ source: 'weights', byteOffset, message: 'ended early' });
    };
    const ids = Int32Array.from(range(0, 100, 9));
    const error = await failure(cache.ensure(0, ids, ids.length, new Int32Array(ids.length)));
    expect(error.message).toMatch(/layer 0, neurons? .*: weights at byte \d+: ended early/);
    cache.checkIntegrity();
  });

  it('reject bytes that fail the checksum', async () => {
    const verify: NeuronCacheOptions['verify'] = (layer, piece, item, bytes) =>
      bytes.length === itemBytes && !(layer === 0 && piece === 1 && item === 41);
    for (const hasView of [true, false]) {
      const { cache, ensure } = await setUp({ warmSlots: 4 }, { verify, hasView });
      const error = await failure(ensure([40, 41, 42]));
      expect(error).toMatchObject({ items: [41], piece: 'piece 1', byteOffset: 13 + 100 * itemBytes + 41 * itemBytes });
      expect(error.message).toMatch(/is damaged/);
      await ensure([40, 42]);
      expect(cache.tierOf(0, 41)).toBe('cold');
      cache.checkIntegrity();
    }
    for (const tier of [{ hot: [41] }, { warmSlots: 1, warm: [41] }]) {
      expect((await failure(setUp(tier, { verify }))).items).toEqual([41]);
    }
    expect((await failure(setUp({}, { verify, coldEncoding: 'q4_0' }))).items).toEqual([41]);
  });
});

describe('aborts', () => {
  it('reject an ensure at once with the reason of its signal', async () => {
    const { source, cache, ensure } = await setUp();
    source.before = (_, __, signal) =>
      new Promise<void>((_resolve, reject) => {
        signal?.addEventListener('abort', () => reject(new Error('the read was aborted')), { once: true });
      });
    const stop = new AbortController();
    const running = ensure([1, 2, 3], stop.signal);
    await ticks(3);
    expect(source.numRunning).toBe(3);
    stop.abort(new Error('enough'));
    await expect(running).rejects.toThrow('enough');
    await ticks(5);
    expect(source.numRunning).toBe(0);
    cache.checkIntegrity();
    expect(cache.statistics().failedReads).toBe(0);
    await expect(ensure([1], stop.signal)).rejects.toThrow('enough');
    source.before = undefined;
    await ensure([1, 2, 3]);
  });

  it('reject pending calls when the cache is closed', async () => {
    const { source, cache, ensure } = await setUp();
    const { wait, open } = gate();
    source.before = () => wait;
    const running = ensure([1, 2]);
    cache.prefetch(0, Int32Array.of(5));
    await ticks(3);
    const closing = cache.close();
    await expect(running).rejects.toThrow(ReleasedError);
    open();
    await closing;
    await cache.close();
    expect(source.numRunning).toBe(0);
    await expect(ensure([1])).rejects.toThrow(ReleasedError);
    expect(() => cache.prefetch(0, Int32Array.of(1))).toThrow(ReleasedError);
  });
});

describe('errors', () => {
  it('names the maximum number of ids, without side effects', async () => {
    const { cache, ensure } = await setUp({ slots: 5, hot: [0] });
    await ensure([7, 8]);
    const ids = Int32Array.of(1, 0, 2, 2, 3, 4, 5, 6);
    expect(cache.fit(0, ids, 0, ids.length)).toBe(6);
    expect(cache.fit(0, ids, 6, ids.length)).toBe(2);
    const error: unknown = await cache.ensure(0, ids, ids.length, new Int32Array(8)).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CapacityError);
    expect(error).toMatchObject({ needed: 6, available: 4 });
    expect((error as Error).message).toMatch(/the first 6 ids fit/);
    expect([cache.tierOf(0, 7), cache.tierOf(0, 8)]).toEqual(['hot', 'hot']);
    cache.prefetch(0, Int32Array.of(20, 21, 22));
    await ticks(50);
    expect([cache.tierOf(0, 7), cache.tierOf(0, 8)]).toEqual(['hot', 'hot']); // slots are still held
  });

  it('rejects arguments out of range', async () => {
    const { cache, ensure, source } = await setUp();
    const rows = new Int32Array(4);
    await expect(ensure([-1])).rejects.toThrow(ArgumentError);
    await expect(ensure([100])).rejects.toThrow('ids[0]: expected 0 to 99 in layer 0, got 100');
    await expect(cache.ensure(1, rows, 1, rows)).rejects.toThrow('layer: expected 0 to 0, got 1');
    await expect(cache.ensure(0, rows, 5, rows)).rejects.toThrow(ArgumentError);
    await expect(cache.ensure(0, Int32Array.of(1, 2), 2, new Int32Array(1))).rejects.toThrow('rowsOut');
    expect(() => cache.prefetch(0, Int32Array.of(100))).toThrow(ArgumentError);
    const { wait, open } = gate();
    source.before = () => wait;
    const running = ensure([1]);
    await expect(ensure([2])).rejects.toThrow('one ensure at a time');
    expect(() => cache.release(0)).toThrow(ArgumentError);
    open();
    await running;
  });

  it('rejects sources that are too short, and mismatched tiers', async () => {
    await expect(setUp({ numItems: 101 })).rejects.toThrow(FormatError);
    await expect(setUp({ slots: 3, hot: [1, 2, 3] })).rejects.toMatchObject({
      code: 'capacity',
      needed: 4,
      available: 3,
    });
    await expect(setUp({ warmSlots: 1, warm: [1, 2] })).rejects.toThrow(CapacityError);
    await expect(setUp({ hot: [1, 1] })).rejects.toThrow(ArgumentError);
    await expect(setUp({ hot: [1], warmSlots: 1, warm: [1] })).rejects.toThrow(ArgumentError);
    await expect(setUp({ hot: [100] })).rejects.toThrow(ArgumentError);
    await expect(setUp({ frequencies: [0.5] })).rejects.toThrow(ArgumentError);
    await expect(setUp({ pieces: [] })).rejects.toThrow(ArgumentError);
    await expect(setUp({}, { reads: { maxReads: 0 } })).rejects.toThrow(ArgumentError);
  });
});

describe('creation', () => {
  it('frees everything when the initial loading fails or is aborted', async () => {
    const { pieces, source } = testPieces(shapes, numItems, false);
    const memories = shapes.map(() => testMemory(20 * itemBytes, true));
    const create = (signal?: AbortSignal): Promise<NeuronCache> =>
      createNeuronCache({
        layers: [{ numItems, pieces, slots: 20, hot: [1], warmSlots: 50, warm: range(40, 90) }],
        slotMemory: (_, piece) => memories[piece],
        reads: { readBytes: itemBytes },
        ...(signal === undefined ? {} : { signal }),
      });
    source.before = async (byteOffset) => {
      if (byteOffset === 13 + 60 * itemBytes) throw new Error('EIO');
    };
    expect((await failure(create())).items).toEqual([60]);
    expect(source.numRunning).toBe(0);
    const stop = new AbortController();
    source.before = async () => stop.abort(new Error('enough'));
    await expect(create(stop.signal)).rejects.toThrow('enough');
    expect(source.numRunning).toBe(0);
  });

  it('reports progress up to the total', async () => {
    const seen: (readonly [number, number])[] = [];
    const onProgress = (doneBytes: number, totalBytes: number): void => void seen.push([doneBytes, totalBytes]);
    await setUp({ hot: [1, 2], warmSlots: 2, warm: [50, 51] }, { onProgress });
    expect(seen).toHaveLength(6);
    expect(seen.at(-1)).toEqual([4 * 3 * itemBytes, 4 * 3 * itemBytes]);
  });
});
