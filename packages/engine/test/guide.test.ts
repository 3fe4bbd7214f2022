/** The program of docs/guides/generation.md runs as it stands. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { CapacityError } from '@winnow/tensor';
import { expect, test, vi } from 'vitest';

test('docs/guides/generation.md', async () => {
  const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'generation.md'), 'utf8');
  const blocks = [...guide.matchAll(/^```ts(?: continued)?\n(.*?)^```$/gms)].map(([, code]) => code);
  expect(blocks.length).toBeGreaterThan(6);
  const folder = join(import.meta.dirname, '.cache');
  const file = join(folder, 'guide.ts');
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, blocks.join('\n'));
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(pathToFileURL(file).href);
    const logged = log.mock.calls;
    expect(logged).toContainEqual([255, true]); // dropped to fit
    expect(logged).toContainEqual([true]); // cached
    expect(logged.find(([text]) => String(text).includes('<|im_start|>assistant'))).toBeDefined();
    expect(logged.at(-1)?.[0]).toBeInstanceOf(CapacityError);
  } finally {
    log.mockRestore();
    rmSync(folder, { recursive: true });
  }
});
