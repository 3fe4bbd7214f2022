/** Runs before all test files: starts one browser for them, since a start takes longer than most tests. */
import type { TestProject } from 'vitest/node';
import { missingChromium, serveChromium } from './chromium.js';

declare module 'vitest' {
  interface ProvidedContext {
    chromiumEndpoint: string;
  }
}

/** @returns what runs after all test files */
export default async function start(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  if (missingChromium !== undefined) return undefined;
  const server = await serveChromium(process.env['WINNOW_TEST'] === 'full');
  project.provide('chromiumEndpoint', server.wsEndpoint());
  return () => server.close();
}
