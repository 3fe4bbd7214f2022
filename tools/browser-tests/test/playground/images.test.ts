/** Images in both homes of the page, with a tiny LLaVA with random weights. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel, type Model } from '@winnow/engine';
import { pageUrl } from '@winnow/playground';
import { createServer, type WinnowServer } from '@winnow/server';
import { repoRoot } from '@winnow/test-utils';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { missingChromium, suiteName } from '../support/chromium.js';
import { noisePng } from '../support/noise-png.js';
import { connectChromium } from '../support/shared-chromium.js';
import { accessibilityViolations, openPlayground, withSettings, type OpenedPage } from './opened-page.js';
import { serveSite, type Site } from './site-server.js';

const folder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'images', 'llava');
const [wide, tall] = ['wide.png', 'tall.jpg'].map((name) =>
  join(repoRoot, 'packages', 'vision', 'src', '__fixtures__', name),
) as [string, string];
const content = 'a picture of the sea';
const settings = { sampling: { temperature: 0, maxTokens: 8 } };

let browser: Browser;
let model: Model;
/** What the engine answers to the first image, and to both. */
let answers: readonly string[];
let server: WinnowServer | undefined;
let site: Site | undefined;
let opened: OpenedPage;
beforeAll(async () => {
  if (missingChromium !== undefined) return;
  browser = await connectChromium();
  model = await loadModel(folder, { threads: 1 });
  const ask = async (files: readonly string[]): Promise<string> => {
    const images = files.map((file) => new Uint8Array(readFileSync(file)));
    const options = { temperature: 0, maxTokens: 8 };
    return (await model.generate([{ role: 'user', content, images }], options).result()).text;
  };
  answers = [await ask([wide]), await ask([wide, tall])];
});
afterEach(async () => {
  await opened?.close();
  await server?.close({ graceMs: 0 });
  await site?.close();
});
afterAll(async () => {
  await model?.dispose();
  await browser?.close();
});

/** Pastes or drops a file, as the browser tells the page. */
function transfer(page: Page, type: 'paste' | 'drop', path: string): Promise<void> {
  const file = { type, name: path.slice(path.lastIndexOf('/') + 1), bytes: [...readFileSync(path)] };
  return page.getByRole('textbox', { name: 'Prompt', exact: true }).evaluate((prompt, { type: kind, name, bytes }) => {
    const data = new DataTransfer();
    const mime = name.endsWith('.png') ? 'image/png' : 'image/jpeg';
    data.items.add(new File([Uint8Array.from(bytes)], name, { type: mime }));
    const shared = { bubbles: true, cancelable: true };
    const event =
      kind === 'paste'
        ? new ClipboardEvent('paste', { ...shared, clipboardData: data })
        : new DragEvent('drop', { ...shared, dataTransfer: data });
    prompt.dispatchEvent(event);
  }, file);
}

const preview = (name: string): ReturnType<Page['locator']> =>
  opened.page.getByRole('img', { name: `Attached image ${name}` });

/** The text of the last answer as the model wrote it. */
async function expectAnswer(text: string | undefined): Promise<void> {
  await opened.page.locator('.message.assistant .facts').last().waitFor();
  expect((await opened.page.locator('.markdown').last().textContent())?.trim()).toBe(text?.trim());
}

describe.skipIf(missingChromium !== undefined)(suiteName('images beside a server'), () => {
  test('chosen, pasted and dropped images are shown, can be removed, are answered to, and come back with a reload', async () => {
    server = await createServer({ models: [{ id: 'llava', model }], page: pageUrl });
    const url = await server.listen({ port: 0 });
    opened = await openPlayground(browser, url, withSettings(url, settings));
    const { page } = opened;
    await page.getByText('llava answers').waitFor();
    await transfer(page, 'paste', tall);
    await preview('tall.jpg').waitFor();
    await page.getByRole('button', { name: 'Remove tall.jpg' }).press('Enter');
    await preview('tall.jpg').waitFor({ state: 'detached' });
    await page.getByLabel('Attach text files or images').setInputFiles(wide);
    await preview('wide.png').waitFor();
    expect(await preview('wide.png').evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBe(61);
    await transfer(page, 'drop', tall);
    await preview('tall.jpg').waitFor();
    expect(await accessibilityViolations(page)).toEqual([]);
    await opened.ask(content);
    await expectAnswer(answers[1]);
    await page.reload();
    await preview('tall.jpg').waitFor();
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByRole('button', { name: 'Remove tall.jpg' }).click();
    await page.getByRole('button', { name: 'Send again' }).click();
    await expectAnswer(answers[0]);
    expect(await page.getByRole('img').count()).toBe(1);
    expect([opened.complaints, opened.foreign]).toEqual([[], []]);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('images of the static site'), () => {
  test('a model in the tab answers to an image as in Node; large files are drawn smaller, others refused', async () => {
    site = await serveSite({ folder: new URL('../static/', pageUrl), isIsolated: true });
    opened = await openPlayground(browser, site.url, withSettings(site.url, settings));
    const { page } = opened;
    await page.getByRole('button', { name: 'Load a model' }).click();
    const parts = readdirSync(folder).map((name) => join(folder, name));
    await page.getByLabel(/GGUF or safetensors/).setInputFiles(parts);
    await page.getByText(/ answers, with a context/).waitFor();
    const files = page.getByLabel('Attach text files or images');
    await files.setInputFiles([
      { name: 'noise.png', mimeType: 'image/png', buffer: noisePng(600, 500) },
      { name: 'b.gif', mimeType: 'image/gif', buffer: Buffer.from('GIF89a') },
    ]);
    await page.getByText('b.gif: format: expected a PNG, JPEG or WebP file').waitFor();
    const caption = (await page.locator('figcaption').textContent()) ?? '';
    expect(Number(/^noise\.png, ([\d.]+) kB$/.exec(caption)?.[1])).toBeLessThan(1000);
    await page.getByRole('button', { name: 'Remove noise.png' }).click();
    await files.setInputFiles(wide);
    await opened.ask(content);
    await expectAnswer(answers[0]);
    expect([opened.complaints, opened.foreign]).toEqual([[], []]);
  });
});
