/**
 * Runs the programs of source/tests and the tests of the WebAssembly backend with an addon of another build. `--sanitize`: under
 * AddressSanitizer and UndefinedBehaviorSanitizer; says so and succeeds where the compiler has no sanitizers. `--emulate`: levels whose
 * instructions few machines have, with the instructions emulated.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { platformName, sanitizing } from './levels.mjs';

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const isEmulated = process.argv.includes('--emulate');
const built = join(folder, 'build', `${platformName()}${isEmulated ? '-emulated' : '-sanitized'}`);
const compiler = process.env['CXX'] ?? 'c++';

/** The status of a program whose instructions the machine lacks. */
const unavailable = 77;

/** Path of the sanitizer's library, which a process has to load before all others; undefined without sanitizers. */
function findLibrary() {
  const output = join(mkdtempSync(join(tmpdir(), 'winnow-sanitize-')), 'program');
  const flags = ['-x', 'c++', '-', ...sanitizing, '-o', output];
  const { status } = spawnSync(compiler, flags, { input: 'int main() {}' });
  rmSync(dirname(output), { recursive: true });
  const { stdout } = spawnSync(compiler, ['-print-file-name=libasan.so'], { encoding: 'utf8' });
  return status === 0 && isAbsolute(stdout.trim()) ? stdout.trim() : undefined;
}

/** Runs a program and ends this one if it fails. */
function run(program, programArguments, options = {}) {
  const { status, signal } = spawnSync(program, programArguments, { stdio: 'inherit', ...options });
  if (status !== 0 && status !== unavailable) {
    process.stderr.write(`${program} ${programArguments.join(' ')} ended with ${signal ?? status}\n`);
    process.exit(1);
  }
}

/** Environment of the backend's tests. */
function sanitizerEnvironment(library) {
  return {
    LD_PRELOAD: library,
    // traps of WebAssembly are signals that the engine handles, and Node frees little at its end
    ASAN_OPTIONS: 'detect_leaks=0:handle_segv=0:handle_sigill=0:handle_sigfpe=0',
  };
}

const library = isEmulated ? undefined : findLibrary();
if (!isEmulated && library === undefined) {
  process.stderr.write(`native kernels are not sanitized: ${compiler} has no sanitizers for ${platformName()}\n`);
} else {
  run(process.execPath, [join(folder, 'scripts', 'build.mjs'), isEmulated ? '--emulate' : '--sanitize']);
  const programs = readdirSync(join(built, 'tests')).filter((name) => !/-[0-9a-f]{16}$/.test(name));
  for (const name of programs) run(join(built, 'tests', name), []);
  const backend = join(dirname(folder), 'backend-wasm');
  const vitest = join(backend, 'node_modules', 'vitest', 'vitest.mjs');
  if (!existsSync(vitest)) throw new Error('the packages are not installed');
  const env = {
    ...process.env,
    ...(isEmulated ? {} : sanitizerEnvironment(library)),
    WINNOW_TEST_ADDON: join(built, 'winnow.node'),
  };
  const tests = isEmulated ? ['test/conformance.test.ts', 'test/int8'] : ['test/conformance.test.ts'];
  const pattern = isEmulated ? '(native kernels|amx|avxvnni)' : 'native kernels';
  run(process.execPath, [vitest, 'run', ...tests, '-t', pattern], { cwd: backend, env });
  process.stderr.write(`native kernels: ${programs.length} programs and the tests of the backend pass\n`);
}
