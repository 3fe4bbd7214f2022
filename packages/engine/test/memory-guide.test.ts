/** The program of docs/guides/memory.md runs as it stands. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { expect, test, vi } from 'vitest';

test('docs/guides/memory.md', async () => {
  const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'memory.md'), 'utf8');
  const [, code] = /^```ts\n(.*?)^```$/ms.exec(guide) as unknown as [string, string];
  const folder = join(import.meta.dirname, '.cache-memory');
  const file = join(folder, 'guide.ts');
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, code);
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(pathToFileURL(file).href);
    expect(log.mock.calls).toEqual([[true, undefined]]);
  } finally {
    log.mockRestore();
    rmSync(folder, { recursive: true });
  }
});
