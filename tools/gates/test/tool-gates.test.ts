/** Canaries of third-party tools, run with the settings of this repository. */
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join, posix } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runProgram, type Outcome } from '../src/workspace/run.ts';
import { readJson } from '../src/workspace/workspace.ts';
import {
  addFiles,
  copySettings,
  createFolder,
  gatesFolder,
  libraryFiles,
  repoFolder,
  runTool,
  type Files,
} from './fixture.ts';

describe('format', () => {
  const check = (code: string): number => {
    const folder = createFolder({ 'a.ts': code });
    copySettings(folder, '.oxfmtrc.json');
    return runTool('oxfmt', 'oxfmt', ['--check'], folder).code;
  };

  it('accepts formatted code', () => expect(check("export const a = 'x';\n")).toBe(0));
  it('catches unformatted code', () => expect(check('export const   a = "x"\n')).not.toBe(0));
});

const clean = 'export const a: number = 1;\n';
const lint = (files: Files): { code: number; output: string } => {
  const folder = createFolder({ 'packages/low/src/clean.ts': clean, ...files });
  copySettings(folder, '.oxlintrc.json');
  return runTool('oxlint', 'oxlint', ['--deny-warnings'], folder);
};
const inSource = (code: string, path = 'packages/low/src/bad.ts'): { code: number; output: string } =>
  lint({ [path]: code });

it('lint: accepts clean code', () => {
  expect(inSource(clean)).toMatchObject({ code: 0 });
});

it('lint: reads kernels, whose functions have at most 60 lines', () => {
  const ofLines = (count: number): string =>
    [
      'export function kernel(): i32 {',
      ...Array<string>(count - 3).fill('  store<i32>(0, 1);'),
      '  return 0;',
      '}',
      '',
    ].join('\n');
  const path = 'packages/backend-wasm/assembly/ops/kernel.ts';
  expect(inSource(ofLines(60), path)).toMatchObject({ code: 0 });
  expect(inSource(ofLines(61), path).output).toContain('max-lines-per-function');
});

const forbidden: readonly (readonly [what: string, code: string, rule: string])[] = [
  ['console output', "console.log('x');\n", 'no-console'],
  ['a node: import', "import { readFileSync } from 'node:fs';\n\nreadFileSync('x');\n", 'no-restricted-imports'],
  ['a built-in without prefix', "import { readFileSync } from 'fs';\n\nreadFileSync('x');\n", 'no-restricted-imports'],
  ['a type of node:', "import type { Stats } from 'node:fs';\n\nexport type S = Stats;\n", 'no-restricted-imports'],
  ['process', 'export const a: unknown = process.env;\n', 'no-restricted-globals'],
  ['Buffer', 'export const a: unknown = Buffer.alloc(1);\n', 'no-restricted-globals'],
  ['window', 'export const a: unknown = window;\n', 'no-restricted-globals'],
  ['document', 'export const a: unknown = document.body;\n', 'no-restricted-globals'],
  ['Math.random', 'export const a: number = Math.random();\n', 'no-restricted-properties'],
  ['Date.now', 'export const a: number = Date.now();\n', 'no-restricted-properties'],
  ['any', 'export const a: any = 1;\n', 'no-explicit-any'],
  ['@ts-ignore', '// @ts-ignore\nexport const a: number = 1;\n', 'ban-ts-comment'],
  ['a value import of a type', "import { T } from './t.js';\n\nexport const a: T = 1;\n", 'consistent-type-imports'],
];
let linted: ReturnType<typeof lint> | undefined;
/** One run over a file for each row. */
const lintForbidden = (): ReturnType<typeof lint> =>
  (linted ??= lint(Object.fromEntries(forbidden.map(([, code], row) => [`packages/low/src/row-${row}.ts`, code]))));

it.each(forbidden.map(([what, , rule], row) => [what, rule, row] as const))('lint: catches %s', (_, rule, row) => {
  const { code, output } = lintForbidden();
  const messages = output.split(/\n(?=\s*(?:[x×!⚠]) )/).filter((text) => text.includes(`row-${row}.ts`));
  expect(messages.join('\n')).toContain(rule);
  expect(code).not.toBe(0);
});

it('lint: catches an import cycle', () => {
  const { code, output } = lint({
    'packages/low/src/a.ts': "import { b } from './b.js';\n\nexport const a = (): number => b();\n",
    'packages/low/src/b.ts': "import { a } from './a.js';\n\nexport const b = (): number => a();\n",
  });
  expect(output).toContain('no-cycle');
  expect(code).not.toBe(0);
});

it('lint: allows Node in *.node.ts, in tests, tools and apps, and the browser in *.browser.ts only', () => {
  const node = "import { readFileSync } from 'node:fs';\n\nreadFileSync(process.argv[0] ?? '');\n";
  const browser = 'export const a: unknown = window;\n';
  const paths = ['packages/low/src/a.node.ts', 'packages/low/src/a.test.ts', 'apps/x/src/a.ts', 'tools/x/a.ts'];
  const allowed = Object.fromEntries(paths.map((path) => [path, node]));
  expect(lint({ ...allowed, 'packages/low/src/a.browser.ts': browser })).toMatchObject({ code: 0 });
  const forbidden = ['packages/low/src/b.node.ts', 'packages/low/src/b.browser.ts'] as const;
  const { code, output } = lint({ [forbidden[0]]: browser, [forbidden[1]]: node });
  for (const path of forbidden) expect(output).toContain(path);
  expect(code).not.toBe(0);
});

describe('types', () => {
  // The preset of the build is the base preset plus checked index access; sources of siblings are not part of it.
  const check = (...codes: string[]): { code: number; output: string } => {
    const folder = createFolder({
      'tsconfig.json': {
        extends: './packages/tsconfig/build.json',
        compilerOptions: { types: [], rootDir: 'src', outDir: 'dist' },
        include: ['src'],
      },
      'package.json': { type: 'module' },
      ...Object.fromEntries(codes.map((code, row) => [`src/row-${row}.ts`, code])),
    });
    copySettings(folder, 'packages/tsconfig');
    return runTool('typescript', 'tsc', ['-p', 'tsconfig.json'], folder);
  };

  it('accepts clean code', () => {
    expect(check('export const a: number = 1;\n')).toMatchObject({ code: 0 });
  });

  it('catches a wrong type, a missing one, an enum, an unchecked index and an unused local', () => {
    const wrong = [
      ["export const a: number = 'x';\n", 'TS2322'],
      ['export const a = Math.max(1);\n', 'TS9010'],
      ['export enum E {\n  a,\n}\n', 'TS1294'],
      ['export const f = (x: number[]): number => x[0];\n', 'TS2322'],
      ['const a = 1;\nexport {};\n', 'TS6133'],
    ] as const;
    const { code, output } = check(...wrong.map(([text]) => text));
    for (const [row, [, message]] of wrong.entries()) {
      expect(output).toMatch(new RegExp(`row-${row}\\.ts\\(.*${message}`));
    }
    expect(code).not.toBe(0);
  });
});

describe('knip', () => {
  const check = (files: Files): { code: number; output: string } => {
    const folder = createFolder({
      'pnpm-workspace.yaml': 'packages:\n  - packages/*\n',
      'package.json': { name: 'fixture', private: true, type: 'module' },
      'scripts/bootstrap.mjs': 'process.exitCode = 0;\n',
      ...libraryFiles('low', { scripts: {} }),
    });
    // knip recognizes these files only if vitest and tsup are installed.
    for (const name of ['tsup.config.mjs', 'vitest.config.mjs', 'src/double.test.ts']) {
      rmSync(join(folder, 'packages/low', name));
    }
    copySettings(folder, 'knip.json');
    addFiles(folder, files);
    return runTool('knip', 'knip', ['--no-progress', '--no-config-hints'], folder);
  };

  it('accepts clean code', () => {
    expect(check({})).toEqual({ code: 0, output: expect.any(String) });
  });

  it('catches a file, an export and a dependency that nothing uses, and an undeclared dependency', () => {
    const { 'packages/low/package.json': manifest = '' } = libraryFiles('low', {
      scripts: {},
      dependencies: { 'right-pad': '1.0.0' },
    });
    const { code, output } = check({
      'packages/low/package.json': manifest,
      'packages/low/src/orphan.ts': 'export const a: number = 1;\n',
      'packages/low/codegen/lost.ts': 'export const a: number = 1;\n',
      'packages/low/src/double.ts':
        "export const unusedHere: number = 1;\n\nexport { pad as double } from 'left-pad';\n",
    });
    const sections = output.split(/\n(?=[A-Z])/);
    for (const [title, name] of [
      ['Unused files', 'orphan.ts'],
      ['Unused files', 'codegen/lost.ts'],
      ['Unused exports', 'unusedHere'],
      ['Unused dependencies', 'right-pad'],
      ['Unlisted dependencies', 'left-pad'],
    ] as const) {
      expect(
        sections.find((section) => section.startsWith(title)),
        title,
      ).toContain(name);
    }
    expect(code).not.toBe(0);
  });
});

/** The folder in which TypeDoc runs. */
function createSite(files: Files): string {
  const { projectDocuments } = readJson<{ projectDocuments: string[] }>(join(repoFolder, 'docs', 'typedoc.json'));
  // A pattern that finds nothing is a warning, so there is a document for each.
  const documents = projectDocuments.map((pattern) => [posix.join('docs', pattern.replaceAll('*', 'x')), '# X\n']);
  const folder = createFolder({ 'README.md': '# Fixture\n', ...Object.fromEntries(documents), ...files });
  copySettings(folder, 'docs/typedoc.json', 'docs/tsconfig.json', 'docs/site.mjs', 'packages/tsconfig');
  mkdirSync(join(folder, 'docs', 'node_modules', '@winnow'), { recursive: true });
  symlinkSync(join(folder, 'packages', 'tsconfig'), join(folder, 'docs', 'node_modules', '@winnow', 'tsconfig'));
  mkdirSync(join(folder, 'docs', 'node_modules', '@types'), { recursive: true });
  symlinkSync(join(gatesFolder, 'node_modules/@types/node'), join(folder, 'docs/node_modules/@types/node'));
  symlinkSync(join(repoFolder, 'docs', 'node_modules', 'typedoc'), join(folder, 'docs', 'node_modules', 'typedoc'));
  return join(folder, 'docs');
}

const sites = {
  clean: libraryFiles('low'),
  broken: {
    ...libraryFiles('low'),
    'packages/low/src/double.ts': "export function double(value: number): number {\n  return 'x' + value;\n}\n",
  },
  links: {
    ...libraryFiles('low'),
    'packages/low/README.md': '# low\n\n[x](gone-a.md)\n',
    'docs/guides/a.md': '# A\n\n[x](gone-b.md)\n',
  },
  comment: {
    ...libraryFiles('low'),
    'packages/low/src/double.ts':
      '/** As {@link gone}. */\nexport function double(value: number): number {\n  return value * 2;\n}\n',
  },
  heading: { ...libraryFiles('low'), 'docs/guides/a.md': 'Text.\n' },
  empty: { 'packages/low/package.json': '{}' },
} satisfies Record<string, Files>;

let built: readonly Outcome[] | undefined;
/** All sites are built by the first test. */
function buildOf(name: keyof typeof sites): Outcome {
  built ??= buildAll();
  return built[Object.keys(sites).indexOf(name)] as Outcome;
}
function buildAll(): readonly Outcome[] {
  const program = join(repoFolder, 'docs', 'node_modules', 'typedoc', 'dist', 'cli.js');
  const runs = join(gatesFolder, 'test', 'typedoc-runs.mjs');
  const folders = Object.values(sites).map((files) => createSite(files));
  const { code, output } = runProgram(process.execPath, [runs, program, ...folders], { cwd: repoFolder });
  expect({ code, output }).toMatchObject({ code: 0 });
  return JSON.parse(output) as readonly Outcome[];
}

describe('docs', () => {
  it('accepts clean code', () => {
    expect(buildOf('clean')).toMatchObject({ code: 0 });
  });

  it('catches code that does not compile', () => {
    const { code, output } = buildOf('broken');
    expect(output).toContain('TS2322');
    expect(code).not.toBe(0);
  });

  it('catches broken links of a README and a guide', () => {
    const { code, output } = buildOf('links');
    for (const text of ['gone-a.md', 'gone-b.md']) expect(output).toContain(text);
    expect(code).not.toBe(0);
  });

  it('catches a broken link of a comment', () => {
    const { code, output } = buildOf('comment');
    expect(output).toContain('"gone"');
    expect(code).not.toBe(0);
  });

  it('catches a document without a heading', () => {
    const { code, output } = buildOf('heading');
    expect(output).toContain('begins with its heading');
    expect(code).not.toBe(0);
  });

  it('catches a run that reads nothing', () => {
    expect(buildOf('empty').code).not.toBe(0);
  });
});
