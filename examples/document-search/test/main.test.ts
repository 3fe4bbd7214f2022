/** Runs the example as a process, with the built packages. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';

const program = fileURLToPath(new URL('../main.ts', import.meta.url));
const run = promisify(execFile);
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-search-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function search(...argv: string[]): Promise<string[]> {
  const { stdout, stderr } = await run(process.execPath, [program, ...argv]);
  expect(stderr).toBe('');
  return stdout.trim().split('\n\n');
}

test('splits, embeds, stores and finds; the second question reads the file', async () => {
  const index = join(folder, 'book.sqlite');
  const sentence = 'There was only one book in the house. It was about cooking.';
  const [stored, ...first] = await search(sentence, '--index', index);
  const numPassages = Number(/^stored (\d+) passages$/.exec(stored ?? '')?.[1]);
  expect(numPassages).toBeGreaterThan(20);
  expect(first).toHaveLength(3);
  expect(first[0]).toContain('There was only one book in the house.');
  const similarities = first.map((line) => Number.parseFloat(line));
  expect(similarities).toEqual(similarities.toSorted((a, b) => b - a));
  expect(await search(sentence, '--index', index)).toEqual([`found ${numPassages} passages`, ...first]);
});

test('accepts other books, and sentences without a final period', async () => {
  const book = join(folder, 'other.txt');
  writeFileSync(book, `${'and so on '.repeat(2000)}\n\nThe end came soon.\n`);
  const [stored, first] = await search('The end came soon.', '--book', book, '--limit', '1');
  expect(stored).toBe('stored 2 passages');
  expect(first).toBe('1.000  The end came soon.');
});
