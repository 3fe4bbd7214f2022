/** A program that runs in a Chromium page, as used by the suites. */
import type { Browser, Page } from 'playwright-core';
import { bundlePage } from './bundle-page.js';
import type { PageApi, PageGenerateInput, PageLoadInput, PageResult } from './page-protocol.js';
import { servePage, type PageServer } from './page-server.js';

export interface ProgramOptions {
  readonly name: string;
  /** Path of the page's module. */
  readonly page: 'winnow-page' | 'wllama-page';
  readonly modelPath: string;
  /** Additional files that the page requests, by path below the server. */
  readonly files: Readonly<Record<string, string>>;
  readonly load: Omit<PageLoadInput, 'modelUrl'>;
}

export class BrowserProgram {
  readonly name: string;
  readonly #page: Page;
  readonly #server: PageServer;
  readonly #complaints: string[] = [];

  private constructor(name: string, page: Page, server: PageServer) {
    this.name = name;
    this.#page = page;
    this.#server = server;
    page.on('pageerror', (error) => this.#complaints.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error') this.#complaints.push(message.text());
    });
  }

  /**
   * Opens the page and loads the model.
   * @throws {Error} when the program does not start or uses another number of threads
   */
  static async open(browser: Browser, { name, page, modelPath, files, load }: ProgramOptions): Promise<BrowserProgram> {
    const server = await servePage({ code: await bundlePage(page), files: { ...files, '/model.gguf': modelPath } });
    const program = new BrowserProgram(name, await browser.newPage(), server);
    try {
      await program.#page.goto(server.url, { waitUntil: 'load' });
      const threads = await program.#call('load', { ...load, modelUrl: '/model.gguf' });
      if (threads === load.threads) return program;
      throw new Error(`${name} in Chromium: expected ${load.threads} threads, it uses ${threads}`);
    } catch (error) {
      await program.dispose();
      throw error;
    }
  }

  /** Computes a prompt with an empty cache, and the next token. */
  prefill(prompt: string): Promise<PageResult> {
    return this.#generate({ prompt, count: 1, keepsContext: false });
  }

  /** Greedy tokens after a prompt that is cached except for its last token. */
  decode(prompt: string, count: number): Promise<PageResult> {
    return this.#generate({ prompt, count, keepsContext: true });
  }

  async dispose(): Promise<void> {
    await this.#page.close();
    await this.#server.close();
  }

  async #generate(input: PageGenerateInput): Promise<PageResult> {
    const result = await this.#call('generate', input);
    if (result.numGenerated === input.count) return result;
    throw new Error(`${this.name} in Chromium: expected ${input.count} tokens, got ${result.numGenerated}`);
  }

  async #call<Name extends keyof PageApi>(
    functionName: Name,
    input: Parameters<PageApi[Name]>[0],
  ): Promise<Awaited<ReturnType<PageApi[Name]>>> {
    const run = ([key, argument]: readonly [string, unknown]): Promise<unknown> => {
      const { api } = globalThis as unknown as { api?: Record<string, (input: unknown) => Promise<unknown>> };
      if (api === undefined) throw new Error('the page did not start');
      return (api[key] as (input: unknown) => Promise<unknown>)(argument);
    };
    try {
      return (await this.#page.evaluate(run, [functionName, input] as const)) as Awaited<ReturnType<PageApi[Name]>>;
    } catch (error) {
      const reason = [(error as Error).message, ...this.#complaints.slice(-5)].join('\n');
      throw new Error(`${this.name} in Chromium: ${reason}`, { cause: error });
    }
  }
}
