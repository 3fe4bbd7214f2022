/** The page as a static site, in which the model runs in the tab. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import { pageUrl } from '@winnow/playground';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { missingChromium, suiteName } from '../support/chromium.js';
import { connectChromium } from '../support/shared-chromium.js';
import { accessibilityViolations, openPlayground, type OpenedPage } from './opened-page.js';
import { sendJson, serveSite, type Handler, type Site } from './site-server.js';

const folder = new URL('../static/', pageUrl);
const repo = 'winnow/tiny';
const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json', 'model.safetensors'];
const files = new Map(names.map((name) => [name, readFileSync(new URL(name, demoModelUrl))]));

describe.skipIf(missingChromium !== undefined)(suiteName('the page as a static site'), () => {
  let browser: Browser;
  let site: Site;
  let opened: OpenedPage;
  beforeAll(async () => {
    browser = await connectChromium();
  });
  afterEach(async () => {
    await opened.close();
    await site.close();
  });
  afterAll(() => browser?.close());

  /** Settings that make answers short and equal. */
  async function open(isIsolated: boolean, handlers: Readonly<Record<string, Handler>> = {}): Promise<void> {
    site = await serveSite({ folder, isIsolated, handlers });
    opened = await openPlayground(browser, site.url);
    const settings = { sampling: { temperature: 0, maxTokens: 12 }, hubEndpoint: `${site.url}hub/` };
    await opened.page.evaluate((value) => localStorage.setItem('winnow-settings', value), JSON.stringify(settings));
    await opened.page.reload();
    await opened.page.getByRole('button', { name: 'Load a model' }).click();
  }

  async function expectAnswer(name: string): Promise<void> {
    await opened.page.locator('header .model').getByText(name).waitFor();
    await opened.ask('The code of Alice is 31407. What is the code of Alice?');
    await opened.answered();
    expect((await opened.messages())[1]).toContain('The code of Mr. Hudson is');
    expect([opened.complaints, opened.foreign]).toEqual([[], []]);
  }

  test('the demo model answers in the tab on several threads, and a model of a hub is downloaded once', async () => {
    const hub = fakeHub();
    await open(true, { '/hub/': hub.handler });
    const { page } = opened;
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
    expect(await accessibilityViolations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Demo model' }).click();
    await expectAnswer('winnow-tiny');
    await page.getByRole('button', { name: 'Load a model' }).click();
    await page.getByLabel(/Model of a hub/).fill(repo);
    await page.getByRole('button', { name: 'Download and load' }).click();
    await page.locator('header .model').getByText(repo).waitFor();
    expect(hub.requests.filter((path) => path.endsWith('model.safetensors'))).toHaveLength(1);
    hub.requests.length = 0;
    await page.reload();
    await page.getByRole('button', { name: 'Load a model' }).click();
    await page.getByRole('button', { name: new RegExp(`^${repo}, \\d`) }).click();
    await page.locator('header .model').getByText(repo).waitFor();
    expect(hub.requests).toEqual([expect.stringContaining('/api/models/')]);
  });

  test('without isolation, a file of this computer answers on one thread', async () => {
    await open(false);
    await opened.page.getByLabel(/GGUF or safetensors/).setInputFiles(fileURLToPath(demoModelUrl));
    await expectAnswer('model');
    await opened.page.getByRole('button', { name: 'New conversation' }).click();
    await opened.page.getByText(/one thread/).waitFor();
  });
});

interface FakeHub {
  readonly handler: Handler;
  readonly requests: string[];
}

function fakeHub(): FakeHub {
  const requests: string[] = [];
  return {
    requests,
    handler(request, response) {
      const path = (request.url ?? '').slice('/hub'.length);
      requests.push(path);
      if (path.startsWith(`/api/models/${repo}/tree/main`)) {
        sendJson(
          response,
          Array.from(files, ([name, { length: size }]) => ({ type: 'file', path: name, size })),
        );
        return;
      }
      const bytes = files.get(path.slice(`/${repo}/resolve/main/`.length));
      if (bytes === undefined) response.writeHead(404).end();
      else response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
    },
  };
}
