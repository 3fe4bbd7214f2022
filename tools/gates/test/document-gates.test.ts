/** Canaries of the document gates: links, llms.txt, the picture of the layers. */
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkDocuments, writeDocuments } from '../src/documents/documents.ts';
import { drawLayers } from '../src/documents/layers-picture.ts';
import { checkDrawings, checkLinks, checkNamedFiles } from '../src/documents/links.ts';
import { parseDocument } from '../src/documents/markdown.ts';
import { readWorkspace } from '../src/workspace/workspace.ts';
import { addFiles, createFolder, workspaceFiles, type Files } from './fixture.ts';

describe('links', () => {
  const clean: Files = {
    'README.md':
      '# Title\n\n[guide](docs/a.md#two-words), [here](#title), [out](https://example.org/gone), ![x](docs/a.svg)\n',
    'docs/a.md': '# A\n\n## Two words\n\n[up](../README.md) and [folder](../docs)\n',
    'docs/a.svg': '<svg/>',
  };
  const check = (files: Files): string => checkLinks(createFolder({ ...clean, ...files })).join('\n');

  it('accepts valid links', () => expect(check({})).toBe(''));

  it.each([
    ['a file that is not there', '[x](gone.md)', 'docs/b.md:3: gone.md: no such file'],
    ['a picture that is not there', '![x](gone.svg)', 'no such file'],
    ['a link in a table', '| a |\n| --- |\n| [x](gone.md) |', 'docs/b.md:5: gone.md'],
    ['a picture in HTML', '<p><img src="gone.svg"></p>', 'no such file'],
    ['a heading that is not there', '[x](a.md#three-words)', 'no such heading'],
    ['a heading of the document itself', '[x](#gone)', 'no such heading'],
    ['a link by reference', '[x][y]\n\n[y]: gone.md', 'no such file'],
    ['a path from the root', '[x](/docs/a.md)', 'must be relative'],
    ['a path out of the repository', '[x](../../a.md)', 'out of the repository'],
    ['build output', '[x](../packages/low/dist/index.js)', 'not tracked by git'],
  ])('catches %s', (_, link, message) => {
    expect(check({ 'docs/b.md': `# B\n\n${link}\n`, 'packages/low/dist/index.js': '' })).toContain(message);
  });

  it('ignores code', () => {
    expect(check({ 'docs/b.md': '# B\n\n`[x](gone.md)`\n\n```\n[x](gone.md)\n```\n' })).toBe('');
  });

  it('catches a repository without links', () => {
    expect(checkLinks(createFolder({ 'README.md': '# Title\n' })).join('\n')).toContain('nothing was checked');
  });
});

describe('drawings', () => {
  const check = (drawing: string): string[] =>
    checkDrawings(
      createFolder({
        'CONTRIBUTING.md': `# Contributing\n\n\`\`\`text\n${drawing}\n\`\`\`\n\ngone/src/c.ts\n`,
        'packages/low/src/a.ts': 'export function load() {}\nclass Run {\n  async *#step() {}\n}\n',
        'packages/low/src/b.ts': '',
      }),
    );

  it('accept files and folders of packages', () => {
    expect(check('A ─▶ B   low/src/a.ts, b.ts\n  │  low/src   <op>.ts')).toEqual([]);
  });

  it('catch missing files', () => {
    expect(check('A ─▶ B   low/src/a.ts, gone.ts, low/src/deep')).toEqual([
      'CONTRIBUTING.md: packages/low/src/gone.ts: no such file',
      'CONTRIBUTING.md: packages/low/src/deep: no such file',
    ]);
  });

  it('accept chains of functions that exist, and catch others', () => {
    expect(check('text   load → Run.#step ─▶ Run   what it does')).toEqual([]);
    expect(check('text   gone → load → Run.#lost ─▶ Walk   what it does')).toEqual([
      'CONTRIBUTING.md: gone: no such function',
      'CONTRIBUTING.md: Run.#lost: no such function',
      'CONTRIBUTING.md: Walk: no such function',
    ]);
  });
});

it('files that a recipe names exist, by the end of their path', () => {
  const root = createFolder({
    'CONTRIBUTING.md': 'See `low/src/a.ts`, `src/<op>.ts` and `*.node.ts`.\n',
    'docs/recipes/add.md': 'See `src/a.ts`, `c/a.ts`, `gone.json` and `b.generated.ts`.\n',
    'packages/low/src/a.ts': '',
  });
  expect(checkNamedFiles(root)).toEqual([
    'docs/recipes/add.md: c/a.ts: no such file',
    'docs/recipes/add.md: gone.json: no such file',
  ]);
});

const readme =
  '# Fixture\n\nA summary. More.\n\n[low](packages/low/README.md) [other](packages/other/README.md) ' +
  '[high](packages/high/README.md) [helper](packages/helper/README.md)\n';
const layers = {
  layers: [
    ['low', 'other'],
    ['high', 'planned'],
  ],
  titles: ['core', 'top'],
  dev: ['helper'],
};
function create(): string {
  const folder = createFolder({
    ...workspaceFiles(),
    'README.md': readme,
    'CONTRIBUTING.md': '# Contributing\n\nWelcome.\n',
    'docs/models.md': '# Models\n\nAll.\n',
    'docs/ops.md': '# Ops\n\nAll.\n',
    'docs/decisions/README.md': '# Decisions\n\nAll.\n',
    'docs/guides/first.md': '# The `first` guide\n\nHow to [begin](../models.md), and\nhow to go on. Not this.\n',
    'docs/images/layers.svg': '',
    'layers.json': layers,
  });
  writeDocuments(readWorkspace(folder));
  return folder;
}
const check = (folder: string): string => checkDocuments(readWorkspace(folder)).join('\n');

it('documents: accepts its own output', () => {
  const folder = create();
  expect(check(folder)).toBe('');
  const text = readFileSync(join(folder, 'llms.txt'), 'utf8');
  expect(text).toContain('# Fixture\n\n> A summary.\n');
  expect(text).toContain('- [The first guide](docs/guides/first.md): How to begin, and how to go on.\n');
  expect(text).toContain('(packages/high/README.md)');
});

it('documents: catches a new guide and a missing file', () => {
  const folder = create();
  addFiles(folder, { 'docs/guides/second.md': '# Second\n\nMore.\n' });
  expect(check(folder)).toContain('llms.txt is out of date');
  rmSync(join(folder, 'llms.txt'));
  expect(check(folder)).toContain('llms.txt is missing');
});

it('documents: catches a package that the README does not name', () => {
  const folder = create();
  addFiles(folder, { 'README.md': readme.replace('packages/other/README.md', 'packages/low/README.md') });
  expect(check(folder)).toContain('README.md has no link to packages/other/README.md');
});

it('documents: catches a root README and a decision that are too long', () => {
  const folder = create();
  addFiles(folder, {
    'README.md': `${readme}${'\nmore\n'.repeat(80)}`,
    'docs/decisions/0001-long.md': 'word | '.repeat(551),
  });
  expect(check(folder)).toMatch(/README\.md: \d+ lines of the root README, the limit is 150/);
  expect(check(folder)).toContain('docs/decisions/0001-long.md: 551 words of the longest decision, the limit is 550');
});

it('documents: catches a first example of more than five lines', () => {
  const folder = create();
  const example = (numLines: number): string => `\n\`\`\`ts\n${'f();\n'.repeat(numLines)}\n\`\`\`\n`;
  addFiles(folder, { 'README.md': readme + example(5) });
  expect(check(folder)).toBe('');
  addFiles(folder, { 'README.md': readme + example(6) });
  expect(check(folder)).toContain('README.md:8: 6 lines of code, at most 5');
});

it('documents: catches a picture of other layers', () => {
  const folder = create();
  addFiles(folder, { 'layers.json': { ...layers, titles: ['core', 'peak'] } });
  expect(check(folder)).toContain('layers.svg is out of date');
});

it('documents: draws every package, planned ones dashed', () => {
  const { packages } = readWorkspace(create());
  const svg = drawLayers(layers, packages);
  for (const name of ['low', 'other', 'high', 'planned', 'helper', 'core', 'top']) expect(svg).toContain(`>${name}<`);
  expect(svg.match(/stroke-dasharray/g)).toHaveLength(1);
  expect(() => drawLayers({ ...layers, titles: [] }, packages)).toThrow('titles');
});

describe('markdown', () => {
  it('reads title, summary and anchors as GitHub does', () => {
    const { title, summary, anchors } = parseDocument('# A `b` c\n\nOne v1.2 text! Two.\n\n## Same\n\n## Same\n');
    expect({ title, summary }).toEqual({ title: 'A b c', summary: 'One v1.2 text!' });
    expect([...anchors]).toEqual(['a-b-c', 'same', 'same-1']);
  });
});
