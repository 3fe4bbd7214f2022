/** Runs programs for gates. */
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { readJson } from './workspace.ts';

export interface Outcome {
  readonly code: number;
  /** stdout, then stderr on lines of its own. */
  readonly output: string;
}

/** Runs a program to completion. A program that cannot start or exceeds the time limit gets code 1 and a message. */
export function runProgram(
  command: string,
  programArguments: readonly string[],
  options: { cwd: string; timeoutMs?: number; env?: NodeJS.ProcessEnv },
): Outcome {
  const result = spawnSync(command, programArguments, {
    cwd: options.cwd,
    env: options.env ?? process.env,
    encoding: 'utf8',
    timeout: options.timeoutMs ?? 300_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  const problem = result.error ? `${result.error.message}\n` : '';
  const [stdout, stderr] = [result.stdout ?? '', result.stderr ?? '']; // null when it cannot start
  const isOpenLine = stderr !== '' && stdout !== '' && !stdout.endsWith('\n');
  return { code: result.status ?? 1, output: `${problem}${stdout}${isOpenLine ? '\n' : ''}${stderr}` };
}

/** The executable of an npm package, resolved from `fromFolder`. */
export function programOf(packageName: string, program: string, fromFolder: string): string {
  const require = createRequire(join(fromFolder, 'package.json'));
  const manifestPath = findManifest(packageName, require);
  const { bin } = readJson<{ bin: string | Record<string, string> }>(manifestPath);
  const file = typeof bin === 'string' ? bin : bin[program];
  if (file === undefined) throw new Error(`${packageName} has no executable "${program}"`);
  return join(dirname(manifestPath), file);
}

function findManifest(packageName: string, require: NodeJS.Require): string {
  for (const folder of require.resolve.paths(packageName) ?? []) {
    const path = join(folder, packageName, 'package.json');
    try {
      return require.resolve(path);
    } catch {
      // Continue in the parent folder.
    }
  }
  throw new Error(`${packageName} is not installed`);
}
