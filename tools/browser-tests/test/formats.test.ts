/** File formats, folders and tokenizers give the same results in a page as in Node. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { repoRoot } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { api, type FormatsPage } from './pages/formats.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const llamaFolder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'llama');
const demoNames = readdirSync(new URL('.', demoModelUrl)).filter((name) => /\.(json|safetensors)$/.test(name));

const texts = [
  'The old man looked at the sea and',
  'Über  the\nsea',
  '42 birds! 🐦 naïve café',
  '',
  '日本語 и русский',
];

let browser: Browser;
let page: OpenPage<FormatsPage>;
let files: string;
beforeAll(async () => {
  if (missingChromium !== undefined) return;
  const served: Record<string, Uint8Array> = {
    'llama.gguf': readFileSync(join(llamaFolder, 'model.gguf')),
    'llama.safetensors': readFileSync(join(llamaFolder, 'hf', 'model.safetensors')),
  };
  for (const name of demoNames) served[`demo/${name}`] = readFileSync(new URL(name, demoModelUrl));
  const { code } = await bundlePage('formats');
  browser = await connectChromium();
  page = await openPage<FormatsPage>(browser, { code, isIsolated: false, files: served });
  files = `${page.server.url}files/`;
});
afterAll(async () => {
  await page?.close();
  await browser?.close();
});

/** Calls the function in the page and in Node. */
async function same<Name extends keyof FormatsPage & string>(
  name: Name,
  input: Parameters<FormatsPage[Name]>[0],
): Promise<Awaited<ReturnType<FormatsPage[Name]>>> {
  const inPage = await page.call(name, input);
  const here = await (api[name] as (value: typeof input) => Promise<unknown>)(input);
  expect(inPage).toEqual(here);
  return inPage as Awaited<ReturnType<FormatsPage[Name]>>;
}

describe.skipIf(missingChromium !== undefined)(suiteName('formats in Chromium'), () => {
  test.each([
    ['gguf', 'llama.gguf'],
    ['safetensors', 'llama.safetensors'],
    ['safetensors', 'demo/model.safetensors'],
  ] as const)('%s: %s by ranges, from a Blob, and written anew', async (format, file) => {
    const [byUrl, byBlob, written] = await same(format, `${files}${file}`);
    expect(byUrl?.length).toBeGreaterThan(10);
    expect(byBlob).toEqual(byUrl);
    expect(written).toEqual(byUrl);
  });

  test('tokenizer.json: texts to tokens and back, whole and token by token', async () => {
    const { decoded, streamed, vocabSize } = await same('tokenizerJson', { url: `${files}demo/tokenizer.json`, texts });
    expect(vocabSize).toBe(2048);
    expect(decoded).toEqual(texts);
    expect(streamed).toEqual(texts);
  });

  test('vocabulary of a GGUF file', async () => {
    const { decoded, streamed, vocabSize } = await same('tokenizerGguf', { url: `${files}llama.gguf`, texts });
    expect(vocabSize).toBe(320);
    expect(decoded).toEqual(texts);
    expect(streamed).toEqual(texts);
  });
});

describe.skipIf(missingChromium !== undefined)(suiteName('folders and refusals in Chromium'), () => {
  test('folders of Blobs and in memory', async () => {
    const [blobs, memory] = await same('folders', { url: `${files}demo/`, names: demoNames });
    expect(blobs).toMatchObject({
      architecture: 'llama',
      weightFiles: { kind: 'single', name: 'model.safetensors' },
      hasTokenizerJson: true,
      list: [...demoNames].sort(),
    });
    expect(memory).toEqual(blobs);
  });

  test('the console is empty', () => {
    expect(page.complaints).toEqual([]);
  });

  test('broken and missing files are rejected with typed errors', async () => {
    expect(await same('refusals', `${files}no-such-file.gguf`)).toEqual({
      gguf: 'format',
      safetensors: 'format',
      tokenizer: 'format',
      folder: 'format',
      emptyFolder: 'format',
      missingFile: 'io',
    });
  });
});
