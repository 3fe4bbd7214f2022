/** The conformance suite on the WebAssembly backend in a page. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { contractChecks, kernelCases, programCases, selectCases, type SupportTable } from '@winnow/conformance';
import { repoRoot, sampled, testCoverage } from '@winnow/test-utils';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ConformancePage, Settings } from './pages/conformance.js';
import { bundlePage } from './support/bundle.js';
import { missingChromium, suiteName } from './support/chromium.js';
import { openPage, type OpenPage } from './support/open-page.js';
import { connectChromium } from './support/shared-chromium.js';

/**
 * Memory small enough that many backends fit the address space of one page; f32 activations, for which the bounds of the
 * suite are derived.
 */
const common = { maxMemoryBytes: 2 ** 26, activations: 'f32' } as const;

interface Page {
  readonly isIsolated: boolean;
  readonly settings: Settings;
  readonly expected: Readonly<Record<string, { readonly variant: string; readonly numThreads: number }>>;
  /** Settings that differ in more than kernels and thread count. */
  readonly contractOf: readonly string[];
  /** `npm test` runs every n-th case of an op, and twice as many of the programs. */
  readonly caseStep: number;
}

const isolated: Page = {
  isIsolated: true,
  settings: {
    'simd, 1 thread': { ...common, relaxedSimd: false, numThreads: 1 },
    'simd, 2 threads, all ops shared': { ...common, relaxedSimd: false, numThreads: 2, minSharedWork: 0 },
    'simd, 4 threads': { ...common, relaxedSimd: false, numThreads: 4 },
    'relaxed, 1 thread, jobs by message': { ...common, relaxedSimd: true, numThreads: 1, usesMessages: true },
    'relaxed, 2 threads': { ...common, relaxedSimd: true, numThreads: 2 },
    'relaxed, 4 threads, all ops shared': { ...common, relaxedSimd: true, numThreads: 4, minSharedWork: 0 },
  },
  expected: {
    'simd, 1 thread': { variant: 'simd', numThreads: 1 },
    'simd, 2 threads, all ops shared': { variant: 'simd', numThreads: 2 },
    'simd, 4 threads': { variant: 'simd', numThreads: 4 },
    'relaxed, 1 thread, jobs by message': { variant: 'relaxed-simd', numThreads: 1 },
    'relaxed, 2 threads': { variant: 'relaxed-simd', numThreads: 2 },
    'relaxed, 4 threads, all ops shared': { variant: 'relaxed-simd', numThreads: 4 },
  },
  contractOf: ['relaxed, 1 thread, jobs by message', 'relaxed, 2 threads'],
  caseStep: 16,
};

/** Without shared memory there are no threads, whatever is requested. */
const plain: Page = {
  isIsolated: false,
  settings: {
    'simd, alone': { ...common, relaxedSimd: false },
    'relaxed, 2 threads asked for': { ...common, relaxedSimd: true, numThreads: 2 },
  },
  expected: {
    'simd, alone': { variant: 'simd', numThreads: 1 },
    'relaxed, 2 threads asked for': { variant: 'relaxed-simd', numThreads: 1 },
  },
  contractOf: ['relaxed, 2 threads asked for'],
  caseStep: 32,
};

const pages = [
  ['page that may share memory: simd and relaxed at 1, 2 and 4 threads', isolated],
  ['page that may not share memory: simd and relaxed', plain],
] as const;

/**
 * The tests of backend-wasm run the other cases on the same modules, and what a browser changes, workers and memory, is the
 * same for all cases.
 */
const stepOf = (caseStep: number): number => (testCoverage === 'full' ? 1 : caseStep);

const supportPath = join(repoRoot, 'packages', 'backend-wasm', 'test', 'support.json');

describe.skipIf(missingChromium !== undefined)(suiteName('conformance of backend-wasm in Chromium'), () => {
  const expectedSupport = JSON.parse(readFileSync(supportPath, 'utf8')) as SupportTable;
  let browser: Browser;
  let code: string;
  beforeAll(async () => {
    ({ code } = await bundlePage('conformance'));
    browser = await connectChromium();
  });
  afterAll(() => browser?.close());

  describe.each(pages)('%s', (_name, { isIsolated, settings, expected, contractOf, ...steps }) => {
    const caseStep = stepOf(steps.caseStep);
    const programStep = stepOf(steps.caseStep / 2);
    let page: OpenPage<ConformancePage>;
    beforeAll(async () => {
      page = await openPage<ConformancePage>(browser, { code, isIsolated });
    });
    afterAll(() => page?.close());

    test('the page and its backends have the expected settings', async () => {
      expect(await page.call('pageFacts', null)).toEqual({ isIsolated, hasSharedMemory: isIsolated });
      const facts = await page.call('create', { settings, expectedSupport });
      for (const [name, wanted] of Object.entries(expected)) {
        expect([name, facts[name]]).toEqual([name, { ...wanted, surprises: [] }]);
      }
      expect(Object.keys(facts)).toEqual(Object.keys(expected));
    });

    test.each(Object.entries(kernelCases))('%s', async (op, cases) => {
      const numCases = sampled(selectCases(cases, testCoverage), caseStep).length;
      const found = await page.call('kernels', { op, coverage: testCoverage, caseStep });
      expect(found).toEqual({ numCases, failures: [] });
    });

    test('whole programs', async () => {
      expect(await page.call('programs', { coverage: testCoverage, caseStep: programStep })).toEqual({
        numCases: sampled(programCases, programStep).length,
        failures: [],
      });
    });

    test('contract', async () => {
      const numCases = Object.keys(contractChecks).length;
      const names = testCoverage === 'full' ? Object.keys(settings) : contractOf;
      expect(await page.call('contract', { names, coverage: testCoverage })).toEqual({ numCases, failures: [] });
    });

    test('the console is empty', async () => {
      await page.call('dispose', null);
      expect(page.complaints).toEqual([]);
    });
  });
});
