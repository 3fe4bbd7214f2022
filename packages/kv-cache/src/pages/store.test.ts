import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ArgumentError, CapacityError, createRng, IoError, type Rng } from '@winnow/tensor';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { faultyOpen, noFaults } from '../../test/faulty-file.js';
import {
  createPageStore,
  memoryPageFile,
  openPageFrames,
  PageError,
  type PageFile,
  type PageMove,
  type PageStore,
  type PageStoreOptions,
} from '../index.js';
import { openPageFile } from '../index.node.js';

const shape = { pageBytes: 256, blockSize: 2 };
const pageOf = (value: number): Uint8Array => new Uint8Array(256).fill(value);
const positionsOf = (pageId: number): number[] => [2 * pageId, 2 * pageId + 1];

async function storeOver(file: PageFile | undefined, options: Partial<PageStoreOptions> = {}): Promise<PageStore> {
  return createPageStore({
    ...shape,
    warmBytes: 4 * 256,
    ...(file === undefined ? {} : { frames: await openPageFrames(file, shape) }),
    ...options,
  });
}

async function readPage(store: PageStore, pageId: number, promote = false): Promise<Uint8Array> {
  const target = new Uint8Array(256);
  await store.read(pageId, target, { promote });
  return target;
}

describe('tiers', () => {
  it('the least recently used page is demoted, and every page can be read', async () => {
    const moves: PageMove[] = [];
    const store = await storeOver(memoryPageFile(), { onMove: (move) => moves.push(move) });
    for (let pageId = 0; pageId < 4; pageId++) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    await readPage(store, 0);
    await store.put(4, pageOf(4), positionsOf(4));
    expect(moves).toEqual([{ pageId: 1, from: 'warm', to: 'cold', sizeBytes: 256 }]);
    expect([0, 1, 2, 3, 4, 5].map((pageId) => store.tierOf(pageId))).toEqual([
      'warm',
      'cold',
      'warm',
      'warm',
      'warm',
      undefined,
    ]);
    for (let pageId = 0; pageId < 5; pageId++) {
      expect(await readPage(store, pageId)).toEqual(pageOf(pageId));
      expect([...(store.positions(pageId) as Int32Array)]).toEqual(positionsOf(pageId));
    }
    expect(store.statistics()).toMatchObject({
      numWarmPages: 4,
      numColdPages: 1,
      warmHits: 5,
      misses: 1,
      demotions: 1,
      bytesRead: 256,
      bytesWritten: 256,
    });
  });

  it('a promoted page replaces one that is in the file, and is demoted again without a write', async () => {
    const store = await storeOver(memoryPageFile());
    for (let pageId = 0; pageId < 6; pageId++) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    await readPage(store, 0, true);
    expect(store.tierOf(0)).toBe('cold'); // the four warm pages are written only now
    await store.flush();
    await readPage(store, 0, true);
    expect(store.tierOf(0)).toBe('warm');
    expect(store.tierOf(2)).toBe('cold');
    const { bytesWritten } = store.statistics();
    for (const pageId of [10, 11, 12, 13]) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    expect(store.statistics().bytesWritten).toBe(bytesWritten);
    expect(await readPage(store, 0)).toEqual(pageOf(0));
    expect(store.statistics().promotions).toBe(1);
  });

  it('peek returns a warm page, whose bytes stay unchanged', async () => {
    const store = await storeOver(memoryPageFile());
    await store.put(0, pageOf(1), positionsOf(0));
    const seen = store.peek(0);
    await store.put(0, pageOf(2), positionsOf(0));
    expect([seen, store.peek(0)]).toEqual([pageOf(1), pageOf(2)]);
    await store.demote(0);
    expect([store.peek(0), store.peek(7)]).toEqual([undefined, undefined]);
    expect(store.statistics().warmHits).toBe(2);
  });
});

describe('missing or full tiers', () => {
  it('without a cold tier, a full warm tier rejects new pages and keeps its own', async () => {
    const store = await storeOver(undefined);
    for (let pageId = 0; pageId < 4; pageId++) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    await expect(store.put(4, pageOf(4), positionsOf(4))).rejects.toThrow(CapacityError);
    await store.put(3, pageOf(33), positionsOf(3));
    expect(await readPage(store, 3)).toEqual(pageOf(33));
    expect(store.tierOf(4)).toBeUndefined();
    store.delete([0]);
    await store.put(4, pageOf(4), positionsOf(4));
  });

  it('without a warm tier every page goes to the file', async () => {
    const store = await storeOver(memoryPageFile(), { warmBytes: 100 });
    await store.put(0, pageOf(1), positionsOf(0));
    expect(store.tierOf(0)).toBe('cold');
    expect(await readPage(store, 0, true)).toEqual(pageOf(1));
    await store.close();
  });

  it('rejects pages and frames of another size, and unknown pages', async () => {
    const frames = await openPageFrames(memoryPageFile(), { pageBytes: 128, blockSize: 2 });
    expect(() => createPageStore({ ...shape, warmBytes: 1000, frames })).toThrow(ArgumentError);
    const store = await storeOver(memoryPageFile());
    await expect(store.put(0, new Uint8Array(3), [0, 1])).rejects.toThrow(ArgumentError);
    await expect(store.read(0, pageOf(0))).rejects.toThrow(ArgumentError);
  });
});

interface StoreRun {
  readonly store: PageStore;
  /** The byte that each page was last filled with. */
  readonly expected: Map<number, number>;
  version: number;
}

async function runCommand(run: StoreRun, rng: Rng, index: number): Promise<void> {
  const { store, expected } = run;
  const pageId = rng.nextInt(12);
  const kind = rng.nextInt(8);
  if (kind <= 2) {
    const ids = [...new Set([pageId, rng.nextInt(12), rng.nextInt(12)])]; // several concurrently
    const puts = ids.map((id) => {
      expected.set(id, ++run.version % 256);
      return store.put(id, pageOf(run.version % 256), positionsOf(id));
    });
    await Promise.all(puts);
  } else if (kind === 3) {
    store.delete([pageId]);
    expected.delete(pageId);
  } else if (kind === 4) store.prefetch([pageId, pageId + 1, pageId + 2]);
  else if (kind === 5 && index % 5 === 0) await store.flush();
  else if (kind === 6) await store.demote(pageId);
  else if (expected.has(pageId)) {
    expect(await readPage(store, pageId, rng.nextInt(2) === 0)).toEqual(pageOf(expected.get(pageId) as number));
  }
}

it('after random commands every page has its latest contents', async () => {
  const rng = createRng(5);
  for (let round = 0; round < 5; round++) {
    const store = await storeOver(memoryPageFile(), { maxInFlightBytes: 512 });
    const run: StoreRun = { store, expected: new Map(), version: 0 };
    for (let i = 0; i < 200; i++) {
      await runCommand(run, rng, i);
      expect(store.statistics().numWarmPages).toBeLessThanOrEqual(4);
      for (let id = 0; id < 12; id++) expect(store.tierOf(id) !== undefined).toBe(run.expected.has(id));
    }
    expect(store.statistics().peakInFlightBytes).toBeLessThanOrEqual(512);
    await store.close();
  }
});

describe('prefetch', () => {
  it('reads each page once, within the limit', async () => {
    const store = await storeOver(memoryPageFile(), { warmBytes: 0, maxInFlightBytes: 3 * 256 });
    for (let pageId = 0; pageId < 8; pageId++) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    store.prefetch([0, 1, 2, 3, 4]);
    store.prefetch([0, 1]);
    for (let pageId = 0; pageId < 5; pageId++) expect(await readPage(store, pageId)).toEqual(pageOf(pageId));
    expect(store.statistics()).toMatchObject({ prefetchHits: 3, misses: 2, bytesRead: 5 * 256 });
    expect(store.statistics().peakInFlightBytes).toBeLessThanOrEqual(3 * 256);
  });

  it('a page that is stored again invalidates its prefetched bytes', async () => {
    const store = await storeOver(memoryPageFile(), { warmBytes: 0 });
    await store.put(0, pageOf(1), positionsOf(0));
    store.prefetch([0]);
    await store.put(0, pageOf(2), positionsOf(0));
    expect(await readPage(store, 0)).toEqual(pageOf(2));
  });
});

describe('faults of the cold tier', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'winnow-store-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('a full disk loses no page: they stay warm, and the new one is rejected', async () => {
    const faults = noFaults();
    const file = await openPageFile(join(folder, 'pages'), { open: faultyOpen(faults) });
    const store = await storeOver(file);
    for (let pageId = 0; pageId < 6; pageId++) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    faults.writeError = 'ENOSPC';
    faults.writtenBeforeError = 100;
    await expect(store.put(6, pageOf(6), positionsOf(6))).rejects.toThrow(/ENOSPC/);
    await expect(store.put(6, pageOf(6), positionsOf(6))).rejects.toThrow(IoError);
    await expect(store.demote(5)).rejects.toThrow(IoError);
    await expect(store.flush()).rejects.toThrow(IoError);
    expect(store.tierOf(6)).toBeUndefined();
    for (let pageId = 0; pageId < 6; pageId++) expect(await readPage(store, pageId)).toEqual(pageOf(pageId));
    faults.writeError = undefined;
    await store.put(6, pageOf(6), positionsOf(6));
    for (let pageId = 0; pageId < 7; pageId++) expect(await readPage(store, pageId)).toEqual(pageOf(pageId));
    await store.close();
  });

  it('a failing read is reported to the reader, prefetched or not, and can be retried', async () => {
    const faults = noFaults();
    const file = await openPageFile(join(folder, 'pages'), { open: faultyOpen(faults) });
    const store = await storeOver(file, { warmBytes: 0 });
    for (const pageId of [3, 4]) await store.put(pageId, pageOf(pageId), positionsOf(pageId));
    faults.readError = 'EIO';
    store.prefetch([3]);
    for (const pageId of [3, 4, 3]) {
      const error = await readPage(store, pageId).catch((caught: unknown) => caught);
      expect(PageError.isInstance(error)).toBe(true);
      expect(error).toMatchObject({ pageIds: [pageId], positions: positionsOf(pageId) });
    }
    faults.readError = undefined;
    expect(await readPage(store, 3)).toEqual(pageOf(3));
    await store.close();
  });
});
