/** Whether pages are read or computed, by the times that both take. */
import { createBlockManager } from '@winnow/kv-cache';
import { describe, expect, test } from 'vitest';
import type { KvMemory } from '../../memory/kv-memory.js';
import { KvPool } from '../kv-pool.js';
import type { Scheduler } from '../scheduler.js';
import { Sequence } from '../sequence.js';
import { ComputeTime } from './page-tier.js';
import { PromptCache } from './prompt-cache.js';

const blockSize = 4;
const numPages = 20;
const prompt = Int32Array.from({ length: numPages * blockSize + 1 }, (_, index) => index);

function createPool(): KvPool {
  const memory = { queue: () => undefined, flush: async () => {}, contentBuffers: [], blockBuffers: [] };
  const manager = createBlockManager({ numBlocks: 2 * numPages, blockSize });
  return new KvPool({ manager, memory: memory as unknown as KvMemory, states: undefined, report: () => undefined });
}

/** A store with the pages of the prompt; reading one takes `readMs`, and a copy to the cache waits `stepMs` for a step. */
async function createCache({ readMs = 0, stepMs = 0 } = {}) {
  let timeMs = 0;
  let last: Promise<unknown> = Promise.resolve();
  const pages = new Map<string, Uint8Array>();
  const store = {
    has: (key: string) => pages.has(key),
    write: async (key: string, page: Uint8Array) => void pages.set(key, page),
    remove: async () => {},
    statistics: () => ({ numPages: pages.size, usedBytes: 0 }),
    // one after the other
    read(key: string): Promise<Uint8Array | undefined> {
      const page = last.then(() => {
        timeMs += readMs;
        return pages.get(key);
      });
      last = page;
      return page;
    },
  };
  const scheduler = {
    exclusive<T>(task: () => Promise<T>): Promise<T> {
      timeMs += stepMs;
      return task();
    },
  } as Scheduler;
  const cacheOf = (pool: KvPool): PromptCache => {
    const sessionKey = { modelHash: 'model', options: {} };
    return new PromptCache({ pool, scheduler, stores: [store], sessionKey, now: () => timeMs });
  };
  const writing = createPool();
  const writer = cacheOf(writing);
  const sequence = Sequence.create(writing);
  sequence.append(prompt);
  sequence.commit(false);
  writer.save(sequence, prompt.length);
  await writer.close();
  expect(pages.size).toBe(numPages);
  const pool = createPool();
  const cache = cacheOf(pool);
  /** Number of pages that a prompt finds. */
  const restore = async (): Promise<number> => {
    const reading = Sequence.create(pool, `salt ${timeMs}`);
    Object.defineProperty(reading, 'salt', { value: '' }); // its pages are not those of the pool
    const numTokens = await cache.restore(reading, prompt, undefined);
    reading.free();
    return numTokens / blockSize;
  };
  return { cache, restore, setReadMs: (ms: number) => void (readMs = ms) };
}

/** The first page of a prompt, and those that are read at once after it. */
const numProbed = 5;

describe('a page takes as long to read as its prompt waits for it', () => {
  test('with the steps of other sequences that run before it can be copied', async () => {
    const { cache, restore } = await createCache({ stepMs: 50 });
    cache.noteComputed(prompt.length, numPages * 10);
    expect([await restore(), await restore()]).toEqual([numProbed, 0]);
    expect(cache.metrics().readMs).toBe(numProbed * 50);
  });

  test('and is read as long as computing takes longer', async () => {
    const { cache, restore } = await createCache({ readMs: 5, stepMs: 4 });
    cache.noteComputed(prompt.length, numPages * 10);
    expect([await restore(), await restore()]).toEqual([numPages, numPages]);
  });
});

describe('how long computing takes', () => {
  test('is not told by the few tokens of a prompt after the pages that were found', async () => {
    const { cache, restore } = await createCache({ readMs: 80 });
    cache.noteComputed(prompt.length, numPages * 10);
    for (let turn = 0; turn < 40; turn++) cache.noteComputed(1, 9);
    expect([await restore(), await restore()]).toEqual([numProbed, 0]);
  });

  test('is at least that of such a step before a page was computed', async () => {
    const { cache, restore, setReadMs } = await createCache({ readMs: 5 });
    cache.noteComputed(1, 9);
    expect(await restore()).toBe(numPages);
    setReadMs(80);
    expect(await restore()).toBeLessThan(numPages);
    expect(await restore()).toBe(0);
  });

  test('is soon that of a machine whose load has ended, or has begun', () => {
    const computing = new ComputeTime(64);
    expect(computing.pageMs).toBe(undefined);
    for (let index = 0; index < 1000; index++) computing.note(64, 800);
    expect(computing.pageMs).toBeCloseTo(800, 9);
    computing.note(32 * 64, 32 * 10);
    // 0.9 ** 32 of the weight is left to the pages before: 10 + 790 * 0.034
    expect(computing.pageMs).toBeCloseTo(10 + 790 * 0.9 ** 32, 9);
    // one prompt of many pages counts as much as as many prompts
    const others = new ComputeTime(64);
    for (let index = 0; index < 1000; index++) others.note(64, 800);
    for (let index = 0; index < 32; index++) others.note(64, 10);
    expect(others.pageMs).toBeCloseTo(computing.pageMs as number, 9);
  });
});
