/** The engine in a page: every way to a model, on both backends, against the goldens of the Node tests. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { repoRoot } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EnginePage, LoadInput, Source } from './pages/engine.js';
import { bundlePage } from './support/bundle.js';
import { launchChromium, missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';

const llamaFolder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'llama');

const demoNames = readdirSync(demoModelUrl);
const files: Record<string, Uint8Array> = { 'llama.gguf': readFileSync(join(llamaFolder, 'model.gguf')) };
for (const name of demoNames) files[`demo/${name}`] = readFileSync(new URL(name, demoModelUrl));

interface DemoGolden {
  readonly prompts: readonly {
    readonly text: string;
    readonly ids: number[];
    readonly greedy: readonly number[];
    readonly greedy_text: string;
  }[];
}
interface LlamaGolden {
  readonly prompts: readonly { readonly tokens: number[]; readonly greedy: readonly number[] }[];
  readonly tokenize: readonly { readonly text: string; readonly tokens: readonly number[] }[];
}
const readJson = (...path: string[]): unknown => JSON.parse(readFileSync(join(...path), 'utf8'));
const demo = readJson(repoRoot, 'packages', 'demo-model', 'src', '__fixtures__', 'goldens.json') as DemoGolden;
const llama = readJson(llamaFolder, 'golden.json') as LlamaGolden;

interface Setting {
  readonly isIsolated: boolean;
  readonly backend: LoadInput['backend'];
  readonly backendName: string;
  /** How many prompts of the demo model are continued: the reference backend is slow, and the last has 1,674 tokens. */
  readonly numPrompts: number;
  readonly numLongTokens: number;
}

const fast = { backendName: 'wasm', numPrompts: demo.prompts.length, numLongTokens: 400 };

const settings: Readonly<Record<string, Setting>> = {
  'default backend': { isIsolated: true, backend: 'default', ...fast },
  'wasm backend, simd, 2 threads': {
    isIsolated: true,
    backend: { maxMemoryBytes: 2 ** 27, numThreads: 2, relaxedSimd: false },
    ...fast,
  },
  'default backend, page without shared memory': { isIsolated: false, backend: 'default', ...fast },
  'reference backend': {
    isIsolated: false,
    backend: 'reference',
    backendName: 'reference',
    numPrompts: 2,
    numLongTokens: 64,
  },
};

describe.skipIf(missingChromium !== undefined)(suiteName('engine in Chromium'), () => {
  let browser: Browser;
  let code: string;
  beforeAll(async () => {
    ({ code } = await bundlePage('engine'));
    browser = await launchChromium();
  });
  afterAll(() => browser?.close());

  describe.each(Object.entries(settings))('%s', (_name, setting) => {
    const { isIsolated, backend, backendName, numPrompts, numLongTokens } = setting;
    let page: OpenPage<EnginePage>;
    beforeAll(async () => {
      page = await openPage<EnginePage>(browser, { code, isIsolated, files });
    });
    afterAll(() => page?.close());

    async function load(source: Source): Promise<void> {
      await page.call('dispose', null);
      expect(await page.call('load', { source, backend })).toEqual({ backend: backendName, fallbacks: [] });
    }

    async function expectGreedy(prompt: number[], greedy: readonly number[]): Promise<string> {
      const { tokens, text } = await page.call('generate', { prompt, maxTokens: greedy.length });
      expect(tokens).toEqual(greedy);
      return text;
    }

    describe('demo model from the URL of a folder', () => {
      beforeAll(() => load({ kind: 'url', url: `${page.server.url}files/demo/` }));

      const prompts = demo.prompts.slice(0, numPrompts).map((prompt) => [prompt.ids.length, prompt] as const);
      test.each(prompts)('greedy after a prompt of %i tokens', async (_length, { text, ids, greedy, greedy_text }) => {
        expect(await page.call('encodePrompt', text)).toEqual(ids);
        expect(await expectGreedy(ids, greedy)).toBe(greedy_text);
      });

      test('the page goes on living while long prompts are computed', async () => {
        const ids = demo.prompts.flatMap((prompt) => [...prompt.ids, ...prompt.greedy]);
        const prompt = Array.from({ length: numLongTokens }, (_, index) => ids[index % ids.length] as number);
        // 400 tokens are 2.4 GFLOP, 24 ms even at 100 GFLOP/s: room for 2 ticks, as a turn is due every 8 ms and then a timer
        // in 4 ms at most
        const turns = await page.call('longPrompts', { prompt, wantedTicks: 20, wantedFrames: 1, maxPrompts: 10 });
        expect(turns.numTicks).toBeGreaterThanOrEqual(20);
        expect(turns.numFrames).toBeGreaterThanOrEqual(1);
        expect(await page.call('interrupt', prompt)).toBe('AbortError');
        const [first] = demo.prompts;
        await expectGreedy(first?.ids as number[], first?.greedy as number[]);
      });
    });

    test('demo model from files that were picked', async () => {
      const names = demoNames.filter((name) => /\.(json|safetensors)$/.test(name));
      await load({ kind: 'blobFolder', url: `${page.server.url}files/demo/`, names });
      const [first] = demo.prompts;
      await expectGreedy(first?.ids as number[], first?.greedy as number[]);
    });

    describe.each(['url', 'blob'] as const)('a GGUF file as %s', (kind) => {
      let numBefore: number;
      beforeAll(async () => {
        numBefore = page.server.requests.length;
        await load({ kind, url: `${page.server.url}files/llama.gguf` });
      });

      test('greedy', async () => {
        for (const { tokens, greedy } of llama.prompts) await expectGreedy(tokens, greedy);
      });

      test('tokenized texts', async () => {
        for (const { text, tokens } of llama.tokenize) expect(await page.call('tokenize', text)).toEqual(tokens);
      });

      test('a URL is read by ranges, a Blob once', () => {
        const requests = page.server.requests.slice(numBefore);
        const isRange = (request: string): boolean => / bytes=\d+-\d+$/.test(request);
        if (kind === 'blob') expect(requests).toEqual(['GET /files/llama.gguf']);
        else expect(requests.filter((request) => !isRange(request) && !request.startsWith('HEAD '))).toEqual([]);
        expect(requests.length).toBeGreaterThan(0);
      });
    });

    test('nothing was written to the console, but by the browser about optional files that are not there', async () => {
      await page.call('dispose', null);
      const isProbe = (complaint: string): boolean => {
        const missing = /status of 404 \(Not Found\) \/files\/(.*)$/.exec(complaint)?.[1];
        return missing !== undefined && !(missing in files) && page.server.requests.includes(`HEAD /files/${missing}`);
      };
      expect(page.complaints.filter((complaint) => !isProbe(complaint))).toEqual([]);
    });
  });
});
