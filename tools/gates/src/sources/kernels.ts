/** Kernels: generated files are up to date, and hand-written lines stay within the budget. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runProgram } from '../workspace/run.ts';
import { listFiles } from '../workspace/workspace.ts';

/** A budget of lines that are written by hand. */
interface LineBudget {
  readonly name: string;
  /** The package. */
  readonly folder: string;
  readonly limit: number;
  readonly isCounted: (path: string) => boolean;
}

/** The algorithms, the templates that their microkernels are generated from, and native kernels with their addon. */
export const kernelBudgets: readonly LineBudget[] = [
  {
    name: 'hand-written kernel lines',
    folder: 'packages/backend-wasm',
    limit: 10_500,
    isCounted: (path) => /^assembly\/.*(?<!\.generated)\.ts$/.test(path),
  },
  {
    name: 'lines of microkernel templates',
    folder: 'packages/backend-wasm',
    limit: 1_550,
    isCounted: (path) => /^codegen\/microkernels\/.*\.ts$/.test(path),
  },
  {
    name: 'lines of native kernels',
    folder: 'packages/native',
    limit: 6_000,
    isCounted: (path) => /^source\/(?!tests\/|(?:.*\/)?generated\/).*\.(h|cpp)$/.test(path),
  },
];

const generator = 'codegen/generate.ts';

/**
 * @param folder the package whose generator runs
 * @param target the package folder whose files are compared, another one in tests
 */
export function checkGenerated(folder: string, target: string = folder): string[] {
  if (!existsSync(join(folder, generator))) return [`${join(folder, generator)} is missing, so nothing was checked`];
  const { code, output } = runProgram(process.execPath, [generator, '--check', target], { cwd: folder });
  return code === 0 ? [] : [output.trim()];
}

export function countLines(root: string, { folder, isCounted }: LineBudget): number {
  const path = join(root, folder);
  const files = existsSync(path) ? listFiles(path, isCounted) : [];
  return files.reduce((sum, file) => sum + readFileSync(join(path, file), 'utf8').trimEnd().split('\n').length, 0);
}

export function checkKernelLines(root: string, budgets: readonly LineBudget[] = kernelBudgets): string[] {
  return budgets.flatMap((budget) => {
    const numLines = countLines(root, budget);
    if (numLines === 0) return [`${budget.folder}: ${budget.name}: no file was found, so nothing was counted`];
    return numLines <= budget.limit ? [] : [`${numLines} ${budget.name}, the budget is ${budget.limit}`];
  });
}
