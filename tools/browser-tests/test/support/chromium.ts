/** Where the browser of the tests lies, and how it starts. */
import { existsSync } from 'node:fs';
import { chromium, type Browser, type BrowserServer } from 'playwright-core';

/** On Debian: the same engine without the windows of a browser, with less work for each page. */
const shellPath = '/usr/bin/chromium-headless-shell';
const browserPath = '/usr/bin/chromium';

/** Where the browser lies, if there is one: that of the environment, else the shell. */
export const chromiumPath: string = process.env['WINNOW_CHROMIUM'] || (existsSync(shellPath) ? shellPath : browserPath);

/** The reason why browser tests cannot run, or `undefined`. */
export const missingChromium: string | undefined = existsSync(chromiumPath)
  ? undefined
  : `needs Chromium: no file ${chromiumPath} (apt-get install chromium-headless-shell, or name one in WINNOW_CHROMIUM)`;

/** A name for `describe.skipIf(missingChromium !== undefined)` with the reason. */
export function suiteName(name: string): string {
  return missingChromium === undefined ? name : `${name} (${missingChromium})`;
}

/** Without these, Chromium contacts Google hosts at every start. */
const quietFlags = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-gpu',
  '--disable-quic',
  '--disable-sync',
  '--no-first-run',
];

const launchOptions = { executablePath: chromiumPath, headless: true, args: quietFlags };

/** Starts headless Chromium with a temporary profile. */
export function launchChromium(): Promise<Browser> {
  return chromium.launch(launchOptions);
}

/** The same for clients that connect to its endpoint. @param isWhole whether to prefer the browser with windows to the shell */
export function serveChromium(isWhole: boolean): Promise<BrowserServer> {
  const prefersBrowser = isWhole && chromiumPath === shellPath && existsSync(browserPath);
  const executablePath = prefersBrowser ? browserPath : chromiumPath;
  return chromium.launchServer({ ...launchOptions, executablePath, host: '127.0.0.1' });
}
