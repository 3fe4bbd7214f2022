/** The browser for measuring WebAssembly programs. */
import { existsSync } from 'node:fs';
import type { Browser } from 'playwright-core';

/** The paths on Debian, of the browser and of its engine without windows. */
const defaultPath = '/usr/bin/chromium';
const shellPath = '/usr/bin/chromium-headless-shell';

/** Disables background activity, and throttling of background pages. */
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

/** An error message when Chromium is missing; else undefined. */
export function missingChromium(path: string = chromiumPath()): string | undefined {
  if (existsSync(path)) return undefined;
  return `Chromium is missing: no file ${path}; apt-get install chromium, or name one in WINNOW_CHROMIUM`;
}

function chromiumPath(): string {
  const { WINNOW_CHROMIUM: named } = process.env;
  return named || (existsSync(defaultPath) || !existsSync(shellPath) ? defaultPath : shellPath);
}

/** Starts headless Chromium with a temporary profile. @throws {Error} with instructions when it is missing */
export async function launchChromium(): Promise<Browser> {
  const missing = missingChromium();
  if (missing !== undefined) throw new Error(missing);
  const { chromium } = await import('playwright-core'); // most runs need no browser
  return chromium.launch({ executablePath: chromiumPath(), headless: true, args: flags });
}
