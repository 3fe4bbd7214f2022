/** The table of budgets: it shows what is longest, and what is over its limit. */
import { describe, expect, it } from 'vitest';
import { budgetLine, lineBudgets, longestFunction } from '../src/sources/budgets.ts';
import { createFolder, repoFolder } from './fixture.ts';

describe('the longest function', () => {
  it('counts closures, methods and arrow functions with all that they contain', () => {
    const text = 'const a = () => 1;\nclass B {\n  c() {\n    return () => {\n      a();\n    };\n  }\n}\n';
    expect(longestFunction('x.ts', text)).toEqual({ lines: 5, place: 'x.ts:3' });
    expect(longestFunction('x.ts', 'export const a = 1;\n')).toEqual({ lines: 0, place: 'x.ts' });
  });

  it('of C++ includes lambdas, but not the namespace or class around it, nor braces in comments and texts', () => {
    const body = "    auto b = [&](int i) {\n      return '{' + i; // }\n    };\n    if (b(1)) {\n    }\n";
    const text = `namespace a {\nstruct B : C {\n  B() : c_(1) {}\n  int d() const override\n  {\n${body}  }\n};\n} // namespace a\n`;
    expect(longestFunction('x.cpp', text)).toEqual({ lines: 8, place: 'x.cpp:4' });
    expect(longestFunction('x.h', '#define X {\nenum { x };\n')).toEqual({ lines: 0, place: 'x.h:1' });
  });

  it('of Python includes functions inside, and parameters on several lines, but not the class around it', () => {
    const body =
      '    def b(\n        self,\n    ) -> int:\n        def c():\n            return 1\n\n        return c()\n';
    expect(longestFunction('x.py', `class A:\n${body}\n    d = 1\n`)).toEqual({ lines: 7, place: 'x.py:2' });
    expect(longestFunction('x.py', 'a = 1\n')).toEqual({ lines: 0, place: 'x.py:1' });
  });
});

describe('budgets of lines', () => {
  const lint = {
    rules: { 'max-lines-per-function': ['error', { max: 3 }] },
    overrides: [{ files: ['packages/a/src/long.ts'], rules: { 'max-lines-per-function': 'off' } }],
  };
  const root = (): string =>
    createFolder({
      '.oxlintrc.json': JSON.stringify(lint),
      'packages/a/README.md': '# a\n\ntext\n',
      'packages/a/src/long.ts': `export function long() {\n${'  0;\n'.repeat(8)}}\n`,
      'packages/a/src/short.ts': 'export function short() {\n  return 1;\n}\n',
      'packages/a/src/large.generated.ts': `${'0;\n'.repeat(99)}`,
      'packages/b/src/index.ts': 'export const b = () => {\n  0;\n  0;\n  0;\n};\n',
    });

  it('show the longest of the workspace or of a package, without generated files', () => {
    const shown = (locations: string[]): unknown[] =>
      lineBudgets(root(), locations).map(({ value, place }) => [value, place]);
    expect(shown(['packages/a'])).toEqual([
      [10, 'packages/a/src/long.ts'],
      [3, 'packages/a/src/short.ts:1'],
      [1, '.oxlintrc.json'],
      [3, 'packages/a/README.md'],
    ]);
    expect(shown([])[1]).toEqual([5, 'packages/b/src/index.ts:1']);
  });

  it('name budgets that are exceeded', () => {
    const [, functions] = lineBudgets(root(), []).map(budgetLine);
    expect(functions).toBe('  OVER   lines of the longest function         5 of      3  packages/b/src/index.ts:1');
  });

  it('of this workspace have figures', () => {
    for (const { value, limit } of lineBudgets(repoFolder, ['packages/backend-wasm']).slice(0, 2)) {
      expect(value).toBeGreaterThan(0);
      expect(value).toBeLessThanOrEqual(limit);
    }
  });
});
