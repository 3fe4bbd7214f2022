/** The page of docs/guides/getting-started.md, unchanged, generates its text. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { repoRoot, testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundleCode } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const assets = { 'model/model.safetensors': readFileSync(demoModelUrl) };

describe.skipIf(missingChromium !== undefined)(suiteName('page of the guide in Chromium'), () => {
  let browser: Browser;
  let code: string;
  beforeAll(async () => {
    const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'getting-started.md'), 'utf8');
    const [, block = ''] = /^```js\n(.*?)^```$/ms.exec(guide) ?? [];
    expect(block).toContain('loadModel');
    // The module ends with the last line of the guide; then the test reads the text of the page.
    const begin =
      'let end; const text = new Promise((resolve) => (end = resolve)); globalThis.api = { text: () => text };';
    ({ code } = await bundleCode(`${begin}\n${block}\nend(document.body.textContent);`));
    browser = await connectChromium();
  });
  afterAll(() => browser?.close());

  // engine.test.ts loads a model in pages of both kinds
  test.each(testCoverage === 'full' ? [true, false] : [true])('isolated from other origins: %s', async (isIsolated) => {
    const page = await openPage<{ text(input: null): Promise<string> }>(browser, { code, isIsolated, assets });
    expect((await page.call('text', null)).length).toBeGreaterThan(20);
    expect(page.complaints).toEqual([]);
    await page.close();
  });
});
