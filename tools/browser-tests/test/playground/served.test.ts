/** The page that `winnow serve` serves, with a real server and the demo model. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model } from '@winnow/engine';
import { pageUrl } from '@winnow/playground';
import { createServer, type WinnowServer } from '@winnow/server';
import { testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { missingChromium, suiteName } from '../support/chromium.js';
import { connectChromium } from '../support/shared-chromium.js';
import { accessibilityViolations, openPlayground, type OpenedPage } from './opened-page.js';

let browser: Browser | undefined;
let model: Model | undefined;
let server: WinnowServer;
let opened: OpenedPage;

afterEach(async () => {
  await opened?.close();
  await server?.close({ graceMs: 0 });
});

afterAll(async () => {
  await model?.dispose();
  await browser?.close();
});

async function open(apiKeys: readonly string[] = []): Promise<void> {
  browser ??= await connectChromium();
  model ??= await loadModel(demoModelUrl, {
    ...{ threads: 1, maxSessions: 2, kvCache: { whenFull: 'wait' } },
    attention: 'decode=page-topk:budget=1,page=4,window=4,sinks=1',
    trace: { visitedKeys: true },
  });
  server = await createServer({ models: [{ id: 'winnow-tiny', model, maxSessions: 2 }], page: pageUrl, apiKeys });
  opened = await openPlayground(browser, await server.listen({ port: 0 }));
}

async function setSampling(fields: Readonly<Record<string, number>>): Promise<void> {
  const { page } = opened;
  await page.getByRole('button', { name: 'Settings' }).click();
  for (const [label, value] of Object.entries(fields)) await page.getByLabel(label).fill(String(value));
  await page.keyboard.press('Escape');
}

/** The text of the last answer, without what is said about it. */
async function lastAnswer(): Promise<string> {
  await opened.page.locator('.message.assistant').last().locator('.facts').waitFor();
  return (await opened.page.locator('.markdown').last().textContent()) ?? '';
}

/** Files that exceed the context, alone or together, are refused, and so are images, which the model does not take. */
async function expectLimitedAttachments(): Promise<void> {
  const { page } = opened;
  const long = { name: 'long.txt', mimeType: 'text/plain', buffer: Buffer.from('The sea was calm. '.repeat(2000)) };
  await page.getByLabel('Attach text files').setInputFiles(long);
  const refusal = page.getByText(/long\.txt: it has [\d,]+ tokens, and the context of the model holds [\d,]+/);
  const [has = 0, holds = 0] = Array.from(
    ((await refusal.textContent()) ?? '').matchAll(/[\d,]+(?= |$)/g),
    ([digits]) => Number(digits.replaceAll(',', '')),
  ).filter((count) => count > 0);
  // two of them exceed the context
  const numHalf = Math.floor((0.6 * holds) / (has / 2000));
  const half = { ...long, buffer: Buffer.from('The sea was calm. '.repeat(numHalf)) };
  await page.getByLabel('Attach text files').setInputFiles([
    { ...half, name: 'a.txt' },
    { ...half, name: 'b.txt' },
  ]);
  await page.getByText(/b\.txt: the attachments have together [\d,]+ tokens, and the context/).waitFor();
  await page.getByText(/^a\.txt, /).waitFor();
  const picture = { name: 'cat.png', mimeType: 'image/png', buffer: Buffer.from('') };
  await page.getByLabel('Attach text files').setInputFiles(picture);
  await page.getByText('cat.png: winnow-tiny takes no images, only text').waitFor();
}

describe.skipIf(missingChromium !== undefined)(suiteName('the page beside a server'), () => {
  test('answers; a reload restores the conversation; edits, regenerates, shows tokens', async () => {
    await open();
    const { page } = opened;
    await setSampling({ Temperature: 0, 'Maximum tokens': 12 });
    await opened.ask('What is the code of Alice?');
    const first = await lastAnswer();
    expect(first).toContain('The code of');
    await page.reload();
    expect(await lastAnswer()).toBe(first);
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Edited message').fill('The old man');
    await page.getByRole('button', { name: 'Send again' }).click();
    await page.getByText('The old man').waitFor();
    const second = await lastAnswer();
    expect(second).not.toBe(first);
    expect(await opened.messages()).toHaveLength(2);
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.getByLabel('Show answers as tokens').check();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await page.locator('.token').nth(2).click();
    await opened.answered();
    expect((await page.locator('.token').allTextContents()).join('').trim()).toContain(second.trim());
    expect(await page.locator('.tokens tbody tr').count()).toBe(5);
    await expectLimitedAttachments();
    await page.getByRole('button', { name: 'Live view' }).click();
    await page.getByText('Memory of the server').waitFor();
    expect(await page.locator('.live').textContent()).toMatch(
      /Generated tokens[1-9].*Visited keys by layer and KV head.*[1-9]\d? %.*KV cache: blocks.*used.*Planned memory/s,
    );
    expect(await accessibilityViolations(page)).toEqual([]);
    expect([opened.complaints, opened.foreign]).toEqual([[], []]);
  });

  test.runIf(testCoverage === 'full')('asks for the API key and works with it', async () => {
    await open(['secret']);
    await opened.page.getByLabel('API key').fill('secret');
    await opened.page.getByRole('button', { name: 'Use the key' }).click();
    await opened.page.getByText('winnow-tiny answers').waitFor();
    await setSampling({ 'Maximum tokens': 2 });
    await opened.ask('Hello');
    await opened.answered();
    expect(await opened.messages()).toHaveLength(2);
    // the browser itself reports the 401
    expect(opened.complaints.filter((text) => !text.includes('401'))).toEqual([]);
  });
});
