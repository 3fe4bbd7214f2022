/** Canaries of the gate that finds files without a type check. */
import { describe, expect, it } from 'vitest';
import { checkTypeChecked } from '../src/sources/type-checked.ts';
import { readWorkspace } from '../src/workspace/workspace.ts';
import { createFolder, type Files } from './fixture.ts';

describe('type-checked files', () => {
  const script = 'tsc -p tsconfig.json --noEmit && tsc -p page/tsconfig.json --noEmit';
  const check = (files: Files): string[] => {
    const folder = createFolder({
      'pnpm-workspace.yaml': 'packages:\n  - packages/*\n',
      'package.json': { name: 'fixture', private: true },
      'packages/low/package.json': { name: '@winnow/low', scripts: { typecheck: script } },
      'packages/low/tsconfig.json': '{\n  // of its own\n  "include": ["src", "bench/*.ts"]\n}\n',
      'packages/low/page/tsconfig.json': {
        compilerOptions: { allowJs: true },
        include: ['.', '../../../scripts/**/*.mjs'],
      },
      'packages/low/src/deep/a.ts': '',
      ...files,
    });
    return checkTypeChecked(readWorkspace(folder)).map((problem) => problem.split(':')[0] ?? '');
  };

  it('accepts what is in a folder or matches a pattern, AssemblyScript, fixtures and templates', () => {
    const names = ['low/bench/a.ts', 'low/page/b/a.tsx', 'low/page/a.js', 'low/assembly/ops/a.ts'];
    const others = ['low/src/__fixtures__/a.ts', 'low/projects/x/a.ts'].map((name) => `packages/${name}`);
    const paths = [...names.map((name) => `packages/${name}`), ...others, 'scripts/a.mjs', 'scripts/b/a.mjs'];
    const template = { 'packages/low/projects/x/package.json': '{}' };
    expect(check({ ...template, ...Object.fromEntries(paths.map((path) => [path, ''])) })).toEqual([]);
  });

  it('catches folders, scripts and JavaScript that no program of the compiler reads', () => {
    const names = ['low/bench/deep/a.ts', 'low/codegen/a.ts', 'low/src/a.mjs', 'low/src2/a.ts', 'other/src/a.ts'];
    const paths = [...names.map((name) => `packages/${name}`), 'scripts/a.ts'];
    expect(check(Object.fromEntries(paths.map((path) => [path, ''])))).toEqual(paths);
  });

  it('does not pass without a file', () => {
    const bare = createFolder({
      'pnpm-workspace.yaml': 'packages: [packages/*]\n',
      'package.json': {},
      'packages/low/package.json': { name: '@winnow/low' },
    });
    expect(checkTypeChecked(readWorkspace(bare)).join()).toContain('nothing was checked');
  });
});
