/** The browser decodes images to the pixels of Pillow and of the codecs in Node. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { decodeImage } from '@winnow/vision/node';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ImagesPage } from './pages/images.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { noisePng } from './support/noise-png.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const fixtures = join(repoRoot, 'packages', 'vision', 'src', '__fixtures__');
const fixture = (name: string): Uint8Array => readFileSync(join(fixtures, name));
const golden = JSON.parse(readFileSync(join(fixtures, 'goldens.json'), 'utf8')) as {
  readonly images: Readonly<Record<string, { width: number; height: number; sha256: string }>>;
};

const [wide, high] = [noisePng(2100, 3), noisePng(2, 2050)];
const files = { 'wide-alpha.png': wide, 'high-alpha.png': high, 'cut.png': fixture('wide.png').subarray(0, 300) };

let browser: Browser;
let page: OpenPage<ImagesPage>;
beforeAll(async () => {
  if (missingChromium !== undefined) return;
  const names = Object.keys(golden.images).map((name) => [name, fixture(name)] as const);
  const { code } = await bundlePage('images');
  browser = await connectChromium();
  page = await openPage(browser, { code, isIsolated: false, files: { ...files, ...Object.fromEntries(names) } });
});
afterAll(async () => {
  await page?.close();
  await browser?.close();
});

const decode = (name: string): ReturnType<ImagesPage['decode']> =>
  page.call('decode', `${page.server.url}files/${name}`);

describe.skipIf(missingChromium !== undefined)(suiteName('images in Chromium'), () => {
  test.each(Object.entries(golden.images))('%s has the pixels that Pillow decodes', async (name, expected) => {
    expect(await decode(name)).toEqual(expected);
  });

  test.each([
    ['wide-alpha.png', wide],
    ['high-alpha.png', high],
  ])('%s, which is read in tiles, has the pixels that Node decodes', async (name, file) => {
    const { width, height, data } = await decodeImage(file);
    expect(await decode(name)).toEqual({ width, height, sha256: createHash('sha256').update(data).digest('hex') });
  });

  test('a broken file is refused', async () => {
    expect(await decode('cut.png')).toBe('picture: image data: expected a PNG file, got one that the browser refuses');
  });
});
