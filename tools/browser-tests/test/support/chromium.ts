/** The browser of the tests. */
import { existsSync } from 'node:fs';
import { chromium, type Browser } from 'playwright-core';

/** Where Debian puts it. */
const defaultPath = '/usr/bin/chromium';
const path = process.env['WINNOW_CHROMIUM'] || defaultPath;

/** What is missing on this machine, or `undefined` when browser tests can run. */
export const missingChromium: string | undefined = existsSync(path)
  ? undefined
  : `needs Chromium: no file ${path} (apt-get install chromium, or name one in WINNOW_CHROMIUM)`;

/** A name for `describe.skipIf(missingChromium !== undefined)` that says why it was skipped. */
export function suiteName(name: string): string {
  return missingChromium === undefined ? name : `${name} (${missingChromium})`;
}

/** Without these, Chromium looks for hosts of its maker at every start. */
const quietFlags = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-gpu',
  '--disable-quic',
  '--disable-sync',
  '--no-first-run',
];

/** Starts headless Chromium with a profile of its own. */
export function launchChromium(): Promise<Browser> {
  return chromium.launch({ executablePath: path, headless: true, args: quietFlags });
}
