/** A planted defect, and the check that it still applies to the sources. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Mutant {
  /** Path from the root of the workspace. */
  readonly file: string;
  /** Part of one line that occurs exactly once in the file. */
  readonly find: string;
  readonly replace: string;
  /** Test files that are part of `npm test` and catch it: a path from the root, or from the package of `file`. */
  readonly tests: readonly string[];
  /** Part of the test names, for files with far more tests than the defect affects. */
  readonly only?: string;
}

/** The folder of a package: the first two parts of a path. */
export function packageOf(path: string): string {
  return path.split('/').slice(0, 2).join('/');
}

/** Test files by package, relative to it. */
export function testsByPackage({ file, tests }: Mutant): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const test of tests) {
    const isFromRoot = /^(apps|packages|tools)\//.test(test);
    const folder = isFromRoot ? packageOf(test) : packageOf(file);
    const path = isFromRoot ? test.slice(folder.length + 1) : test;
    found.set(folder, [...(found.get(folder) ?? []), path]);
  }
  return found;
}

/** The file with the defect in it. @throws {Error} when `find` does not occur exactly once */
export function mutated(text: string, { file, find, replace }: Mutant): string {
  const at = text.indexOf(find);
  if (at < 0) throw new Error(`${file}: "${find}" does not occur; choose another line`);
  if (text.includes(find, at + 1))
    throw new Error(`${file}: "${find}" occurs more than once; use a longer part of the line`);
  return text.slice(0, at) + replace + text.slice(at + find.length);
}

/** Reasons why a mutant cannot be planted, one line each. */
export function problemsOf(root: string, mutant: Mutant): string[] {
  const { file, find, replace } = mutant;
  if (!existsSync(join(root, file))) return [`${file}: no such file`];
  const problems: string[] = [];
  try {
    mutated(readFileSync(join(root, file), 'utf8'), mutant);
  } catch (error) {
    problems.push((error as Error).message);
  }
  if (find === replace || find.includes('\n') || replace.includes('\n'))
    problems.push(`${file}: must change exactly one line`);
  for (const [folder, tests] of testsByPackage(mutant)) {
    for (const test of tests)
      if (!existsSync(join(root, folder, test))) problems.push(`${file}: no test ${folder}/${test}`);
  }
  return mutant.tests.length > 0 ? problems : [...problems, `${file}: names no test`];
}
