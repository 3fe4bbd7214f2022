import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchChromium, missingChromium } from '../src/browser/chromium.js';
import type { Figure } from '../src/harness/figure.js';
import { parseResults, type Run } from '../src/results/results.js';
import { writeReport } from '../src/results/write-report.js';
import { runBench, suites } from '../src/run-bench.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-bench-report-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function readRun(path: string): Run {
  const [run] = parseResults(readFileSync(path, 'utf8'), path).runs;
  return run!;
}

const unescape = (text: string): string =>
  text.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '"').replaceAll('&amp;', '&');

/** The figures of a page, with the exact values of its cells. */
function figuresOfPage(html: string): Figure[] {
  const number = String.raw`<td class="n" data-value="([^"]*)">[^<]*</td>`;
  const row = new RegExp(
    `<tr data-suite="([^"]*)"><td>([^<]*)</td>${number}${number}<td>([^<]*)</td>${number}<td>([^<]*)</td></tr>`,
    'g',
  );
  return [...html.matchAll(row)].map(([, suite = '', name = '', value, best, unit = '', ratio, of = '']) => ({
    ...{ suite: unescape(suite), case: unescape(name), value: Number(value), best: Number(best) },
    ...{ unit: unescape(unit), ratio: Number(ratio), ratioOf: unescape(of) },
  }));
}

const all = suites.filter(({ name }) => name !== 'agreement').map(({ name }) => name);
/** The two quickest suites; `smoke.test.ts` runs every one. */
const quickest = ['roofline', 'overhead'];
const measured = testCoverage === 'full' ? all : all.filter((suite) => quickest.includes(suite));

describe('several suites under one command, quickly', () => {
  test('a report of every suite', { timeout: 180_000 }, async () => {
    const report = join(folder, 'all');
    const progress: string[] = [];
    const named = testCoverage === 'full' ? ['all'] : quickest;
    const asked = [...named, '--quick', '--force', '--rounds', '1', '--threads', '1', '--report', report];
    const code = await runBench([...asked, '--models-dir', folder, '--peer-dir', folder], {
      out: () => undefined,
      progress: (text) => progress.push(text),
      busyCores: () => Promise.resolve(0),
    });
    expect(code, progress.join('')).toBe(0);
    const run = readRun(join(report, 'report.json'));
    expect(run.command).toContain(`pnpm bench ${named.join(' ')} --quick --force --rounds 1 --threads 1 --report `);
    expect(run.environment).toMatchObject({ kind: 'env', backend: 'wasm', node: process.version });
    expect([...new Set(run.figures.map(({ suite }) => suite))]).toEqual([...measured, 'environment']);
    if (testCoverage === 'full') expect(run.plots?.map(({ name }) => name)).toContain('subquadratic-prompt');

    const html = readFileSync(join(report, 'report.html'), 'utf8');
    expect(figuresOfPage(html)).toEqual(run.figures);
    for (const suite of measured) expect(html).toContain(`<h2>${suite}</h2>`);
    expect(html.match(/<svg /g)!.length).toBeGreaterThanOrEqual(measured.length);
    expect(html).not.toContain('NaN');
    expect(html).not.toMatch(/<script|src=|url\((?!#)/);
  });
});

const environment: Run['environment'] = {
  ...{ kind: 'env', cpu: 'C <1>', cpuFlags: ['avx2'], cores: 2, memoryGiB: 4, system: 'linux', node: 'v24' },
  ...{ commit: 'abc', loadAverage: 0, busyCores: 0, isNoisy: true, backend: 'wasm' },
};
const figure: Figure = {
  ...{ suite: 'a&b', case: 'x < y "z"', value: 1.23456789012, best: 2 / 3 },
  ...{ unit: 'ms', ratio: 1e-7, ratioOf: 'the "whole"' },
};

test('texts are escaped and values are exact; a changed figure is detected', async () => {
  const report = join(folder, 'small');
  const figures = [figure, { ...figure, case: 'second', value: 3 }];
  await writeReport(report, { runs: [{ command: "pnpm bench 'a b'", environment, figures }] });
  expect(readRun(join(report, 'report.json')).figures).toEqual(figures);
  const html = readFileSync(join(report, 'report.html'), 'utf8');
  expect(figuresOfPage(html)).toEqual(figures);
  expect(html).toContain('not evidence');
  expect(figuresOfPage(html.replace('1.23456789012', '1.23456789013'))).not.toEqual(figures);
});

const name = missingChromium() === undefined ? 'in Chromium' : `in Chromium (${missingChromium()})`;
describe.skipIf(missingChromium() !== undefined)(name, () => {
  test('a report opens without errors or requests', async () => {
    const report = join(folder, 'page');
    const plots = [
      {
        name: 'p',
        title: 'A <plot>',
        x: 'x',
        y: 'y',
        lines: [
          {
            name: 'l',
            points: [
              [1, 2],
              [4, 3],
            ] as const,
          },
        ],
      },
    ];
    const figures = [figure, { ...figure, case: 'second', value: 3 }];
    await writeReport(report, { runs: [{ command: 'pnpm bench', environment, figures, plots }] });
    // the report of all suites, if the previous test made it
    const pages = ['page', 'all'].map((part) => join(folder, part, 'report.html')).filter((path) => existsSync(path));
    const browser = await launchChromium();
    try {
      for (const path of pages) {
        const page = await browser.newPage();
        const complaints: string[] = [];
        const requests: string[] = [];
        page.on('pageerror', (error) => complaints.push(error.message));
        page.on('console', (message) => complaints.push(message.text()));
        page.on('requestfailed', (request) => complaints.push(`failed: ${request.url()}`));
        page.on('request', (request) => requests.push(request.url()));
        await page.goto(pathToFileURL(path).href, { waitUntil: 'load' });
        expect(complaints).toEqual([]);
        expect(requests.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(path).href]);
        const numRows = readRun(path.replace(/html$/, 'json')).figures.length;
        expect(await page.locator('table.figures tr[data-suite]').count()).toBe(numRows);
        const sizes = await page
          .locator('svg')
          .evaluateAll((all) => all.map((svg) => svg.getBoundingClientRect().width));
        expect(sizes.length).toBeGreaterThanOrEqual(2);
        expect(Math.min(...sizes)).toBeGreaterThan(300);
        await page.close();
      }
    } finally {
      await browser.close();
    }
  });
});
