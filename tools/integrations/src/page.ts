/** Opens a page in headless Chromium and reads the text that it generates. */
import { launchChromium } from '@winnow/browser-tests/chromium';

const timeoutMs = 60_000;

/**
 * The text of the page's `<output>`.
 * @throws {Error} with what the page wrote to its console when the text does not appear, or the page fails
 */
export async function readGeneratedText(url: string): Promise<string> {
  const browser = await launchChromium();
  try {
    const page = await browser.newPage();
    const messages: string[] = [];
    page.on('console', (message) => messages.push(`${message.type()}: ${message.text()}`));
    page.on('requestfailed', (request) => messages.push(`request failed: ${request.url()}`));
    const failed = new Promise<never>((_, reject) => {
      page.on('pageerror', (error) => reject(new Error(`the page failed: ${error.stack ?? error.message}`)));
    });
    const generated = page
      .goto(url, { waitUntil: 'load', timeout: timeoutMs })
      .then((response) => {
        if (response?.ok() !== true) throw new Error(`${url}: status ${response?.status()}`);
      })
      .then(() => page.waitForFunction(readOutput, undefined, { timeout: timeoutMs }))
      .then((handle) => handle.jsonValue());
    try {
      return await Promise.race([generated, failed]);
    } catch (error) {
      throw new Error([error instanceof Error ? error.message : String(error), ...messages].join('\n'), {
        cause: error,
      });
    } finally {
      // the loser of the race
      generated.catch(() => undefined);
      failed.catch(() => undefined);
    }
  } finally {
    await browser.close();
  }
}

/** Runs in the page. */
function readOutput(): string {
  const { document } = globalThis as unknown as {
    document: { querySelector(name: string): { textContent: string } | null };
  };
  return document.querySelector('output')?.textContent ?? '';
}
