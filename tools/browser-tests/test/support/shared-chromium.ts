/** The browser that all test files share. */
import { chromium, type Browser } from 'playwright-core';
import { inject } from 'vitest';

/** A connection with pages and storage of its own; closing it closes them. */
export function connectChromium(): Promise<Browser> {
  return chromium.connect(inject('chromiumEndpoint'));
}
