/** The program of docs/guides/embeddings.md runs as it stands. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { expect, test, vi } from 'vitest';

test('docs/guides/embeddings.md', async () => {
  const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'embeddings.md'), 'utf8');
  const blocks = [...guide.matchAll(/^```ts(?: continued)?\n(.*?)^```$/gms)].map(([, code]) => code);
  expect(blocks).toHaveLength(4);
  const folder = join(import.meta.dirname, 'fixtures', '.cache');
  const file = join(folder, 'guide.ts');
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, blocks.join('\n'));
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(pathToFileURL(file).href);
    const logged = log.mock.calls;
    expect(logged[0]).toEqual(['1.0000']);
    const [near, far] = logged[1] as [number, number];
    expect(Math.max(near, far)).toBeLessThan(1);
    expect(logged.slice(2)).toEqual([['CapacityError'], [64, true], [true, 0]]);
  } finally {
    log.mockRestore();
    rmSync(folder, { recursive: true });
  }
});
