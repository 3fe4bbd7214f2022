/** Runs the program of docs/guides/server.md unchanged. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { expect, test, vi } from 'vitest';

test('docs/guides/server.md', async () => {
  const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'server.md'), 'utf8');
  const blocks = [...guide.matchAll(/^```ts(?: continued)?\n(.*?)^```$/gms)].map(([, code]) => code);
  expect(blocks).toHaveLength(6);
  const folder = join(import.meta.dirname, 'fixtures', '.cache');
  const file = join(folder, 'guide.ts');
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, blocks.join('\n'));
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(pathToFileURL(file).href);
    expect(log.mock.calls).toEqual([
      [true],
      [{ value: 'unloaded' }],
      [{ value: 'loaded' }],
      [5],
      ['context_length_exceeded'],
      [true],
      ['text'],
      [['winnow-tiny']],
      ['4'],
    ]);
  } finally {
    log.mockRestore();
    rmSync(folder, { recursive: true });
  }
});
