/** What the build wrote: sizes, no inline code, and the licenses of what is bundled. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { repoRoot } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { pageUrl } from '../src/index.js';

const budgets = JSON.parse(readFileSync(join(repoRoot, 'size-budgets.json'), 'utf8')) as Record<
  string,
  Record<string, number>
>;
const folders = { page: fileURLToPath(pageUrl), static: fileURLToPath(new URL('../static/', pageUrl)) };

describe.each(Object.entries(folders))('dist/%s', (home, folder) => {
  const assets = readdirSync(join(folder, 'assets'));

  test('code and styles are within the budget of size-budgets.json', () => {
    const sizes = assets
      .filter((name) => /\.(js|css)$/.test(name))
      .map((name) => gzipSync(readFileSync(join(folder, 'assets', name)), { level: 9 }).length);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    expect(total).toBeGreaterThan(0);
    expect(total).toBeLessThanOrEqual(budgets['@winnow/playground']?.[home] ?? 0);
  });

  test('index.html has no inline code and loads nothing from elsewhere', () => {
    const html = readFileSync(join(folder, 'index.html'), 'utf8');
    expect(html.match(/<script\b[^>]*>/g)).toEqual([expect.stringContaining('src="./assets/')]);
    // a policy names origins, but loads nothing
    const rest = html.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, '');
    expect(rest).not.toMatch(/<style|\sstyle=|\son\w+=|https?:\/\//);
  });

  test('the licenses of the bundled libraries are beside it', () => {
    const text = readFileSync(join(folder, 'licenses.md'), 'utf8');
    for (const name of ['@picocss/pico', 'preact', 'markdown-it', 'lowlight', 'highlight.js', 'idb']) {
      expect(text).toContain(name);
    }
  });
});

test('the served home contains neither the engine nor a model', () => {
  const namesIn = (folder: string): string[] =>
    readdirSync(join(folder, 'assets')).filter((name) => /\.safetensors$|^main-.*\.js$/.test(name));
  expect(namesIn(folders.page)).toEqual([]);
  // the worker with the engine, and the demo model
  expect(namesIn(folders.static)).toHaveLength(2);
});
