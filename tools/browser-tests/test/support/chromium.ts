/** Where the browser of the tests lies, and how it starts. */
import { existsSync } from 'node:fs';
import { chromium, type Browser, type BrowserServer } from 'playwright-core';

/** The path on Debian. */
const defaultPath = '/usr/bin/chromium';
/** Where the browser lies, if there is one. */
export const chromiumPath: string = process.env['WINNOW_CHROMIUM'] || defaultPath;

/** The reason why browser tests cannot run, or `undefined`. */
export const missingChromium: string | undefined = existsSync(chromiumPath)
  ? undefined
  : `needs Chromium: no file ${chromiumPath} (apt-get install chromium, or name one in WINNOW_CHROMIUM)`;

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

/** The same for clients that connect to its endpoint. */
export function serveChromium(): Promise<BrowserServer> {
  return chromium.launchServer({ ...launchOptions, host: '127.0.0.1' });
}
