/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/** A tab with the page, and what it complained about. */
import axe from 'axe-core';
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright-core';

export interface OpenedPage {
  readonly page: Page;
  /** Uncaught errors, errors of the console, and violations of the policy. */
  readonly complaints: readonly string[];
  /** Requests to other origins. */
  readonly foreign: readonly string[];
  readonly prompt: Locator;
  /** Text in an answer. */
  answer(text: string): Locator;
  /** The text of each message. */
  messages(): Promise<string[]>;
  ask(text: string): Promise<void>;
  /** Resolves when no answer is being written. */
  answered(): Promise<void>;
  close(): Promise<void>;
}

/** Options of a profile in which the user has set these before. */
export function withSettings(url: string, settings: object): BrowserContextOptions {
  const localStorage = [{ name: 'winnow-settings', value: JSON.stringify(settings) }];
  return { storageState: { cookies: [], origins: [{ origin: new URL(url).origin, localStorage }] } };
}

/** Chromium draws on the processor: half the pixels in each direction are a quarter of the work, with the same layout. */
const deviceScaleFactor = 0.5;

/** Opens the page in a profile of its own. */
export async function openPlayground(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<OpenedPage> {
  const context = await browser.newContext({ deviceScaleFactor, ...options });
  const page = await context.newPage();
  const complaints: string[] = [];
  const foreign: string[] = [];
  page.on('pageerror', ({ message }) => complaints.push(`uncaught: ${message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) foreign.push(request.url());
  });
  await page.exposeFunction('reportViolation', (text: string) => complaints.push(`policy: ${text}`));
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      const { violatedDirective, blockedURI } = event as SecurityPolicyViolationEvent;
      (globalThis as unknown as { reportViolation(text: string): void }).reportViolation(
        `${violatedDirective} ${blockedURI}`,
      );
    });
  });
  await page.goto(url);
  const prompt = page.getByRole('textbox', { name: 'Prompt', exact: true });
  await prompt.waitFor();
  return {
    page,
    complaints,
    foreign,
    prompt,
    answer: (text) => page.locator('.markdown').getByText(text),
    messages: () => page.locator('.message').evaluateAll((all) => all.map(({ textContent }) => textContent ?? '')),
    async ask(text) {
      await prompt.fill(text);
      // the page ignores the key while it asks a server for its models
      await page.locator('.composer button[type="submit"]:enabled').waitFor();
      await prompt.press('Enter');
    },
    answered: () => page.locator('.messages[aria-busy="false"] .message.assistant').last().waitFor(),
    close: () => context.close(),
  };
}

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

interface InjectedAxe {
  run(
    context: Document,
    options: { readonly resultTypes: readonly string[] },
  ): Promise<{ readonly violations: Violation[] }>;
}

/** What axe-core finds on the page as it is. */
export async function accessibilityViolations(page: Page): Promise<string[]> {
  // not a script element: the policy of the page does not allow one
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe.source);
  const violations = await page.evaluate(async () => {
    const { axe: injected } = globalThis as unknown as { axe: InjectedAxe };
    // what passes is not described: that takes longer than the checks
    return (await injected.run(document, { resultTypes: ['violations'] })).violations;
  });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary = '' }) => `${id}: ${html.slice(0, 120)}: ${failureSummary}`),
  );
}
