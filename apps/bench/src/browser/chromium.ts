/** The browser that programs of WebAssembly are measured in. */
import { existsSync } from 'node:fs';
import type { Browser } from 'playwright-core';

/** Where Debian puts it. */
const defaultPath = '/usr/bin/chromium';

/** Nothing of its own in the background, and pages that are not in front are not slowed down. */
const flags = [
  '--disable-background-networking',
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-component-update',
  '--disable-gpu',
  '--disable-quic',
  '--disable-renderer-backgrounding',
  '--disable-sync',
  '--no-first-run',
];

/** What is missing, or undefined when Chromium can be started. */
export function missingChromium(path: string = chromiumPath()): string | undefined {
  if (existsSync(path)) return undefined;
  return `Chromium is missing: no file ${path}; apt-get install chromium, or name one in WINNOW_CHROMIUM`;
}

function chromiumPath(): string {
  return process.env['WINNOW_CHROMIUM'] || defaultPath;
}

/** Starts headless Chromium with a profile of its own. @throws {Error} that says what to do when it is missing */
export async function launchChromium(): Promise<Browser> {
  const missing = missingChromium();
  if (missing !== undefined) throw new Error(missing);
  const { chromium } = await import('playwright-core'); // most runs need none
  return chromium.launch({ executablePath: chromiumPath(), headless: true, args: flags });
}
