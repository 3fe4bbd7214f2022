/** Canaries of the kernel gates: generated files and the budget of hand-written lines. */
import { appendFileSync, cpSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkCppFormat, writeCppFormat } from '../src/sources/cpp-format.ts';
import { checkGenerated, checkKernelLines, countLines, kernelBudgets } from '../src/sources/kernels.ts';
import { copySettings, createFolder, repoFolder } from './fixture.ts';

const kernels = join(repoFolder, 'packages', 'backend-wasm');

describe('generated files', () => {
  const copyOfKernels = (): string => {
    const copy = createFolder({});
    for (const name of ['assembly', 'src', 'test']) cpSync(join(kernels, name), join(copy, name), { recursive: true });
    return copy;
  };
  const stale = (plant: (copy: string) => void): string => {
    const copy = copyOfKernels();
    plant(copy);
    return checkGenerated(kernels, copy).join('\n');
  };

  it('accepts the output of the generators', () => {
    expect(stale(() => undefined)).toBe('');
  });

  it('catches edited, missing and obsolete files', () => {
    const edited = ['assembly/operands/matmul.generated.ts', 'src/kernels/layout.generated.ts'];
    const [missing, left] = ['assembly/dispatch.generated.ts', 'assembly/operands/gone.generated.ts'];
    const found = stale((copy) => {
      for (const path of edited) appendFileSync(join(copy, path), '// edited\n');
      rmSync(join(copy, missing));
      writeFileSync(join(copy, left), '');
    });
    for (const path of [...edited, missing, left]) expect(found).toContain(path);
  });

  it('does not pass without a generator', () => {
    expect(checkGenerated(createFolder({})).join('\n')).toContain('nothing was checked');
  });
});

describe('format of C++', () => {
  const folder = (code: string): string => {
    const root = createFolder({ 'packages/native/source/ops/add.cpp': code });
    copySettings(root, '.clang-format');
    return root;
  };

  it('accepts formatted files and catches others', () => {
    expect(checkCppFormat(folder('int add(int a, int b) { return a + b; }\n'))).toEqual([]);
    const [problem, ...rest] = checkCppFormat(folder('int  add(int a,int b){return a+b;}\n'));
    expect(problem).toContain('source/ops/add.cpp is not formatted');
    expect(rest).toEqual([]);
  });

  it('reads C and C++ of every package', () => {
    const root = createFolder({ 'packages/other/test/a.c': 'int  a;\n', 'apps/app/src/b.h': 'int  b;\n' });
    copySettings(root, '.clang-format');
    expect(checkCppFormat(root).map((problem) => problem.split(' ')[0])).toEqual([
      'apps/app/src/b.h',
      'packages/other/test/a.c',
    ]);
  });

  it('writes what it accepts', () => {
    const root = folder('int  add(int a,int b){return a+b;}\n');
    writeCppFormat(root);
    expect(checkCppFormat(root)).toEqual([]);
  });

  it('does not pass without a file', () => {
    const root = createFolder({ 'packages/native/README.md': '' });
    copySettings(root, '.clang-format');
    expect(() => checkCppFormat(root)).toThrow('nothing was checked');
  });
});

describe('kernel lines', () => {
  const folder = (): string =>
    createFolder({
      'packages/backend-wasm/assembly/ops/add.ts': 'a\nb\n',
      'packages/backend-wasm/assembly/gemm/gemm.generated.ts': 'a\nb\nc\n',
      'packages/backend-wasm/codegen/microkernels/gemm.ts': 'a\n',
      'packages/backend-wasm/codegen/schema.ts': 'a\n',
      'packages/native/source/ops/add.cpp': 'a\n',
      'packages/native/source/simd/simd.h': 'a\nb\n',
      'packages/native/source/generated/opcodes.h': 'a\n',
      'packages/native/source/tests/add.cpp': 'a\n',
    });

  const withLimits = (limits: readonly number[]): typeof kernelBudgets =>
    kernelBudgets.map((budget, index) => ({ ...budget, limit: limits[index] as number }));

  it('counts kernels, templates and native kernels separately, without generated files and tests', () => {
    expect(kernelBudgets.map((budget) => countLines(folder(), budget))).toEqual([2, 1, 3]);
    expect(checkKernelLines(folder(), withLimits([2, 1, 3]))).toEqual([]);
  });

  it('catches a line above the budget, and a folder without kernels', () => {
    expect(checkKernelLines(folder(), withLimits([1, 0, 2]))).toEqual([
      '2 hand-written kernel lines, the budget is 1',
      '1 lines of microkernel templates, the budget is 0',
      '3 lines of native kernels, the budget is 2',
    ]);
    expect(checkKernelLines(createFolder({})).join('\n')).toContain('nothing was counted');
  });
});
