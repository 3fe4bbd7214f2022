/** Runs the programs of the guides unchanged. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { expect, test, vi } from 'vitest';

/** Runs the blocks of a guide as one program. @returns what it logged, one array of arguments per call */
async function runGuide(name: string, numBlocks: number): Promise<unknown[][]> {
  const guide = readFileSync(join(repoRoot, 'docs', 'guides', `${name}.md`), 'utf8');
  const blocks = [...guide.matchAll(/^```ts(?: continued)?\n(.*?)^```$/gms)].map(([, code]) => code);
  expect(blocks.length).toBeGreaterThanOrEqual(numBlocks);
  const folder = join(import.meta.dirname, '.cache', name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'guide.ts'), blocks.join('\n'));
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await import(pathToFileURL(join(folder, 'guide.ts')).href);
    return [...log.mock.calls];
  } finally {
    log.mockRestore();
    rmSync(folder, { recursive: true });
  }
}

test('docs/guides/embeddings.md', async () => {
  const logged = await runGuide('embeddings', 4);
  expect(logged[0]).toEqual(['1.0000']);
  const [near, far] = logged[1] as [number, number];
  expect(Math.max(near, far)).toBeLessThan(1);
  expect(logged.slice(2)).toEqual([['CapacityError'], [64, true], [true, 0]]);
});

test('docs/guides/generation.md', async () => {
  const logged = await runGuide('generation', 7);
  expect(logged).toContainEqual([511, true]); // dropped to fit
  expect(logged).toContainEqual([true]); // cached
  expect(logged.find(([text]) => String(text).includes('<|im_start|>assistant'))).toBeDefined();
  expect(logged.at(-1)?.[0]).toMatch(/^context: needed 2003 tokens, available 512 tokens/);
});

test('docs/guides/memory.md', async () => {
  expect(await runGuide('memory', 1)).toEqual([[true, undefined]]);
});
