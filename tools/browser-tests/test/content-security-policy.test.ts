/** Pages with a strict `Content-Security-Policy`: what each directive allows, as docs/guides/bundlers.md lists them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { repoRoot, testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EnginePage } from './pages/engine.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

const assets = { 'model/model.safetensors': readFileSync(demoModelUrl) };
const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'bundlers.md'), 'utf8');

/** The policy of the guide. */
const [, policy = ''] = /^Content-Security-Policy: (.*)$/m.exec(guide) ?? [];
const without = (source: string): string => policy.replace(` ${source}`, '');

describe.skipIf(missingChromium !== undefined)(suiteName('Content-Security-Policy in Chromium'), () => {
  let browser: Browser;
  let code: string;
  let page: OpenPage<EnginePage> | undefined;
  beforeAll(async () => {
    ({ code } = await bundlePage('engine'));
    browser = await connectChromium();
  });
  afterAll(() => browser?.close());

  async function load(contentSecurityPolicy: string): ReturnType<EnginePage['load']> {
    const withIcon = `${contentSecurityPolicy}; img-src data:`;
    page = await openPage<EnginePage>(browser, { code, isIsolated: true, assets, contentSecurityPolicy: withIcon });
    const url = `${page.server.url}model/model.safetensors`;
    try {
      return await page.call('load', { source: { kind: 'url', url }, backend: { numThreads: 2 } });
    } finally {
      await page.call('dispose', null);
      await page.close();
    }
  }

  test('the policy of the guide allows threads', async () => {
    expect(policy).toMatch(/^default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src blob:; connect-src /);
    expect(await load(policy)).toEqual({ backend: 'wasm', fallbacks: [], notices: [] });
    expect(page?.complaints).toEqual([]);
  });

  // in `npm test` the weaker of the two directives: what it forbids, the other does too
  test.each(testCoverage === 'full' ? ['none', 'self'] : ['self'])(
    "worker-src '%s': one thread, and a notice",
    async (source) => {
      const { notices } = await load(policy.replace('worker-src blob:', `worker-src '${source}'`));
      expect(notices).toEqual([
        'one thread instead of 2: workers cannot start (a Content-Security-Policy needs worker-src blob:)',
      ]);
    },
  );

  test('without wasm-unsafe-eval, the error names the directive', async () => {
    await expect(load(without("'wasm-unsafe-eval'"))).rejects.toThrow(
      /BackendError: wasm: the kernels cannot be compiled.*script-src 'wasm-unsafe-eval'/,
    );
  });

  test('without connect-src, the model cannot be fetched', async () => {
    await expect(load(policy.replace("connect-src 'self'", "connect-src 'none'"))).rejects.toThrow(/IoError/);
  });
});
