/** Opens a page of `test/pages` whose functions a test can call. */
import type { Browser } from 'playwright-core';
import { servePage, type PageServer, type PageServerOptions } from './page-server.js';

/** Functions of a page: JSON in, JSON out. */
type PageApi = Readonly<Record<string, (input: never) => Promise<unknown>>>;

export interface OpenPage<Api extends PageApi> {
  readonly server: PageServer;
  /** Console output and uncaught errors of the page. */
  readonly complaints: readonly string[];
  /** Cores that the browser reports to the page. */
  readonly hardwareConcurrency: number;
  call<Name extends keyof Api & string>(name: Name, input: Parameters<Api[Name]>[0]): ReturnType<Api[Name]>;
  close(): Promise<void>;
}

/**
 * Serves and opens a page.
 * @throws if its code fails to start
 */
export async function openPage<Api extends PageApi>(
  browser: Browser,
  options: PageServerOptions,
): Promise<OpenPage<Api>> {
  const server = await servePage(options);
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(`uncaught: ${error.message}`));
  page.on('console', (message) => {
    const { url } = message.location();
    complaints.push(`${message.type()}: ${message.text()} ${url.replace(server.url, '/')}`);
  });
  await page.goto(server.url, { waitUntil: 'load' });
  if (!(await page.evaluate(() => 'api' in globalThis))) {
    throw new Error(`the page did not start: ${complaints.join('; ')}`);
  }
  return {
    server,
    complaints,
    hardwareConcurrency: await page.evaluate(() => navigator.hardwareConcurrency),
    call(name, input) {
      const run = ([functionName, argument]: readonly [string, unknown]): Promise<unknown> => {
        const { api } = globalThis as unknown as { api: Record<string, (input: unknown) => Promise<unknown>> };
        return (api[functionName] as (input: unknown) => Promise<unknown>)(argument);
      };
      return page.evaluate(run, [name, input] as const) as ReturnType<Api[typeof name]>;
    },
    async close() {
      await page.close();
      await server.close();
    },
  };
}
