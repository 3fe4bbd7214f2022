/** Downloads into the origin private file system, from a hub on real connections. */
import { FakeHub, gitSha1, sha256 } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { HubPage, Settings } from './pages/hub.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const [commitA, commitB] = ['a'.repeat(40), 'b'.repeat(40)];
const weights = Uint8Array.from({ length: 1_000_000 }, (_, index) => Math.imul(index, 0x9e3779b1) >>> 24);
const files = {
  'config.json': new TextEncoder().encode('{"model_type":"llama"}'),
  'empty.txt': new Uint8Array(),
  'model.safetensors': weights,
  'tokenizer.json': new TextEncoder().encode('{}'),
};
const digests = Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, sha256(bytes)]));

let browser: Browser;
let page: OpenPage<HubPage>;
let hub: FakeHub;

const download = (more: Omit<Settings, 'endpoint'> = {}): ReturnType<HubPage['download']> =>
  page.call('download', { endpoint: hub.endpoint, ...more });
const ranges = (): (string | undefined)[] =>
  hub.requests.filter(({ kind }) => kind === 'storage').map(({ range }) => range);

beforeAll(async () => {
  if (missingChromium !== undefined) return;
  const { code } = await bundlePage('hub');
  browser = await connectChromium();
  page = await openPage<HubPage>(browser, { code, isIsolated: false });
});

afterAll(async () => {
  await page?.close();
  await browser?.close();
});

beforeEach(async () => {
  hub = await FakeHub.start();
  hub.repos['org/model'] = { commits: { [commitA]: files }, refs: { main: commitA } };
});

afterEach(async () => {
  await hub.stop();
  await page?.call('clear', null);
});

describe.skipIf(missingChromium !== undefined)(suiteName('downloads in a browser'), () => {
  test('of a long list in pages at one commit; later ones transfer only what changed and remove the rest', async () => {
    hub.pageSize = 2;
    expect(await download()).toEqual({ commit: commitA, files: digests });
    expect(hub.numRequests('tree', `/api/models/org/model/tree/${commitA}`)).toBe(2);
    expect(await download({ offline: true })).toEqual({ commit: commitA, files: digests });
    const config = new TextEncoder().encode('{"model_type":"mistral"}');
    const changed = { ...files, 'config.json': config };
    hub.repos['org/model'] = { commits: { [commitA]: files, [commitB]: changed }, refs: { main: commitB } };
    hub.requests = [];
    expect(await download()).toEqual({ commit: commitB, files: { ...digests, 'config.json': sha256(config) } });
    expect(hub.requests.filter(({ kind }) => kind === 'resolve').map(({ path }) => path)).toEqual(['config.json']);
    const names = Object.entries(changed).map(([name, bytes]) => (name.startsWith('model') ? sha256 : gitSha1)(bytes));
    expect(await page.call('blobs', null)).toEqual(names.sort());
  });

  test('resume in the same call when the connection is lost, also from a host that ignores ranges', async () => {
    hub.cuts['model.safetensors'] = [300_000, 200_000];
    expect(await download()).toEqual({ commit: commitA, files: digests });
    expect(ranges()).toEqual([undefined, 'bytes=300000-', 'bytes=500000-']);
    await page.call('clear', null);
    hub.ignoresRange = true;
    hub.cuts['model.safetensors'] = [300_000];
    expect(await download()).toEqual({ commit: commitA, files: digests });
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('interrupted downloads in a browser'), () => {
  test('resume in the next call; until then they are incomplete', async () => {
    hub.cuts['model.safetensors'] = [600_000, 0];
    expect(await download()).toBe('network');
    expect(await page.call('usage', null)).toMatchObject({ isComplete: false, incompleteBytes: 600_000 });
    expect(await download({ offline: true })).toBe('not-cached');
    expect(await download({ abortAt: 600_000 })).toBe('aborted');
    hub.requests = [];
    expect(await download()).toEqual({ commit: commitA, files: digests });
    expect(ranges()).toEqual(['bytes=600000-']);
    expect(await page.call('usage', null)).toMatchObject({ isComplete: true, incompleteBytes: 0 });
  });

  test('resume after a download of other files of the same commit', async () => {
    hub.cuts['model.safetensors'] = [600_000, 0];
    expect(await download()).toBe('network');
    expect(await download({ files: ['config.json'] })).toMatchObject({ commit: commitA });
    hub.requests = [];
    expect(await download()).toEqual({ commit: commitA, files: digests });
    expect(ranges()).toEqual(['bytes=600000-']);
  });

  test('begin anew after a corrupted part, and keep nothing that has another hash', async () => {
    hub.cuts['model.safetensors'] = [600_000, 0];
    expect(await download()).toBe('network');
    await page.call('damage', null);
    hub.requests = [];
    expect(await download()).toEqual({ commit: commitA, files: digests });
    expect(ranges()).toEqual(['bytes=600000-', undefined]);
    await page.call('clear', null);
    hub.wrong['model.safetensors'] = weights.toReversed();
    expect(await download()).toBe('corrupt');
    expect(await page.call('blobs', null)).toEqual(
      expect.not.arrayContaining([expect.stringContaining(sha256(weights))]),
    );
    expect(await page.call('usage', null)).toMatchObject({ isComplete: false, incompleteBytes: 0 });
  });
});
