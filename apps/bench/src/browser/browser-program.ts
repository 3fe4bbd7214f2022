/** A program that runs in a Chromium page, as used by the suites. */
import type { Browser } from 'playwright-core';
import { bundlePage } from './bundle-page.js';
import type { PageApi, PageGenerateInput, PageLoadInput, PageResult } from './page-protocol.js';
import { servePage } from './page-server.js';

export interface BrowserProgram {
  readonly name: string;
  /** Computes a prompt with an empty cache, and the next token. */
  prefill(prompt: string): Promise<PageResult>;
  /** Greedy tokens after a prompt that is cached except for its last token. */
  decode(prompt: string, count: number): Promise<PageResult>;
  dispose(): Promise<void>;
}

export interface ProgramOptions {
  readonly name: string;
  /** Path of the page's module. */
  readonly page: 'winnow-page' | 'wllama-page';
  readonly modelPath: string;
  /** Additional files that the page requests, by path below the server. */
  readonly files: Readonly<Record<string, string>>;
  readonly load: Omit<PageLoadInput, 'modelUrl'>;
}

/**
 * Opens the page and loads the model.
 * @throws {Error} when the program does not start or uses another number of threads
 */
export async function openProgram(browser: Browser, options: ProgramOptions): Promise<BrowserProgram> {
  const { name, modelPath, files, load } = options;
  const server = await servePage({
    code: await bundlePage(options.page),
    files: { ...files, '/model.gguf': modelPath },
  });
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });

  async function call<Name extends keyof PageApi>(
    functionName: Name,
    input: Parameters<PageApi[Name]>[0],
  ): Promise<Awaited<ReturnType<PageApi[Name]>>> {
    const run = ([key, argument]: readonly [string, unknown]): Promise<unknown> => {
      const { api } = globalThis as unknown as { api?: Record<string, (input: unknown) => Promise<unknown>> };
      if (api === undefined) throw new Error('the page did not start');
      return (api[key] as (input: unknown) => Promise<unknown>)(argument);
    };
    try {
      return (await page.evaluate(run, [functionName, input] as const)) as Awaited<ReturnType<PageApi[Name]>>;
    } catch (error) {
      const reason = [(error as Error).message, ...complaints.slice(-5)].join('\n');
      throw new Error(`${name} in Chromium: ${reason}`, { cause: error });
    }
  }

  async function generate(input: PageGenerateInput): Promise<PageResult> {
    const result = await call('generate', input);
    if (result.numGenerated === input.count) return result;
    throw new Error(`${name} in Chromium: expected ${input.count} tokens, got ${result.numGenerated}`);
  }

  async function dispose(): Promise<void> {
    await page.close();
    await server.close();
  }

  try {
    await page.goto(server.url, { waitUntil: 'load' });
    const threads = await call('load', { ...load, modelUrl: '/model.gguf' });
    if (threads !== load.threads) {
      throw new Error(`${name} in Chromium: expected ${load.threads} threads, it uses ${threads}`);
    }
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    name,
    prefill: (prompt) => generate({ prompt, count: 1, keepsContext: false }),
    decode: (prompt, count) => generate({ prompt, count, keepsContext: true }),
    dispose,
  };
}
