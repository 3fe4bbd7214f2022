import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { TextReport } from '../harness/report.js';
import { parseTextResults } from './parse-text.js';
import { formatResults, parseResults, type Results } from './results.js';

/** Output of the bench, each part after its command. */
function print({ runs }: Results): string {
  return runs
    .map(({ command, environment, figures }, index) => {
      const lines: string[] = [];
      const report = new TextReport((text) => lines.push(text));
      report.environment({ v8: '', date: '', threads: [], ...environment });
      for (const figure of figures) report.figure(figure);
      const isSame = command === runs[index - 1]?.command; // of several runs under one command
      return `${isSame ? '' : `$ ${command}\n`}${lines.join('')}`;
    })
    .join('\n');
}

const files = globSync('docs/benchmarks/*/*.txt', { cwd: repoRoot });

describe('committed results', () => {
  test('exist', () => expect(files.length).toBeGreaterThan(8));

  test.each(files)('%s: printing parsed results gives the same lines', (path) => {
    const text = readFileSync(join(repoRoot, path), 'utf8');
    const results = parseTextResults(text, path);
    const lines = (whole: string): string[] => whole.split('\n').filter((line) => line !== '');
    expect(lines(print(results))).toEqual(lines(text));
    expect(parseResults(formatResults(results), path)).toEqual(results);
  });
});

const [sample = ''] = files.filter((path) => path.endsWith('xeon-2-cores/decode.txt'));
const text = sample === '' ? '' : readFileSync(join(repoRoot, sample), 'utf8');

test.each([
  ['no command', text.replace('$ pnpm', 'pnpm'), 'expected "$ " and a command'],
  ['no machine', text.replace(' GiB', ''), 'expected a line of results, got "Intel'],
  [
    'a figure without a number',
    text.replace(/^(tinyllama.*? {2,})[\d.]+/m, '$1fast'),
    'expected a line of results, got "tinyllama',
  ],
  ['a figure before its table', text.replace(/^decode +median.*$/m, ''), 'expected the head of a table'],
])('%s is rejected', (_, broken, message) => {
  expect(() => parseTextResults(broken, 'some.txt')).toThrow(message);
  expect(() => parseTextResults(broken, 'some.txt')).toThrow('some.txt');
});

test('other JSON is rejected', () => {
  expect(() => parseResults('{"runs":[{}]}', 'a.json')).toThrow('a.json: expected {"runs"');
});
