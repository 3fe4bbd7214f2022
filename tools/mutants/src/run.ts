/** Plants a mutant, runs its tests, and removes it. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { mutated, packageOf, testsByPackage, type Mutant } from './mutant.ts';
import { compiledFiles } from './scratch.ts';

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
  const env = {
    ...process.env,
    WINNOW_SHARED: shared,
    WINNOW_TEST: '',
    WINNOW_TEST_REPORT: '',
    WINNOW_KERNELS: 'quick',
  };
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

/** Writes the kernels of a template again, so that a defect in it arrives in them. @throws when the generator fails */
function regenerate({ scratch }: Place, file: string): void {
  if (!file.includes('/codegen/')) return;
  execFileSync(process.execPath, ['codegen/generate.ts'], { cwd: join(scratch, packageOf(file)), stdio: 'ignore' });
}

/** Compiles WebAssembly kernels for tests of other packages; the setup of backend-wasm's own tests does it for them. */
function compileWasm({ scratch }: Place, mutant: Mutant): void {
  const folder = 'packages/backend-wasm';
  if (packageOf(mutant.file) !== folder || [...testsByPackage(mutant).keys()].every((name) => name === folder)) return;
  const env = { ...process.env, WINNOW_KERNELS: 'quick' };
  execFileSync(process.execPath, ['scripts/build-wasm.mjs'], { cwd: join(scratch, folder), env, stdio: 'ignore' });
}

/** Compiles native kernels, so that a defect in one arrives in the addon; what has not changed is not compiled again. */
function compileNative({ scratch }: Place, file: string): void {
  if (!file.startsWith('packages/native/source/')) return;
  execFileSync(process.execPath, ['scripts/build.mjs'], { cwd: join(scratch, packageOf(file)), stdio: 'ignore' });
}

export async function runMutant(place: Place, mutant: Mutant): Promise<Outcome> {
  const path = join(place.scratch, mutant.file);
  const text = readFileSync(path, 'utf8');
  const compiled = compiledFiles.map((file) => join(place.scratch, file)).filter((file) => existsSync(file));
  const before = compiled.map((file) => readFileSync(file));
  writeFileSync(path, mutated(text, mutant));
  try {
    regenerate(place, mutant.file);
    compileWasm(place, mutant);
    compileNative(place, mutant.file);
    let numTests = 0;
    for (const [folder, tests] of testsByPackage(mutant)) {
      const report = await runTests(place, folder, tests, mutant.only);
      numTests += report.numTotalTests;
      if (report.numFailedTests + report.numFailedTestSuites > 0) return 'caught';
    }
    return numTests === 0 ? 'no test ran' : 'survived';
  } finally {
    writeFileSync(path, text);
    regenerate(place, mutant.file);
    compileNative(place, mutant.file);
    for (const [index, file] of compiled.entries()) writeFileSync(file, before[index] as Buffer);
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
    // objects know headers by their place, which is another one in the copy
    if (existsSync(join(place.scratch, folder, 'build'))) compileNative(place, `${folder}/source/`);
    const report = await runTests(place, folder, [...tests]);
    if (report.numFailedTests + report.numFailedTestSuites > 0) failing.push(folder);
  }
  return failing;
}
