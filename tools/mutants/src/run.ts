/** Plants a mutant, runs its tests, and removes it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { mutated, testsByPackage, type Mutant } from './mutant.ts';

/** The scratch copy, and the data folder next to the checkout for tests. */
export interface Place {
  readonly scratch: string;
  readonly shared: string;
}

export type Outcome = 'caught' | 'survived' | 'no test ran';

interface Report {
  readonly numTotalTests: number;
  readonly numFailedTests: number;
  readonly numFailedTestSuites: number;
  readonly numPassedTests: number;
}

const vitest = join(dirname(createRequire(import.meta.url).resolve('vitest/package.json')), 'vitest.mjs');

/** Runs test files of a package in the scratch copy. */
async function runTests(
  { scratch, shared }: Place,
  folder: string,
  tests: readonly string[],
  only?: string,
): Promise<Report> {
  const cwd = join(scratch, folder);
  const output = join(cwd, 'mutant-report.json');
  const argv = ['run', ...tests, '--bail=1', '--reporter=json', `--outputFile=${output}`];
  if (only !== undefined) argv.push('-t', only);
  const env = { ...process.env, WINNOW_SHARED: shared, WINNOW_TEST: '', WINNOW_TEST_REPORT: '' };
  const child = spawn(process.execPath, [vitest, ...argv], { cwd, env, stdio: 'ignore' });
  await once(child, 'close');
  try {
    return JSON.parse(readFileSync(output, 'utf8')) as Report;
  } catch {
    // a defect that kills the process or breaks the build before the tests
    return { numTotalTests: 1, numFailedTests: 1, numFailedTestSuites: 1, numPassedTests: 0 };
  } finally {
    rmSync(output, { force: true });
  }
}

export async function runMutant(place: Place, mutant: Mutant): Promise<Outcome> {
  const path = join(place.scratch, mutant.file);
  const text = readFileSync(path, 'utf8');
  writeFileSync(path, mutated(text, mutant));
  try {
    let numTests = 0;
    for (const [folder, tests] of testsByPackage(mutant)) {
      const report = await runTests(place, folder, tests, mutant.only);
      numTests += report.numTotalTests;
      if (report.numFailedTests + report.numFailedTestSuites > 0) return 'caught';
    }
    return numTests === 0 ? 'no test ran' : 'survived';
  } finally {
    writeFileSync(path, text);
  }
}

/** Test files that fail without a defect, so that their failure proves nothing. */
export async function failingTests(place: Place, mutants: readonly Mutant[]): Promise<string[]> {
  const files = new Map<string, Set<string>>();
  for (const mutant of mutants) {
    for (const [folder, tests] of testsByPackage(mutant)) {
      files.set(folder, new Set([...(files.get(folder) ?? []), ...tests]));
    }
  }
  const failing: string[] = [];
  for (const [folder, tests] of files) {
    const report = await runTests(place, folder, [...tests]);
    if (report.numFailedTests + report.numFailedTestSuites > 0) failing.push(folder);
  }
  return failing;
}
