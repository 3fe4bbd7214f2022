/** Matrix products with int8 activations are bit-identical in a page and in Node, where their error is tested. */
import type { CreateWasmBackendOptions } from '@winnow/backend-wasm';
import { testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { api, type Int8Page } from './pages/int8.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const maxMemoryBytes = 2 ** 26;

const settings: Readonly<Record<string, CreateWasmBackendOptions>> = {
  'simd, 1 thread': { maxMemoryBytes, relaxedSimd: false, numThreads: 1 },
  'simd, 3 threads, all ops shared': { maxMemoryBytes, relaxedSimd: false, numThreads: 3, minSharedWork: 0 },
  'relaxed, 1 thread': { maxMemoryBytes, relaxedSimd: true, numThreads: 1 },
  'relaxed, 3 threads, all ops shared': { maxMemoryBytes, relaxedSimd: true, numThreads: 3, minSharedWork: 0 },
};

const inNode = new Map<string, ReturnType<Int8Page['products']>>();

/** Computed once for all pages. */
function productsInNode(name: string): ReturnType<Int8Page['products']> {
  const products = inNode.get(name) ?? api.products(settings[name] as CreateWasmBackendOptions);
  inNode.set(name, products);
  return products;
}

describe.skipIf(missingChromium !== undefined)(suiteName('8-bit activations in Chromium'), () => {
  let browser: Browser;
  let code: string;
  beforeAll(async () => {
    ({ code } = await bundlePage('int8'));
    browser = await connectChromium();
  });
  afterAll(() => browser?.close());

  test.each([true, false])('the bits of Node, at any number of threads; shared memory: %s', async (isIsolated) => {
    const page = await openPage<Int8Page>(browser, { code, isIsolated });
    try {
      for (const [name, options] of Object.entries(settings)) {
        // without shared memory there is one thread, whatever is requested
        if (!isIsolated && (options.numThreads ?? 1) > 1 && testCoverage !== 'full') continue;
        const expected = await productsInNode(name.startsWith('simd') ? 'simd, 1 thread' : 'relaxed, 1 thread');
        expect(expected.length).toBeGreaterThan(0);
        expect(await page.call('products', options), name).toEqual(expected);
      }
      expect(page.complaints).toEqual([]);
    } finally {
      await page.close();
    }
  });
});
