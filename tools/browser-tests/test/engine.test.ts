/** The engine in a page: every kind of location, and both backends, against the goldens of the Node tests. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { repoRoot, testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EnginePage, LoadInput, Source } from './pages/engine.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const llamaFolder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'llama');

const demoNames = readdirSync(new URL('.', demoModelUrl));
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
  /** Whether the demo model is loaded too, not only a small GGUF file. */
  readonly loadsDemo: boolean;
  /** Number of prompts of the demo model: the last has 1,674 tokens, which take long on one thread. */
  readonly numPrompts: number;
  readonly numLongTokens: number;
  /** Locations other than URLs: they do not depend on the kernels. */
  readonly opensBlobs: boolean;
}

const isFull = testCoverage === 'full';
const fast = {
  backendName: 'wasm',
  loadsDemo: true,
  numPrompts: demo.prompts.length,
  numLongTokens: 400,
  opensBlobs: true,
};

const settings: Readonly<Record<string, Setting>> = {
  'default backend': { isIsolated: true, backend: 'default', ...fast },
  'wasm backend, simd, 2 threads': {
    isIsolated: true,
    backend: { maxMemoryBytes: 2 ** 27, numThreads: 2, relaxedSimd: false },
    ...fast,
    loadsDemo: isFull,
    opensBlobs: isFull,
  },
  'default backend, page without shared memory': {
    isIsolated: false,
    backend: 'default',
    ...fast,
    numPrompts: isFull ? demo.prompts.length : demo.prompts.length - 1,
    opensBlobs: isFull,
  },
  'reference backend': {
    isIsolated: false,
    backend: 'reference',
    backendName: 'reference',
    loadsDemo: isFull,
    numPrompts: 2,
    numLongTokens: 64,
    opensBlobs: isFull,
  },
};

/** The page under test, opened before the tests of the first setting of its kind: a page costs more than a model. */
class EngineTab {
  static readonly #pages = new Map<boolean, OpenPage<EnginePage>>();
  readonly #setting: Setting;

  constructor(setting: Setting) {
    this.#setting = setting;
  }

  get page(): OpenPage<EnginePage> {
    return EngineTab.#pages.get(this.#setting.isIsolated) as OpenPage<EnginePage>;
  }

  async open(browser: Browser, code: string): Promise<void> {
    const { isIsolated } = this.#setting;
    if (EngineTab.#pages.has(isIsolated)) return;
    EngineTab.#pages.set(isIsolated, await openPage<EnginePage>(browser, { code, isIsolated, files }));
  }

  static async closeAll(): Promise<void> {
    for (const page of EngineTab.#pages.values()) await page.close();
  }

  async load(source: Source): Promise<void> {
    const { isIsolated, backend, backendName } = this.#setting;
    await this.page.call('dispose', null);
    const isOneThread = backendName === 'wasm' && !isIsolated && this.page.hardwareConcurrency > 1;
    const notices = isOneThread ? [expect.stringMatching(/^one thread instead of \d+: memory cannot be shared/)] : [];
    expect(await this.page.call('load', { source, backend })).toEqual({ backend: backendName, fallbacks: [], notices });
  }

  async expectGreedy(prompt: number[], greedy: readonly number[]): Promise<string> {
    const { tokens, text } = await this.page.call('generate', { prompt, maxTokens: greedy.length });
    expect(tokens).toEqual(greedy);
    return text;
  }
}

function testDemoModel(tab: EngineTab, { numPrompts, numLongTokens }: Setting): void {
  beforeAll(() => tab.load({ kind: 'url', url: `${tab.page.server.url}files/demo/` }));

  const prompts = demo.prompts.slice(0, numPrompts).map((prompt) => [prompt.ids.length, prompt] as const);
  test.each(prompts)('greedy after a prompt of %i tokens', async (_length, { text, ids, greedy, greedy_text }) => {
    expect(await tab.page.call('encodePrompt', text)).toEqual(ids);
    expect(await tab.expectGreedy(ids, greedy)).toBe(greedy_text);
  });

  test('the page stays responsive during prefill', async () => {
    const ids = demo.prompts.flatMap((prompt) => [...prompt.ids, ...prompt.greedy]);
    const prompt = Array.from({ length: numLongTokens }, (_, index) => ids[index % ids.length] as number);
    // 400 tokens are 2.4 GFLOP, 24 ms even at 100 GFLOP/s: time for 2 ticks, with a yield every 8 ms and a timer
    // in 4 ms at most
    const turns = await tab.page.call('longPrompts', { prompt, wantedTicks: 20, wantedFrames: 1, maxPrompts: 10 });
    expect(turns.numTicks).toBeGreaterThanOrEqual(20);
    expect(turns.numFrames).toBeGreaterThanOrEqual(1);
    expect(await tab.page.call('interrupt', prompt)).toBe('AbortError');
    const [first] = demo.prompts;
    await tab.expectGreedy(first?.ids as number[], first?.greedy as number[]);
  });
}

function testGguf(tab: EngineTab, kind: 'url' | 'blob'): void {
  let numBefore: number;
  beforeAll(async () => {
    numBefore = tab.page.server.requests.length;
    await tab.load({ kind, url: `${tab.page.server.url}files/llama.gguf` });
  });

  test('greedy', async () => {
    for (const { tokens, greedy } of llama.prompts) await tab.expectGreedy(tokens, greedy);
  });

  test('tokenized texts', async () => {
    for (const { text, tokens } of llama.tokenize) expect(await tab.page.call('tokenize', text)).toEqual(tokens);
  });

  test('a URL is read by ranges, a Blob is loaded once', () => {
    const requests = tab.page.server.requests.slice(numBefore);
    const isRange = (request: string): boolean => / bytes=\d+-\d+$/.test(request);
    if (kind === 'blob') expect(requests).toEqual(['GET /files/llama.gguf']);
    else expect(requests.filter((request) => !isRange(request) && !request.startsWith('HEAD '))).toEqual([]);
    expect(requests.length).toBeGreaterThan(0);
  });
}

async function testPickedFiles(tab: EngineTab): Promise<void> {
  const names = demoNames.filter((name) => /\.(json|safetensors)$/.test(name));
  await tab.load({ kind: 'blobFolder', url: `${tab.page.server.url}files/demo/`, names });
  const [first] = demo.prompts;
  await tab.expectGreedy(first?.ids as number[], first?.greedy as number[]);
}

/** The browser itself reports missing optional files. */
function expectNoComplaints({ complaints, server }: OpenPage<EnginePage>): void {
  const isProbe = (complaint: string): boolean => {
    const missing = /status of 404 \(Not Found\) \/files\/(.*)$/.exec(complaint)?.[1];
    return missing !== undefined && !(missing in files) && server.requests.includes(`HEAD /files/${missing}`);
  };
  expect(complaints.filter((complaint) => !isProbe(complaint))).toEqual([]);
}

describe.skipIf(missingChromium !== undefined)(suiteName('engine in Chromium'), () => {
  let browser: Browser;
  let code: string;
  beforeAll(async () => {
    ({ code } = await bundlePage('engine'));
    browser = await connectChromium();
  });
  afterAll(async () => {
    await EngineTab.closeAll();
    await browser?.close();
  });

  describe.each(Object.entries(settings))('%s', (_name, setting) => {
    const tab = new EngineTab(setting);
    beforeAll(() => tab.open(browser, code));

    if (setting.loadsDemo) describe('demo model from the URL of a folder', () => testDemoModel(tab, setting));

    if (setting.opensBlobs) test('demo model from files that were picked', () => testPickedFiles(tab));

    const kinds = setting.opensBlobs ? (['url', 'blob'] as const) : (['url'] as const);
    describe.each(kinds)('a GGUF file as %s', (kind) => testGguf(tab, kind));

    test('the console is empty', async () => {
      await tab.page.call('dispose', null);
      expectNoComplaints(tab.page);
    });
  });
});
