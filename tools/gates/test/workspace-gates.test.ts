/** Canaries of the workspace gates: layers, structure, catalog, text; type-checked.test.ts has others. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkBoundaries } from '../src/sources/boundaries.ts';
import { checkCatalog } from '../src/sources/catalog.ts';
import { checkFolderCycles } from '../src/sources/folder-cycles.ts';
import { checkFolders } from '../src/sources/folders.ts';
import { checkStructure } from '../src/sources/structure.ts';
import { checkText } from '../src/sources/text-scan.ts';
import { moduleUses } from '../src/workspace/imports.ts';
import { listFiles, placesOf, readWorkspace } from '../src/workspace/workspace.ts';
import { addFiles, createFolder, libraryFiles, workspaceFiles, type Files } from './fixture.ts';

function planted(files: Files): string {
  const folder = createFolder(workspaceFiles());
  addFiles(folder, files);
  return folder;
}

it('skips files that a concurrent build removes', () => {
  const names = ['tsup.config.mjs', 'tsup.config.bundled_p50dux2a57d.mjs', 'dist/index.js', 'src/index.ts'];
  const folder = createFolder(Object.fromEntries(names.map((name) => [name, ''])));
  expect(listFiles(folder)).toEqual(['src/index.ts', 'tsup.config.mjs']);
});

const check = (files: Files): string[] => checkBoundaries(readWorkspace(planted(files)));
const low = 'packages/low/src/bad.ts';

it('layers: accepts the clean workspace', () => {
  expect(check({})).toEqual([]);
});

it.each([
  ['an import', "import { double } from '@winnow/high';\ndouble(1);\n"],
  ['a type import', "import type { Four } from '@winnow/high';\nexport type X = Four;\n"],
  ['an inline type import', "export type X = import('@winnow/high').Four;\n"],
  ['a dynamic import', "export const load = (): Promise<unknown> => import('@winnow/high');\n"],
  ['a re-export', "export { double } from '@winnow/high';\n"],
  ['a deep import', "import '@winnow/high/dist/double.js';\n"],
  ['require', "declare const require: (name: string) => unknown;\nrequire('@winnow/high');\n"],
])('layers: catches %s that goes up', (_, code) => {
  expect(check({ [low]: code }).join('\n')).toMatch(
    /packages\/low\/src\/bad\.ts:\d+: imports "@winnow\/high": .*go down/,
  );
});

it.each(['tsx', 'jsx', 'js', 'mts'])('layers: reads .%s', (extension) => {
  const file = `packages/low/page/bad.${extension}`;
  expect(check({ [file]: "import '@winnow/high';\n" }).join('\n')).toContain(`${file}:1: imports "@winnow/high"`);
});

it('layers: catches a declared dependency that goes up', () => {
  const problems = check(libraryFiles('low', { dependencies: { '@winnow/high': 'workspace:*' } }));
  expect(problems.join('\n')).toContain('packages/low/package.json: dependencies "@winnow/high": imports go down');
});

it('layers: leaves the imports of templates to the templates', () => {
  const main = { 'packages/low/projects/app/src/main.ts': "import '@winnow/high';\n" };
  expect(check(main).join('\n')).toContain('projects/app/src/main.ts:1: imports "@winnow/high"');
  expect(check({ ...main, 'packages/low/projects/app/package.json': { name: 'app' } })).toEqual([]);
});

it('layers: catches siblings', () => {
  const declared = libraryFiles('low', { dependencies: { '@winnow/other': 'workspace:*' } });
  const problems = check({ ...declared, [low]: "import '@winnow/other';\n" }).join('\n');
  expect(problems).toContain('package.json: dependencies "@winnow/other": siblings');
  expect(problems).toContain('bad.ts:1: imports "@winnow/other": siblings');
});

it('layers: catches a development helper in published code and in dependencies', () => {
  const declared = libraryFiles('low', { dependencies: { '@winnow/helper': 'workspace:*' } });
  const problems = check({ ...declared, [low]: "import '@winnow/helper';\n" }).join('\n');
  expect(problems).toContain('package.json: dependencies "@winnow/helper": "helper" is a development helper');
  expect(problems).toContain('bad.ts:1: imports "@winnow/helper": "helper" is a development helper');
});

it('layers: catches an undeclared import, a devDependency in published code and a path out of the package', () => {
  expect(check({ 'packages/high/src/bad.ts': "import '@winnow/other';\n" }).join('\n')).toContain('does not declare');
  const onlyForTests = libraryFiles('high', { devDependencies: { '@winnow/low': 'workspace:*' } });
  expect(check(onlyForTests).join('\n')).toContain('uses-low.ts:1: imports "@winnow/low", which package.json');
  expect(check({ [low]: "import '../../high/src/double.js';\n" }).join('\n')).toContain('leaves the package');
});

it('layers: catches a package without a layer, and a workspace in which nothing was read', () => {
  expect(check(libraryFiles('stray')).join('\n')).toContain('"stray" is missing in layers.json');
  const empty = createFolder({ 'pnpm-workspace.yaml': 'packages: [packages/*]\n', 'package.json': {} });
  expect(() => readWorkspace(empty)).toThrow('no workspace package');
  const bare = createFolder({
    'pnpm-workspace.yaml': 'packages: [packages/*]\n',
    'package.json': {},
    'layers.json': { layers: [['low']], dev: [], devUses: [] },
    'packages/low/package.json': { name: '@winnow/low' },
  });
  expect(checkBoundaries(readWorkspace(bare)).join('\n')).toContain('nothing was checked');
});

it('layers: fails on a file that does not parse', () => {
  expect(() => moduleUses('x.ts', 'import {')).toThrow('x.ts');
});

describe('layers of folders', () => {
  const folders = { low: [['bottom'], ['left', 'right'], ['top']] };
  const file = 'export {};\n';
  const check = (files: Files): string => {
    const own = ['bottom', 'left', 'right', 'top'].map((name) => [`packages/low/src/${name}/a.ts`, file]);
    const root = planted({ ...Object.fromEntries(own), ...files });
    return checkFolders(readWorkspace(root).packages, folders).join('\n');
  };

  it('accepts imports that go down, of the own folder, and tests', () => {
    const down = "import '../left/a.js';\nimport './b.js';\nimport '@winnow/low';\n";
    const up = "import '../top/a.js';\n";
    const files = { 'packages/low/src/top/a.ts': down, 'packages/low/src/left/a.test.ts': up };
    expect(check({ ...files, 'packages/low/src/api.ts': "import './top/a.js';\n" })).toBe('');
  });

  it.each([
    ['an import that goes up', 'left', '../top/a.js', 'go down only: "top" is in layer 2, above 1 of "left"'],
    ['siblings', 'left', '../right/a.js', '"left" and "right" are siblings of layer 1'],
    ['a file directly in src', 'bottom', '../index.js', 'do not import files directly in src'],
  ])('catches %s', (_, from, specifier, message) => {
    const path = `packages/low/src/${from}/a.ts`;
    const problems = check({ [path]: `import type { X } from '${specifier}';\nexport type Y = X;\n` });
    expect(problems).toBe(`${path}:1: imports "${specifier}": ${problems.split(': ').slice(2).join(': ')}`);
    expect(problems).toContain(message);
  });

  it('catches a folder without a layer, a layer without a folder, and a package that does not exist', () => {
    expect(check({ 'packages/low/src/extra/a.ts': file })).toContain('src/extra: is missing in "folders"');
    const root = planted({});
    const problems = checkFolders(readWorkspace(root).packages, { low: [['bottom']], missing: [] }).join('\n');
    expect(problems).toContain('packages/low/src has no folder "bottom"');
    expect(problems).toContain('folders of "missing", which is not a package');
  });
});

describe('layers of folders: files directly in src, and packages without an order', () => {
  const layers = { low: [['.'], ['left', 'right'], ['top']] };
  const check = (base: Files): string => {
    const files = { 'packages/low/src/left/a.ts': "import '../base.js';\n", ...sources('low/src', 'right/a', 'top/a') };
    return checkFolders(readWorkspace(planted({ ...files, ...base })).packages, layers).join('\n');
  };

  it('accepts files that folders import, and others that import from all folders', () => {
    expect(check({ 'packages/low/src/api.ts': "import './top/a.js';\nimport './base.js';\n" })).toBe('');
  });

  it('catches a file that folders import, directly or not, and that imports from above', () => {
    const more = { 'packages/low/src/more.ts': "import './top/a.js';\n" };
    const found = check({ 'packages/low/src/base.ts': "import './more.js';\n", ...more });
    expect(found).toBe(
      'packages/low/src/more.ts:1: imports "./top/a.js": imports go down only: "top" is in layer 2, above 0 of "."',
    );
  });

  it('catches three folders without an order, not two', () => {
    const three = readWorkspace(planted(sources('low/src', 'left/a', 'right/a', 'top/a'))).packages;
    const problem = 'packages/low/src: 3 folders without an order in "folders" of layers.json';
    expect(checkFolders(three, {})).toEqual([problem]);
    expect(checkFolders(readWorkspace(planted(sources('low/src', 'left/a', 'right/a'))).packages, {})).toEqual([]);
  });
});

describe('cycles of folders', () => {
  const check = (files: Files): string[] => checkFolderCycles(placesOf(readWorkspace(planted(files))));

  it('accepts folders that import in one direction, files of parent folders, and tests', () => {
    const files = {
      'packages/low/src/top/deep/a.ts': "import '../../bottom/a.js';\nimport '../../base.js';\n",
      'packages/low/src/api.ts': "import './top/deep/a.js';\nimport './base.js';\n",
      'packages/low/src/bottom/a.test.ts': "import '../top/deep/a.js';\n",
    };
    expect(check({ ...sources('low/src', 'base', 'bottom/a'), ...files })).toEqual([]);
  });

  it.each([
    ['of a page', 'page', 'ts', "import type { X } from '../b/x.js';\nexport type Y = X;\n", "import '../a/x.js';\n"],
    ['below src', 'src/deep', 'ts', "export { x } from '../b/x.js';\n", "await import('../a/x.js');\n"],
    [
      'of AssemblyScript',
      'assembly',
      'ts',
      "import { x } from '../b/x';\n",
      "import {\n  y,\n} from '../a/x';\n@inline function f(): void {}\n",
    ],
    ['of C++', 'source', 'h', '#include "../b/x.h"\n', '#include "../a/x.h"\n'],
  ])('catches folders %s that import from each other', (_, folder, extension, a, b) => {
    const at = `packages/low/${folder}`;
    const problems = check({ [`${at}/a/x.${extension}`]: a, [`${at}/b/x.${extension}`]: b });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(
      `${at}: b/, a/ import from each other: ${folder}/a/x.${extension} imports ${folder}/b/x`,
    );
  });

  it('catches a folder that imports from itself through others and through a file beside it', () => {
    const files = {
      'packages/low/src/a/x.ts': "import '../b/x.js';\n",
      'packages/low/src/b/x.ts': "import '../base.js';\n",
      'packages/low/src/base.ts': "import './a/x.js';\n",
    };
    expect(check(files).join()).toContain('packages/low/src: b/, base, a/ import from each other');
  });

  it('reads scripts beside the packages', () => {
    const files = { 'scripts/a/x.mjs': "import '../b/x.mjs';\n", 'scripts/b/x.mjs': "import '../a/x.mjs';\n" };
    expect(check(files).join()).toContain('scripts: b/, a/ import from each other');
  });
});

/** Empty modules of a folder of `packages`. */
function sources(folder: string, ...names: string[]): Files {
  return Object.fromEntries(names.map((name) => [`packages/${folder}/${name}.ts`, 'export {};\n']));
}

it('house structure: allows four files with one prefix if some are tests or generated, or all are ops', () => {
  const tests = sources('low/src', 'page', 'page-list', 'page-boxes', 'page-staging.test', 'page-table.generated');
  const ops = sources('ops/src/ops', 'attention', 'attention-mass', 'attention-merge', 'attention-finish');
  const headers = Object.fromEntries(
    ['tile.cpp', 'tile.h', 'tile-rows.cpp', 'tile-rows.h'].map((name) => [`packages/low/source/${name}`, ';\n']),
  );
  const files = { ...tests, ...headers, ...libraryFiles('ops'), ...ops };
  expect(checkStructure(readWorkspace(planted(files))).problems).toEqual([]);
});

const structureProblems = (files: Files): string => checkStructure(readWorkspace(planted(files))).problems.join('\n');

it.each(['tsx', 'js', 'cjs', 'cpp', 'c'])('house structure: catches a long .%s', (extension) => {
  const files = { [`packages/low/page/long.${extension}`]: ';\n'.repeat(451) };
  expect(structureProblems(files)).toContain(`long.${extension}: 451 lines`);
});

it('house structure: catches a long C++ function', () => {
  const text = `\nvoid f() {\n${';\n'.repeat(60)}}\n`;
  expect(structureProblems({ 'packages/low/source/f.h': text })).toContain('f.h:2: a function of 62 lines');
});

it('house structure: catches long functions and lines of Python, also in folders of fixtures', () => {
  const problems = structureProblems({
    'packages/low/src/__fixtures__/f.py': `def f(\n):\n${'    f()\n'.repeat(60)}`,
    'packages/low/make_all.py': `# ${'x'.repeat(139)}\n`,
  });
  expect(problems).toContain('f.py:1: a function of 62 lines');
  expect(problems).toContain('make_all.py:1: 141 columns');
  expect(problems).not.toContain('kebab-case');
});

it('house structure: catches tabs, space at the end of a line, and a last line without an end in C++', () => {
  const problems = structureProblems({ 'packages/low/source/f.cpp': ';\n\t;\n; \n;' });
  expect(problems).toContain('f.cpp:2: a tab, or space at the end of the line');
  expect(problems).toContain('f.cpp:3: a tab, or space at the end of the line');
  expect(problems).toContain('f.cpp: the last line has no end');
});

describe('house structure', () => {
  const check = structureProblems;

  it('accepts the clean workspace', () => {
    expect(check({})).toBe('');
  });

  it.each<[string, Files, string]>([
    ['export *', { 'packages/low/src/index.ts': "export * from './double.js';\n" }, '"export *" hides'],
    ['logic in index.ts', { 'packages/low/src/index.ts': 'export const x: number = 1;\n' }, 'contains logic'],
    ['logic in index.node.ts', { 'packages/low/src/index.node.ts': 'void 0;\n' }, 'index.node.ts: contains logic'],
    ['a long file', { 'packages/low/src/long.ts': 'export {};\n'.repeat(451) }, 'long.ts: 451 lines'],
    ['a long line', { 'packages/low/src/wide.ts': `// ${'x'.repeat(138)}\n` }, 'wide.ts:1: 141 columns'],
    ['a long line of a script', { 'scripts/wide.mjs': `// ${'x'.repeat(138)}\n` }, 'scripts/wide.mjs:1: 141 columns'],
    ['a long README', { 'packages/low/README.md': '```ts\n```\n'.repeat(60) }, 'README.md: 120 lines'],
    ['a README without an example', { 'packages/low/README.md': '# low\n' }, 'an example in a ```ts block'],
    ['fixtures without origin', { 'packages/low/src/__fixtures__/x.json': '{}' }, 'ORIGIN.md is missing'],
    ['a file name in camel case', { 'packages/low/src/fastPath.ts': 'export {};\n' }, 'kebab-case'],
    ['four files with one prefix', sources('low/src', 'page', 'page-list', 'page-boxes', 'page-staging'), '4 files'],
    ['four tests with one prefix', sources('low/test', 'a.test', 'a-b.test', 'a-c.test', 'a-d.test'), '4 files'],
    ['side effects', libraryFiles('low', { sideEffects: true }), '"sideEffects" must be false'],
    ['a wrong name', { 'packages/low/package.json': { name: 'low' } }, 'the name must be @winnow/low'],
  ])('catches %s', (_, files, message) => {
    expect(check(files)).toContain(message);
  });

  it.each(['README.md', 'tsconfig.json', 'vitest.config.mjs'])('catches a missing %s', (name) => {
    const folder = planted({});
    const files: Record<string, string | object> = { ...libraryFiles('fresh') };
    delete files[`packages/fresh/${name}`];
    addFiles(folder, files);
    expect(checkStructure(readWorkspace(folder)).problems).toContain(`packages/fresh: ${name} is missing`);
  });

  it('catches a library without tests and exports in the wrong order', () => {
    const folder = planted({});
    const exports = {
      '.': { default: './dist/index.js', types: './dist/index.d.ts', '@winnow/source': './src/index.ts' },
    };
    const files: Record<string, string | object> = { ...libraryFiles('fresh', { exports }) };
    delete files['packages/fresh/src/double.test.ts'];
    addFiles(folder, files);
    const problems = checkStructure(readWorkspace(folder)).problems.join('\n');
    expect(problems).toContain('packages/fresh: no test file');
    expect(problems).toContain('must have @winnow/source, types, default in this order');
  });

  it('accepts an origin for a part of the fixtures, and catches the part without', () => {
    const part = { 'packages/low/src/__fixtures__/a/x.json': '{}', 'packages/low/src/__fixtures__/a/ORIGIN.md': 'x' };
    expect(check(part)).toBe('');
    expect(check({ ...part, 'packages/low/src/__fixtures__/b/x.json': '{}' })).toContain('ORIGIN.md is missing');
  });

  it('warns before a file is too long', () => {
    const folder = planted({ 'packages/low/src/long.ts': 'export {};\n'.repeat(410) });
    expect(checkStructure(readWorkspace(folder)).warnings.join('\n')).toContain('long.ts: 410 lines');
  });
});

describe('catalog', () => {
  const check = (files: Files): string => checkCatalog(readWorkspace(planted(files))).join('\n');

  it('accepts the clean workspace', () => {
    expect(check({})).toBe('');
  });

  it('catches versions outside the catalog', () => {
    expect(check(libraryFiles('low', { dependencies: { 'left-pad': '^1.0.0' } }))).toContain('must be "catalog:"');
    expect(check(libraryFiles('low', { dependencies: { 'right-pad': 'catalog:' } }))).toContain('not in the catalog');
    expect(check(libraryFiles('high', { dependencies: { '@winnow/low': '1.0.0' } }))).toContain(
      'must come from the workspace',
    );
  });

  it('catches a catalog entry that nothing uses', () => {
    expect(check({ 'package.json': { name: 'fixture', private: true } })).toContain('nothing uses the catalog entry');
  });
});

describe('text', () => {
  const slash = '/';

  it('accepts the clean workspace', () => {
    expect(checkText(planted({}))).toEqual([]);
  });

  it.each([
    `see ${slash}work${slash}main`,
    `const path = "${slash}tmp${slash}x";`,
    `${slash}home${slash}somebody${slash}models`,
    `${slash}Users${slash}somebody${slash}models`,
    `https:${slash}${slash}registry.npm${''}js.org${slash}x`,
  ])('catches %s', (line) => {
    const folder = planted({});
    writeFileSync(join(folder, 'packages/low/README.md'), `first line\n${line}\n`);
    expect(checkText(folder).join('\n')).toContain('packages/low/README.md:2');
  });

  it.each(['packages/low/source/f.cpp', 'packages/low/page/f.tsx', 'docs/train.py', 'deploy/proxy.cfg'])(
    'catches them in %s',
    (path) => {
      const folder = planted({ [path]: `// see ${slash}work${slash}main\n` });
      expect(checkText(folder).join('\n')).toContain(`${path}:1`);
    },
  );

  it('leaves relative folders and ordinary words alone', () => {
    const folder = planted({
      'notes.md': 'packages/work/x, a/tmp/b, registry.get(name), new Registry.entries.map()\n',
    });
    expect(checkText(folder)).toEqual([]);
  });
});
