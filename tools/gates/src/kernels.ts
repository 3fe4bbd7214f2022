/** Kernels: generated files are up to date, and hand-written lines stay within the budget. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runProgram } from './run.ts';
import { listFiles } from './workspace.ts';

/** Maximum number of hand-written lines of kernels and microkernel templates. */
export const maxKernelLines = 10_965;

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

/** Lines below `assembly` except generated files, plus those of their templates. */
export function countKernelLines(folder: string): number {
  const isHandWritten = (path: string): boolean =>
    /^(assembly|codegen\/microkernels)\/.*\.ts$/.test(path) && !path.endsWith('.generated.ts');
  const files = listFiles(folder, isHandWritten);
  return files.reduce((sum, file) => sum + readFileSync(join(folder, file), 'utf8').trimEnd().split('\n').length, 0);
}

export function checkKernelLines(folder: string, limit: number = maxKernelLines): string[] {
  const numLines = countKernelLines(folder);
  if (numLines === 0) return [`${folder}: no kernel was found, so nothing was counted`];
  return numLines <= limit ? [] : [`${numLines} hand-written kernel lines, the budget is ${limit}`];
}
