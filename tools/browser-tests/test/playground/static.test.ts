/** The page as a static site, in which the model runs in the tab. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import { pageUrl } from '@winnow/playground';
import { FakeHub, testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { missingChromium, suiteName } from '../support/chromium.js';
import { connectChromium } from '../support/shared-chromium.js';
import { startMcpServer } from './mcp-server.js';
import { accessibilityViolations, openPlayground, withSettings, type OpenedPage } from './opened-page.js';
import { serveSite, type Handler, type Site } from './site-server.js';

const folder = new URL('../static/', pageUrl);
const repo = 'winnow/tiny';
const commit = 'c'.repeat(40);
const policy = 'streaming:window=64,sinks=4';
const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json', 'model.safetensors'];
const assets = readdirSync(new URL('assets/', folder));
const files = new Map(names.map((name) => [name, readFileSync(new URL(name, demoModelUrl))]));

let browser: Browser | undefined;
let site: Site | undefined;
let opened: OpenedPage;

afterEach(async () => {
  await opened?.close();
  await site?.close();
});

afterAll(() => browser?.close());

/** With settings that make answers short and equal. */
async function open(
  isIsolated: boolean,
  handlers: Readonly<Record<string, Handler>> = {},
  hubEndpoint = '',
  others: object = {},
): Promise<void> {
  browser ??= await connectChromium();
  site = await serveSite({ folder, isIsolated, handlers });
  const settings = { sampling: { temperature: 0, maxTokens: 12 }, hubEndpoint, ...others };
  opened = await openPlayground(browser, site.url, withSettings(site.url, settings));
  await opened.page.getByRole('button', { name: 'Load a model' }).click();
}

/** Waits until the model is the chosen one. */
function loaded(name: string | RegExp): Promise<void> {
  return opened.page.locator('header .model').getByText(name, { exact: true }).waitFor();
}

async function expectAnswer(name: string | RegExp): Promise<void> {
  await loaded(name);
  await opened.ask('The code of Alice is 31407. What is the code of Alice?');
  await opened.answered();
  expect((await opened.messages())[1]).toContain('The code of Mr. Hudson is');
  const foreign = opened.foreign.filter((url) => new URL(url).hostname !== '127.0.0.1'); // the hub of a test
  expect([opened.complaints, foreign]).toEqual([[], []]);
}

describe.skipIf(missingChromium !== undefined)(suiteName('the page as a static site'), () => {
  test('the demo model answers in the tab, measured, beside itself with a policy, and without a network', async () => {
    await open(true);
    const { page } = opened;
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Demo model' }).click();
    await expectAnswer('winnow-tiny');
    await page.getByRole('button', { name: 'Live view' }).click();
    const live = page.getByRole('complementary', { name: 'What the model does' });
    await live.getByText('Planned memory').waitFor();
    expect(await live.textContent()).toMatch(
      /Tokens per second of step time[\d.]+.*Visited keys by layer.*100 %.*KV cache: blocks.*used/s,
    );
    await page.getByRole('button', { name: 'Load a model' }).click();
    await page.getByText('Attention and context').click();
    await page.getByLabel(/Attention policy/).fill(policy);
    await page.getByLabel(/Keep the loaded models/).check();
    await page.getByRole('button', { name: 'Demo model' }).click();
    await page.locator('dialog').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.getByLabel('Prompt for both').fill('Once upon a time');
    await page.getByRole('button', { name: 'Ask both' }).click();
    await page.locator('.sides .facts').nth(1).waitFor();
    const models = await page
      .locator('.sides select')
      .evaluateAll((all) => all.map((one) => (one as HTMLSelectElement).value));
    expect(models).toEqual(['winnow-tiny', `winnow-tiny (${policy})`]);
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
    await site?.close();
    site = undefined;
    await page.reload();
    await page.getByRole('button', { name: 'Load a model' }).click();
    await page.getByRole('button', { name: 'Demo model' }).click();
    await loaded(`winnow-tiny (${policy})`);
    expect(await opened.messages()).toHaveLength(2);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('models of the static site'), () => {
  test.runIf(testCoverage === 'full')(
    'a model of a hub is downloaded once, also when the connection is lost, and opens from the cache without a network',
    async () => {
      const hub = await FakeHub.start();
      try {
        hub.repos[repo] = { commits: { [commit]: Object.fromEntries(files) }, refs: { main: commit } };
        // the connection is lost, and the next one delivers nothing
        hub.cuts['model.safetensors'] = [1_000_000, 0];
        await open(true, {}, hub.endpoint);
        const { page } = opened;
        await page.getByLabel(/Model of a hub/).fill(repo);
        await page.getByRole('button', { name: 'Download and load' }).click();
        await page.getByText(/^Downloading [1-9]/).waitFor(); // it has read a part
        hub.endCuts();
        await page.getByRole('alert').getByText('the next call resumes').waitFor();
        await page.getByRole('button', { name: /^winnow.tiny, .* so far: finish the download$/ }).click();
        await loaded(repo);
        hub.requests = [];
        await page.reload();
        await page.getByRole('button', { name: 'Load a model' }).click();
        await page.getByRole('button', { name: new RegExp(`^${repo}, [\\d.]+ MB$`) }).click();
        await loaded(repo);
        expect(hub.requests.map(({ kind }) => kind)).toEqual(['info', 'tree']);
        await hub.stop();
        await page.getByRole('button', { name: 'Load a model' }).click();
        await page.getByRole('button', { name: new RegExp(`^${repo}, [\\d.]+ MB$`) }).click();
        await page.locator('dialog').waitFor({ state: 'detached' });
        await expectAnswer(repo);
      } finally {
        await hub.stop();
      }
    },
  );
  test.runIf(testCoverage === 'full')(
    'without isolation, a file of this computer answers on one thread; the next visit is isolated',
    async () => {
      await open(false);
      const { page } = opened;
      await page.getByLabel(/GGUF or safetensors/).setInputFiles(fileURLToPath(demoModelUrl));
      await expectAnswer(/^model/);
      await page.getByRole('button', { name: 'New conversation' }).click();
      await page.getByText(/one thread/).waitFor();
      await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
      await page.reload();
      expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
    },
  );
});

describe.skipIf(missingChromium !== undefined)(suiteName('tools of the static site'), () => {
  test('the demo model, which has to call a tool, calls one of an MCP server with consent and reads its result', async () => {
    const mcp = await startMcpServer({ names: ['weather', 'odd'] });
    try {
      const settings = { sampling: { temperature: 0, maxTokens: 120 }, requiresCall: true };
      await open(true, {}, '', { ...settings, mcpServers: [{ url: mcp.url, isOn: true }] });
      const { page } = opened;
      await page.getByRole('button', { name: 'Demo model' }).click();
      await loaded('winnow-tiny');
      await opened.ask('How is the weather?');
      const question = page.getByRole('dialog', { name: /^Call / });
      await question.waitFor();
      expect(mcp.log).toEqual([]);
      expect(await accessibilityViolations(page)).toEqual([]);
      // it may write several calls
      await page.getByRole('button', { name: /^Always call this tool/ }).click();
      await opened.answered();
      expect(mcp.log[0]).toMatch(/^weather \{"city":"(Ulm|Bern)"\}$/);
      expect(await page.locator('.message.assistant').count()).toBeGreaterThan(1);
      expect(opened.complaints).toEqual([]);
      // one whose schema cannot be enforced is left out
      await page.getByText('the tool odd cannot be used').waitFor();
    } finally {
      await mcp.close();
    }
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('code of the static site'), () => {
  test('a worker that does not start is reported, also by what is asked later', async () => {
    const worker = assets.find((name) => /^main-.*\.js$/.test(name));
    await open(true, { [`GET /assets/${worker}`]: (_request, response) => response.writeHead(404).end() });
    const { page } = opened;
    await page.getByRole('alert').getByText('the worker of the models ended').first().waitFor();
    await page.getByRole('button', { name: 'Demo model' }).click();
    await page.locator('dialog').getByRole('alert').getByText('the worker of the models ended').waitFor();
    expect(opened.complaints.filter((text) => !text.includes('404'))).toEqual([]);
  });

  test('a tab loads the files of its own version while a new version waits', async () => {
    const lazy = assets.find((name) => /^highlight-.*\.js$/.test(name)) ?? '';
    const worker = readFileSync(new URL('service-worker.js', folder), 'utf8');
    let isNew = false;
    const file = (path: string, textOf: () => string | undefined): Record<string, Handler> => ({
      [`GET /${path}`]: (_request, response) => {
        const text = textOf();
        response.writeHead(text === undefined ? 404 : 200, { 'content-type': 'text/javascript' }).end(text);
      },
    });
    const code = readFileSync(new URL(`assets/${lazy}`, folder), 'utf8');
    await open(true, {
      ...file('service-worker.js', () => (isNew ? newVersion(worker) : worker)),
      ...file(`assets/${lazy}`, () => (isNew ? undefined : code)),
    });
    const { page } = opened;
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
    await page.reload();
    isNew = true;
    expect(await page.evaluate(updateSite)).toBe('installed');
    expect(await page.evaluate(async (path) => (await fetch(path)).ok, `assets/${lazy}`)).toBe(true);
  });
});

/** Another service worker, whose version has none of these files. */
function newVersion(worker: string): string {
  return worker.replace(/winnow-[0-9a-f]{16}/, 'winnow-next').replaceAll(/^ *"\.\/assets\/.*\n/gm, '');
}

/** In the page: the state of the new service worker when it does not wait for anything but tabs. */
async function updateSite(): Promise<string | undefined> {
  const registration = await navigator.serviceWorker.ready;
  await registration.update();
  const { installing } = registration;
  await new Promise<void>((resolve) => {
    if (installing?.state !== 'installing') resolve();
    else installing.addEventListener('statechange', () => resolve(), { once: true });
  });
  // one that does not wait is activating now
  return (registration.waiting ?? installing)?.state;
}
