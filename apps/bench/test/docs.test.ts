import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { generatedDocs } from '../src/docs/write-docs.js';
import { replaceBetween, speedTable } from '../src/docs/readme-tables.js';
import { parseResults, type Results } from '../src/results/results.js';

const remedy = 'run "pnpm --filter @winnow/bench readme-tables" after a build';

/** Committed documents match the results: tables of the README, JSON beside texts, pictures. */
test('the documentation agrees with the results', async () => {
  const files = await generatedDocs(repoRoot);
  const different = [...files].filter(([path, content]) => {
    const file = join(repoRoot, path);
    return !existsSync(file) || readFileSync(file, 'utf8') !== content;
  });
  expect(
    different.map(([path]) => path),
    remedy,
  ).toEqual([]);
  expect(files.size).toBeGreaterThan(12);
  const pages = globSync(['README.md', 'docs/{guides,benchmarks}/*.md'], { cwd: repoRoot });
  const texts = pages.map((path) => readFileSync(join(repoRoot, path), 'utf8'));
  for (const path of files.keys()) {
    if (path.endsWith('.svg')) expect(texts.join('\n')).toContain(`images/${basename(path)}`);
  }
});

const read = (name: string): Results => {
  const path = join(repoRoot, 'docs/benchmarks', `${name}.json`);
  return parseResults(readFileSync(path, 'utf8'), path);
};

test('a changed result changes the table, and a missing one is an error', () => {
  const changed = speedTable((name) => {
    const { runs } = read(name);
    return {
      runs: runs.map((run) => ({
        ...run,
        figures: run.figures.map((figure) => ({ ...figure, value: figure.value * 2 })),
      })),
    };
  });
  expect(changed).not.toBe(speedTable(read));
  expect(() => speedTable(() => ({ runs: [] }))).toThrow('decode.json: expected a figure of decode in tokens/s');
});

test('only text between the markers is replaced', () => {
  expect(replaceBetween('a\n<!-- t -->\nold\n<!-- /t -->\nb', 't', 'new')).toBe(
    'a\n<!-- t -->\n\nnew\n\n<!-- /t -->\nb',
  );
  expect(() => replaceBetween('a', 't', 'new')).toThrow('expected the markers <!-- t --> and <!-- /t -->');
});
