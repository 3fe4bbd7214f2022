/** Canaries of the gates of one package: publint, attw, archive, API snapshot, size, examples. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkExamples, extractExamples, linkedPackages, ownErrors } from '../src/documents/examples.ts';
import { checkApi, describeApi } from '../src/releases/api.ts';
import { checkArchive, checkAttw, checkPublint, withArchive } from '../src/releases/publish.ts';
import { checkSize } from '../src/releases/size.ts';
import { readWorkspace } from '../src/workspace/workspace.ts';
import { addFiles, createFolder, libraryFiles, workspaceFiles, type Files } from './fixture.ts';

function createLibrary(files: Files = {}): string {
  const folder = createFolder(libraryFiles('low'));
  addFiles(folder, files);
  return join(folder, 'packages', 'low');
}

describe('published archive', () => {
  it('passes publint, attw and the list of files when clean', async () => {
    const folder = createLibrary();
    await withArchive(folder, async (archive) => {
      expect(await checkPublint(folder, archive)).toEqual([]);
      expect(checkAttw(archive)).toEqual([]);
      expect(checkArchive(archive)).toEqual([]);
    });
  });

  it('publint catches an export without a file', async () => {
    const exports = { '.': { types: './dist/index.d.ts', default: './dist/gone.js' } };
    const folder = createLibrary(libraryFiles('low', { exports }));
    await withArchive(folder, async (archive) => {
      expect((await checkPublint(folder, archive)).join('\n')).toContain('gone.js');
    });
  });

  it('attw catches unresolved and missing declarations', async () => {
    const exports = {
      '.': { types: './dist/index.d.ts', default: './dist/index.js' },
      './double': { default: './dist/double.js' },
    };
    const folder = createLibrary(libraryFiles('low', { exports }));
    writeFileSync(join(folder, 'dist/index.d.ts'), "export { double } from './gone.js';\n");
    rmSync(join(folder, 'dist/double.d.ts'));
    await withArchive(folder, (archive) => {
      const problems = checkAttw(archive).join('\n');
      expect(problems).toMatch(/internal resolution error/i);
      expect(problems).toMatch(/low\/double.*\n.*no types/is);
    });
  });

  it('catches tests in the archive and a missing license', async () => {
    const folder = createLibrary(libraryFiles('low', { files: ['dist', 'src'] }));
    writeFileSync(join(folder, 'dist/index.js'), '');
    await withArchive(folder, (archive) => {
      expect(checkArchive(archive)).toContain('the archive contains src/double.test.ts');
    });
    const empty = createFolder({ 'package.json': { name: 'x', version: '1.0.0', files: [] } });
    await withArchive(empty, (archive) => {
      expect(checkArchive(archive)).toContain('the archive lacks LICENSE');
    });
  });
});

describe('API snapshot', () => {
  const declarations = (inner: string): Files => ({
    'packages/low/dist/index.d.ts': "export { run, type Options as RunOptions } from './run.js';\n",
    'packages/low/dist/run.d.ts':
      `import type { Inner } from './inner.js';\n/** Old words. */\nexport interface Options { inner: Inner }\n` +
      'export declare function run(options: Options): void;\n',
    'packages/low/dist/inner.d.ts': inner,
  });
  const inner = 'export interface Inner {\n    size: number;\n}\nexport interface Unrelated { a: 1 }\n';

  it('contains the exports and the types they reference, without comments and unrelated types', () => {
    const text = describeApi(createLibrary(declarations(inner)));
    expect(text).toContain('\n\nfunction run(options: Options): void;');
    expect(text).toContain('// RunOptions: declared as Options\ninterface Options { inner: Inner }');
    expect(text).toContain('// Inner: inner.d.ts\ninterface Inner {\n  size: number;\n}');
    expect(text).not.toContain('Old words');
    expect(text).not.toContain('Unrelated');
  });

  it.each([
    ['a changed member of a type that is only reached', inner.replace('size: number', 'size: string')],
    ['a removed member', inner.replace('size: number;', '')],
  ])('catches %s', (_, changed) => {
    const folder = createLibrary(declarations(inner));
    expect(checkApi(folder, true)).toEqual([]);
    expect(checkApi(folder, false)).toEqual([]);
    writeFileSync(join(folder, 'dist/inner.d.ts'), changed);
    expect(checkApi(folder, false).join('\n')).toContain('the public surface changed');
  });

  it('catches a changed signature, a new and a removed export', () => {
    for (const [file, text] of [
      ['run.d.ts', 'export interface Options { a: 1 }\nexport declare function run(options?: Options): void;\n'],
      ['index.d.ts', "export { run } from './run.js';\n"],
      ['index.d.ts', "export { run, type Options as RunOptions, type Options } from './run.js';\n"],
    ] as const) {
      const folder = createLibrary(declarations(inner));
      checkApi(folder, true);
      writeFileSync(join(folder, 'dist', file), text);
      expect(checkApi(folder, false), text).toHaveLength(1);
    }
  });

  it('ignores changed comments and layout', () => {
    const folder = createLibrary(declarations(inner));
    checkApi(folder, true);
    writeFileSync(join(folder, 'dist/inner.d.ts'), `/** New words. */\n${inner.replaceAll('    ', '\t')}`);
    expect(checkApi(folder, false)).toEqual([]);
  });

  it('catches a missing snapshot and declarations without exports', () => {
    expect(checkApi(createLibrary(), false).join('\n')).toContain('api.txt is missing');
    const folder = createLibrary({ 'packages/low/dist/index.d.ts': 'export {};\n' });
    expect(() => checkApi(folder, false)).toThrow('no export found');
  });
});

describe('size', () => {
  it('accepts an entry within its budget', async () => {
    expect(await checkSize(createLibrary(), { '@winnow/low': { '.': 1000 } })).toMatchObject({ problems: [] });
  });

  it('catches an entry above its budget, one without a budget and one that is not built', async () => {
    const folder = createLibrary();
    expect((await checkSize(folder, { '@winnow/low': { '.': 10 } })).problems.join('\n')).toContain(
      'more than its budget',
    );
    expect((await checkSize(folder, {})).problems.join('\n')).toContain('has no budget');
    const exports = { '.': { default: './dist/gone.js' } };
    const unbuilt = createLibrary(libraryFiles('low', { exports }));
    expect((await checkSize(unbuilt, {})).problems.join('\n')).toContain('build first');
  });

  it('counts the imports of the entry', async () => {
    const folder = createLibrary();
    const before = await checkSize(folder, {});
    const random = Array.from({ length: 3000 }, (_, index) => ((index * 7919) % 65_521).toString(36)).join('');
    writeFileSync(join(folder, 'dist/double.js'), `export const double = () => '${random}';\n`);
    const bytes = (text: string): number => Number(/has (\d+) bytes/.exec(text)?.[1]);
    const after = await checkSize(folder, {});
    expect(bytes(after.problems.join())).toBeGreaterThan(bytes(before.problems.join()) + 1000);
  });
});

const check = async (code: string): Promise<string> => {
  const root = createFolder(workspaceFiles());
  const folder = join(root, 'packages', 'low');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'README.md'), code);
  const workspace = readWorkspace(root);
  const entry = workspace.packages.find(({ shortName }) => shortName === 'low');
  if (!entry) throw new Error('no package');
  return (await checkExamples(workspace, folder, [join(folder, 'README.md')], linkedPackages(workspace, entry))).join(
    '\n',
  );
};
const block = (code: string, info = 'ts'): string => `# low\n\n\`\`\`${info}\n${code}\n\`\`\`\n`;
const use = "import { double } from '@winnow/low';\n";

it('examples: catches type errors of all kinds of blocks and names their lines', async () => {
  const wrong = [
    block(`${use}const text: string = double(2);`),
    block("import { gone } from '@winnow/low';\ngone();"),
    block("import '@winnow/high';"),
    block("const a: number = 'x';", 'ts no-run'),
    block(`${use}const a = double(2);`) + block('const text: string = a;', 'ts continued'),
  ];
  const found = await check(wrong.join(''));
  expect(found).toMatch(/line-4\.ts\(5,7\).*TS2322/);
  expect(found).toMatch(/line-10\.ts\(10,10\).*TS2305/);
  expect(found).toMatch(/line-16\.ts\(16,8\): error/);
  expect(found).toMatch(/line-21\.3\.ts\(21,7\).*TS2322/);
  expect(found).toMatch(/line-26\.ts\(32,7\).*TS2322/);
});

it('examples: runs each block that may run, and compares what it prints with the comment of the line', async () => {
  const truths = [
    `${use}console.log(double(2), [double(1)], 'a.b'); // 4 [ 2 ] ...b`,
    'for (const n of [1, 1]) console.log(n); // 1',
    "console.log(\n  'a\\n  b',\n); // a b",
    'const text = 3; // not printed',
    'console.log(text);',
  ];
  const right = block(truths.join('\n')) + block("throw new Error('not run');", 'ts no-run');
  const wrong = [
    'console.log(4 / 3); // 1.33',
    'for (const n of [1, 2]) console.log(n); // 1',
    'for (const n of []) console.log(n); // 1',
    "console.log('axb'); // a.b",
    "console.log(new Error('a').name); // Error: a",
  ];
  const throwing = block(`${use}if (double(2) !== 5) throw new Error('the sum is off');`);
  const found = await check(block(wrong[0]!) + block(wrong.slice(1).join('\n')) + right + throwing);
  const [printed = '', thrown] = found.split(/\n(?=the example )/);
  expect(thrown).toMatch(/^the example at README\.md:\d+ ends with code 1:[^]*the sum is off/);
  expect(printed.split('\n')).toEqual([
    'README.md:4: the comment says "1.33", the line prints "1.3333333333333333"',
    'README.md:9: the comment says "1", the line prints "2"',
    'README.md:10: the comment says "1", nothing is printed',
    'README.md:11: the comment says "a.b", the line prints "axb"',
    'README.md:12: the comment says "Error: a", the line prints "Error"',
  ]);
});

it('examples: keeps type errors of examples and of our packages, and leaves out those of others', () => {
  const output = [
    "../node_modules/.pnpm/ai@7.0.0/node_modules/ai/dist/index.d.ts(6,1): error TS2304: Cannot find name 'FileList'.",
    '  in the type of somebody else',
    "line-3.ts(1,1): error TS2322: Type 'string' is not assignable to type 'number'.",
    '  in the example',
    "../../dist/index.d.ts(2,3): error TS2304: Cannot find name 'Missing'.",
  ];
  expect(ownErrors(output.slice(0, 2).join('\n'))).toBe('');
  expect(ownErrors(output.join('\n'))).toBe(output.slice(2).join('\n'));
});

it('examples: catches a README without examples', async () => {
  expect(await check('# low\n')).toContain('nothing to check');
});

it('examples: extracts blocks with their lines', () => {
  const text = readFileSync(join(createFolder({ 'a.md': `x\n${block('a\nb')}\n${block('c', 'sh')}` }), 'a.md'), 'utf8');
  expect(extractExamples(text)).toEqual([{ line: 5, code: 'a\nb', run: true, served: false }]);
});

it('examples: joins blocks that continue the one before, each in its own lines', () => {
  const text = `${block('a\nb')}${block('c', 'ts continued no-run')}${block('d', 'ts continued')}${block('e')}`;
  expect(extractExamples(text)).toEqual([
    { line: 4, code: 'a\nb\n\n\n\n\n\n\n\n\n\nd', run: true, served: false },
    { line: 4, code: 'a\nb\n\n\n\n\nc', run: false, served: false },
    { line: 20, code: 'e', run: true, served: false },
  ]);
  expect(extractExamples(block('a', 'ts served'))).toEqual([{ line: 4, code: 'a', run: true, served: true }]);
  expect(() => extractExamples(block('a', 'ts continued'))).toThrow('nothing before it');
});
