/** Pages of prompts in a folder: found by later models, damaged or missing ones computed. */
import { mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  loadModel,
  openPromptStore,
  type EngineEvent,
  type LoadOptions,
  type Model,
  type PromptStore,
} from '../../src/index.js';
import { PageTier } from '../../src/runtime/prompt-cache/page-tier.js';
import { archPath } from '../support/golden-files.js';
import { ids } from '../support/prompts.js';

const path = archPath('llama', 'model.gguf') as string;
const greedy = { temperature: 0, ignoreEos: true, maxTokens: 4 } as const;
let folder = '';

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-prompts-'));
});
afterEach(() => rm(folder, { recursive: true }));

const open = (maxBytes = 1e9): Promise<PromptStore> => openPromptStore(join(folder, 'pages'), { maxBytes });
const pages = (): Promise<string[]> => readdir(join(folder, 'pages'));

/** Generates in a model of its own, as after a restart, and waits until its pages are stored. */
async function run(
  promptCache: PromptStore | readonly PromptStore[] | undefined,
  options: LoadOptions & { readonly salt?: string; readonly prompt?: number[]; readonly maxTokens?: number } = {},
) {
  const { salt, prompt = ids(200), maxTokens = greedy.maxTokens, ...load } = options;
  const notices: string[] = [];
  const onEvent = (event: EngineEvent): void => void (event.kind === 'notice' && notices.push(event.text));
  const model: Model = await loadModel(path, {
    ...{ context: 512, threads: 1, onEvent, ...load },
    ...(promptCache === undefined ? {} : { promptCache }),
  });
  try {
    const salted = salt === undefined ? {} : { cacheSalt: salt };
    const generate = { ...greedy, ...salted, maxTokens };
    const { tokens, cachedTokens } = await model.generate(prompt, generate).result();
    const { blockSize, numUsedBlocks } = model.metrics().cache;
    while (model.metrics().cache.numUsedBlocks > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    return { tokens, cachedTokens, blockSize, numUsedBlocks, notices, metrics: model.metrics().promptCache };
  } finally {
    await model.dispose();
  }
}

describe('after a restart', () => {
  test('a prompt is read instead of computed, and its answer is the same', async () => {
    const alone = await run(undefined);
    const first = await run(await open());
    expect([first.tokens, first.cachedTokens]).toEqual([alone.tokens, 0]);
    const numPages = Math.floor(200 / alone.blockSize);
    expect(await pages()).toHaveLength(numPages);
    const again = await run(await open());
    expect(again.tokens).toEqual(alone.tokens);
    expect(again.cachedTokens).toBe(numPages * alone.blockSize);
    expect(again.metrics).toMatchObject({ numReadTokens: again.cachedTokens, numStoredPages: 0, numDamagedPages: 0 });
    // a prompt that continues differently shares the pages before
    const other = [...ids(2 * alone.blockSize), ...ids(100).toReversed()];
    expect((await run(await open(), { prompt: other })).cachedTokens).toBe(2 * alone.blockSize);
    // the last token is computed in any case
    const whole = ids(alone.blockSize);
    expect((await run(await open(), { prompt: whole })).cachedTokens).toBe(0);
  });

  test.each<[string, LoadOptions & { readonly salt?: string }]>([
    ['another salt', { salt: 'b' }],
    ['none', {}],
    ['another dtype of the cache', { salt: 'a', kvCache: { dtype: 'f16' } }],
    ['another attention policy', { salt: 'a', attention: 'streaming:sinks=4,window=32' }],
  ])('sequences of %s find nothing', async (_name, options) => {
    const stored = await run(await open(), { salt: 'a' });
    expect((await run(await open(), { salt: 'a' })).cachedTokens).toBeGreaterThan(0);
    expect(stored.cachedTokens).toBe(0);
    expect((await run(await open(), options)).cachedTokens).toBe(0);
  });

  test.each<[string, LoadOptions]>([
    ['streaming attention', { attention: 'streaming:sinks=4,window=100' }],
    ['page-topk', { attention: 'decode=page-topk:budget=128' }],
    ['an 8-bit cache', { kvCache: { dtype: 'q8_0' } }],
  ])('the answer is the same with %s', async (_name, options) => {
    const first = await run(await open(), options);
    const again = await run(await open(), options);
    expect(again.tokens).toEqual(first.tokens);
    expect([first.cachedTokens, again.cachedTokens > 0]).toEqual([0, true]);
  });
});

describe('the next prompt of a conversation', () => {
  test.each<[string, LoadOptions]>([
    ['dense attention', {}],
    ['other attention for answers', { attention: 'prefill=dense;decode=page-topk:budget=128' }],
  ])('finds the pages of the answer in another process, with %s', async (_name, load) => {
    const options = { ...load, prompt: ids(100), maxTokens: 100 };
    const first = await run(await open(), { ...options, salt: 'a' });
    const prompt = [...ids(100), ...first.tokens, ...ids(20)];
    // the last token of an answer is not computed
    const numTokens = Math.floor(199 / first.blockSize) * first.blockSize;
    expect(numTokens).toBeGreaterThan(100);
    const next = await run(await open(), { ...load, salt: 'a', prompt });
    expect(next.cachedTokens).toBe(numTokens);
    expect((await run(await open(), { ...load, salt: 'b', prompt })).cachedTokens).toBe(0);
    // as in the process that has answered, which has the pages in its cache
    await using model = await loadModel(path, { context: 512, threads: 1, ...load });
    await model.generate(ids(100), { ...greedy, maxTokens: 100 }).result();
    const { tokens, cachedTokens } = await model.generate(prompt, greedy).result();
    expect([cachedTokens, tokens]).toEqual([numTokens, next.tokens]);
  });

  test('finds no page of the answer when that has none', async () => {
    const { metrics } = await run(await open(), { prompt: ids(100), maxTokens: 28 });
    expect(metrics?.numStoredPages).toBe(1);
    expect((await run(await open(), { prompt: ids(100), maxTokens: 29 })).metrics?.numStoredPages).toBe(1);
  });
});

describe('a folder that does not work', () => {
  test('damaged pages are computed, reported and removed', async () => {
    const alone = await run(await open());
    const [name = ''] = await pages();
    for (const file of await pages()) {
      const bytes = await readFile(join(folder, 'pages', file));
      bytes[bytes.length >> 1] = ~(bytes[bytes.length >> 1] as number);
      await writeFile(join(folder, 'pages', file), bytes);
    }
    const again = await run(await open());
    expect([again.tokens, again.cachedTokens]).toEqual([alone.tokens, 0]);
    expect(again.notices).toEqual([expect.stringContaining('the prompt cache ignores a damaged page')]);
    expect(again.metrics?.numDamagedPages).toBe(1);
    expect((await run(await open())).cachedTokens).toBeGreaterThan(0); // stored anew
    await rm(join(folder, 'pages', name));
  });

  test('a disk that takes nothing fails no request', async () => {
    const full: PromptStore = {
      ...{ has: () => false, read: async () => undefined, remove: async () => {} },
      write: () => Promise.reject(new Error('ENOSPC: no space left on device')),
      statistics: () => ({ numPages: 0, usedBytes: 0 }),
    };
    const alone = await run(undefined);
    const { tokens, notices } = await run(full);
    expect([tokens, notices]).toEqual([alone.tokens, [expect.stringContaining('ENOSPC')]]);
  });
});

test('pages whose reading takes longer than computing are not read', async () => {
  let time = 0;
  const slow = await open();
  let last: Promise<unknown> = Promise.resolve();
  const late: PromptStore = {
    ...{ has: (key) => slow.has(key), write: (key, page) => slow.write(key, page), remove: (key) => slow.remove(key) },
    statistics: () => slow.statistics(),
    // one after the other
    read: (key) => {
      const page = last.then(() => {
        time += 1e6;
        return slow.read(key);
      });
      last = page;
      return page;
    },
  };
  await using model = await loadModel(path, { context: 512, threads: 1, promptCache: late, now: () => ++time });
  const generate = async (prompt: number[], cacheSalt: string): Promise<number> =>
    (await model.generate(prompt, { ...greedy, cacheSalt }).result()).cachedTokens;
  const prompt = ids(500);
  expect(await generate(prompt, 'a')).toBe(0);
  for (const salt of ['b', 'c']) await run(slow, { salt, prompt });
  // the first page, and those that were read at once after it, measure the rate
  expect(await generate(prompt, 'b')).toBe(5 * model.metrics().cache.blockSize);
  expect(await generate(prompt, 'c')).toBe(0);
});

test('further pages are read at once, a limited number of them, after the first one was found', async () => {
  const pagesOfRuns = await open();
  const prompt = ids(500);
  await run(pagesOfRuns, { prompt });
  const counts: number[] = [];
  let numReading = 0;
  const counting: PromptStore = {
    ...{ has: () => true, write: async () => {}, remove: async () => {} },
    statistics: () => pagesOfRuns.statistics(),
    async read(key) {
      counts.push(++numReading);
      await new Promise((resolve) => setImmediate(resolve));
      const page = await pagesOfRuns.read(key);
      numReading--;
      return page;
    },
  };
  const { blockSize, cachedTokens } = await run(counting, { prompt });
  expect(cachedTokens).toBe(7 * blockSize);
  expect(counts.slice(0, 5)).toEqual([1, 1, 2, 3, 4]);
  expect([counts.length, Math.max(...counts)]).toEqual([7, 4]);
  counts.length = 0;
  expect((await run(counting, { prompt: prompt.toReversed() })).cachedTokens).toBe(0);
  expect(counts).toEqual([1]); // nobody has computed this prompt
});

test('a store that is slow for one page at a time, and quick for several, is read', () => {
  const tier = new PageTier({} as PromptStore);
  const computeMs = 50;
  /** Reads as many pages as it may of `count`, the first of which takes 80 ms. */
  const read = (count: number, restMs: number): number => {
    tier.beginPrompt(computeMs);
    for (let page = 0; page < count; page++) {
      if (!tier.isWorthReading(computeMs)) return page;
      tier.noteStart();
      tier.noteRead(page === 0 ? 80 : restMs);
    }
    return count;
  };
  expect(read(10, 5)).toBe(10);
  expect(read(10, 100)).toBeLessThan(10); // it has become slow
  expect(read(10, 100)).toBe(0);
  const later = Array.from({ length: 40 }, () => read(10, 5)); // measured again for some prompts
  expect([later[0], later.at(-1)]).toEqual([0, 10]);
});

test('of several stores each is measured alone, and all get the pages', async () => {
  let time = 0;
  const [near, far] = await Promise.all(
    ['near', 'far'].map((name) => openPromptStore(join(folder, name), { maxBytes: 1e9 })),
  );
  const stores = [far as PromptStore, near as PromptStore];
  for (const store of stores) await run(store, { salt: 'b' });
  const slow: PromptStore = {
    ...{ has: (key) => stores[0]?.has(key) === true, statistics: () => ({ numPages: 0, usedBytes: 0 }) },
    ...{ write: async () => {}, remove: async () => {} },
    read: (key) => {
      time += 1e6;
      return (stores[0] as PromptStore).read(key);
    },
  };
  await using model = await loadModel(path, {
    ...{ context: 512, threads: 1, promptCache: [slow, near as PromptStore], now: () => ++time },
  });
  expect((await model.generate(ids(200), { ...greedy, cacheSalt: 'a' }).result()).cachedTokens).toBe(0);
  const { cachedTokens } = await model.generate(ids(200), { ...greedy, cacheSalt: 'b' }).result();
  const { blockSize } = model.metrics().cache;
  expect(cachedTokens).toBe(Math.floor(199 / blockSize) * blockSize);
  const both = [await open(), near as PromptStore];
  await run(both, { salt: 'c' });
  for (const store of both) expect((await run(store, { salt: 'c' })).cachedTokens).toBeGreaterThan(0);
});

test('a cache that is more than its blocks has no pages, and says so', async () => {
  const { notices } = await run(await open(), { kvCache: { prefixSharing: false } });
  expect(notices).toEqual([expect.stringContaining('promptCache has no effect')]);
  expect(await pages()).toEqual([]);
});

describe('a folder', () => {
  const key = (index: number): string => String(index).padStart(64, '0');
  const page = new Uint8Array(10).fill(1);

  test('keeps to its limit; the pages that were not used for longest go, also those of earlier runs', async () => {
    const store = await open(30);
    for (const index of [1, 2, 3]) await store.write(key(index), page);
    await store.read(key(1));
    await store.write(key(4), page);
    expect([1, 2, 3, 4].map((index) => store.has(key(index)))).toEqual([true, false, true, true]);
    expect(store.statistics()).toEqual({ numPages: 3, usedBytes: 30 });
    await expect(store.write(key(5), new Uint8Array(31))).rejects.toThrow('prompt cache');
    const old = new Date(2000, 0, 1);
    await utimes(join(folder, 'pages', `${key(3)}.page`), old, old);
    expect((await open(20)).has(key(3))).toBe(false);
    expect((await pages()).length).toBe(2);
  });

  test('is readable by its owner alone, leaves other files, and forgets pages that others removed', async () => {
    const store = await open();
    await store.write(key(1), page);
    expect((await stat(join(folder, 'pages', `${key(1)}.page`))).mode & 0o077).toBe(0);
    await writeFile(join(folder, 'pages', 'notes.txt'), 'x');
    const second = await open();
    expect(second.statistics().numPages).toBe(1);
    await rm(join(folder, 'pages', `${key(1)}.page`));
    expect([await second.read(key(1)), second.has(key(1))]).toEqual([undefined, false]);
    expect(await pages()).toEqual(['notes.txt']);
    await expect(open(0)).rejects.toThrow('maxBytes');
    await expect(openPromptStore(join(folder, 'pages', 'notes.txt'), { maxBytes: 1 })).rejects.toMatchObject({
      code: 'io',
    });
  });
});
