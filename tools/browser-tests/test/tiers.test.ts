/** The cold tier and saved sessions in the origin private file system; sessions moved from Node to a page and back. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { memorySink, memorySource } from '@winnow/bytes';
import { loadModel, type KvCacheOptions, type Model } from '@winnow/engine';
import { repoRoot, testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { TiersPage } from './pages/tiers.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const path = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'llama', 'model.gguf');
const files = { 'llama.gguf': readFileSync(path) };
const isFull = testCoverage === 'full';
const greedy = { temperature: 0, ignoreEos: true } as const;
const prompt = Array.from({ length: 540 }, (_, index) => 3 + ((index * 7) % 50));
const numTokens = 30;

type Name = keyof TiersPage & string;
type Input<N extends Name> = Parameters<TiersPage[N]>[0];
type Call = <N extends Name>(name: N, input: Input<N>) => Promise<Awaited<ReturnType<TiersPage[N]>>>;

let browser: Browser;
let code: string;
let model: Model;
let expected: readonly number[];
beforeAll(async () => {
  if (missingChromium !== undefined) return;
  ({ code } = await bundlePage('tiers'));
  browser = await connectChromium();
  model = await loadModel(path, { context: 1024, maxSessions: 2, batchSize: 32, kvCache: { prefixSharing: false } });
  expected = (await model.generate(prompt, { ...greedy, maxTokens: numTokens }).result()).tokens;
});
afterAll(async () => {
  await browser?.close();
  await model?.dispose();
});

/** The pool holds about two thirds of the tokens; a small warm tier and files hold the rest. */
const kvCache = (folder: string): KvCacheOptions => {
  const { kvBytesPerToken } = model.plan;
  return { budget: 6 * 64 * kvBytesPerToken, offload: { memory: 64 * kvBytesPerToken, folder } };
};

function testSavedFile(call: Call, url: () => string): void {
  test('a session in a file of the origin resumes; another save replaces it', async () => {
    await call('load', { url: url() });
    await call('begin', { prompt, maxTokens: 10 });
    await call('save', 'saved/story.session');
    await call('goOn', 5);
    await call('save', 'saved/story.session');
    await call('dispose', null);
    await call('load', { url: url(), kvCache: kvCache('kv') });
    await call('restore', 'saved/story.session');
    expect(await call('goOn', numTokens - 15)).toEqual(expected.slice(15));
    expect(await call('filesOf', 'saved')).toEqual(['story.session']);
    expect(await call('restoreFails', 'saved/other.session')).toMatch(/^IoError: .*NotFound/);
    expect(await call('restoreFails', '../story.session')).toMatch(/^ArgumentError/);
  });
}

function testMovedBytes(call: Call, url: () => string): void {
  test('from Node to the page and back, in the middle of a generation', async () => {
    const there = model.createSession();
    await there.generate(prompt, { ...greedy, maxTokens: 10 }).result();
    const sink = memorySink();
    await there.save(sink);
    there.dispose();
    await call('load', { url: url(), kvCache: kvCache('kv') });
    await call('restoreBytes', Buffer.from(sink.toBytes()).toString('base64'));
    expect(await call('goOn', 10)).toEqual(expected.slice(10, 20));
    const bytes = Buffer.from(await call('saveBytes', null), 'base64');
    using back = await model.restoreSession(memorySource(bytes));
    expect((await back.resume({ maxTokens: 10 }).result()).tokens).toEqual(expected.slice(20));
  });
}

describe.skipIf(missingChromium !== undefined).each([
  ['in the page', { isIsolated: true, isWorker: false }],
  ['in a worker of the page', { isIsolated: true, isWorker: true }],
  ['in a page without shared memory', { isIsolated: false, isWorker: false }],
])(suiteName('cache files %s of Chromium'), (_name, { isIsolated, isWorker }) => {
  let page: OpenPage<TiersPage>;
  let url: string;
  beforeAll(async () => {
    page = await openPage<TiersPage>(browser, { code, isIsolated, files });
    url = `${page.server.url}files/llama.gguf`;
  });
  afterEach(() => call('dispose', null));
  afterAll(() => page?.close());
  const call: Call = (name, input) =>
    (isWorker ? page.call('inWorker', { name, input }) : page.call(name, input as never)) as never;

  test('the cold tier: the same tokens, read from files that are deleted with the model', async () => {
    await call('load', { url, kvCache: kvCache('cold/kv') });
    expect(await call('begin', { prompt, maxTokens: numTokens })).toEqual(expected);
    const tiers = await call('tiers', null);
    expect(tiers?.bytesWritten).toBeGreaterThan(0);
    expect(tiers?.bytesRead).toBeGreaterThan(0);
    expect(tiers?.numMisses).toBeGreaterThan(0);
    expect((await call('filesOf', 'cold')).length).toBe(1); // the folder
    await call('dispose', null);
    await call('load', { url, kvCache: kvCache('kv') });
    expect((await call('filesOf', 'kv')).every((name) => name.endsWith('.pages'))).toBe(true);
    await call('dispose', null);
    expect(await call('filesOf', 'kv')).toEqual([]);
  });

  // files are opened in the same way whether or not memory is shared, and a worker has the bytes of its page
  if (isFull || isIsolated) testSavedFile(call, () => url);
  if (isFull || (isIsolated && !isWorker)) testMovedBytes(call, () => url);

  test('the console is empty', () => {
    expect(page.complaints).toEqual([]);
  });
});
