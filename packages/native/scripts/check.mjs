/**
 * Runs the programs of source/tests and the tests of native kernels of the WebAssembly backend with an addon of another build.
 * `--sanitize`: under AddressSanitizer and UndefinedBehaviorSanitizer; says so and succeeds where the compiler has no sanitizers.
 * `--emulate`: levels whose instructions few machines have, with the instructions emulated. `--arm64`: the levels of arm64, compiled by
 * `aarch64-linux-gnu-g++` (or CXX) and run by `qemu-aarch64`; the tests of the backend run if WINNOW_TEST_NODE is a Node for linux-arm64.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { platformName, sanitizing } from './levels.mjs';

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const backend = join(dirname(folder), 'backend-wasm');
const compiler = process.env['CXX'] ?? 'c++';
const arm64 = 'linux-arm64-gnu';
const emulator = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu', '-cpu', 'max'];

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

/** Runs a program; returns whether the machine has its instructions. @throws {Error} if it fails */
function run(program, programArguments, options = {}) {
  const { status, signal, error } = spawnSync(program, programArguments, { stdio: 'inherit', ...options });
  if (status === 0 || status === unavailable) return status === 0;
  throw new Error(`${program} ${programArguments.join(' ')} ended with ${error?.message ?? signal ?? status}`);
}

/** Builds into a folder, and runs its programs; returns a sentence about them. */
function runPrograms(built, buildArguments, { start = /** @type {string[]} */ ([]), env = process.env } = {}) {
  run(process.execPath, [join(folder, 'scripts', 'build.mjs'), ...buildArguments], { env });
  const names = readdirSync(join(built, 'tests')).filter((name) => !/-[0-9a-f]{16}$/.test(name));
  const passed = names.filter((name) => {
    const [program, ...rest] = [...start, join(built, 'tests', name)];
    return run(program, rest);
  });
  const numSkipped = names.length - passed.length;
  return `${passed.length} programs pass${numSkipped === 0 ? '' : `, ${numSkipped} need instructions that this machine lacks`}`;
}

/** Runs tests of the backend with an addon. */
function runTests(built, tests, pattern, env = {}) {
  const vitest = join(backend, 'node_modules', 'vitest', 'vitest.mjs');
  if (!existsSync(vitest)) throw new Error('the packages are not installed');
  run(process.execPath, [vitest, 'run', ...tests, '-t', pattern], {
    cwd: backend,
    env: { ...process.env, WINNOW_TEST_ADDON: join(built, 'winnow.node'), ...env },
  });
}

/** Bundles the tests for a Node without a test runner. */
function bundleTests(file) {
  const tsup = createRequire(import.meta.url).resolve('tsup');
  const { buildSync } = createRequire(tsup)('esbuild');
  buildSync({
    entryPoints: [join(backend, 'test', 'emulated.ts')],
    bundle: true,
    ignoreAnnotations: true, // tests have side effects
    format: 'esm',
    platform: 'node',
    conditions: ['@winnow/source'],
    alias: { vitest: join(folder, 'scripts', 'emulated-vitest.mjs') },
    outfile: file,
  });
}

function checkArm64() {
  const built = join(folder, 'build', arm64);
  const env = { ...process.env, CXX: process.env['CXX'] ?? 'aarch64-linux-gnu-g++' };
  const programs = runPrograms(built, ['--platform', arm64], { start: emulator, env });
  const node = process.env['WINNOW_TEST_NODE'];
  if (node !== undefined) {
    const bundle = join(built, 'emulated.mjs');
    bundleTests(bundle);
    const ops = readdirSync(join(folder, 'source', 'ops')).map((file) => file.replace('.cpp', ''));
    const [program, ...rest] = [...emulator, node, bundle];
    try {
      run(program, rest, {
        env: {
          ...process.env,
          WINNOW_TEST_ADDON: join(built, 'winnow.node'),
          WINNOW_TEST_EMULATED: '1',
          WINNOW_TEST_NAMES: '^(native kernels: )?(neon|i8mm)',
          // conformance cases have f32 activations, which its kernel does not take: test/int8/experts.test.ts has others
          WINNOW_TEST_OPS: ops.filter((op) => op !== 'expert-matmul').join(' '),
        },
      });
    } finally {
      rmSync(bundle);
    }
  }
  return `${arm64}: ${programs}${node === undefined ? '' : '; the tests of the backend pass'}`;
}

function checkEmulated() {
  const built = join(folder, 'build', `${platformName()}-emulated`);
  const programs = runPrograms(built, ['--emulate']);
  runTests(built, ['test/conformance.test.ts', 'test/int8'], '(native kernels|amx|avxvnni)');
  return `${programs}; the tests of the backend pass`;
}

function checkSanitized() {
  const library = findLibrary();
  if (library === undefined) return `not sanitized, because ${compiler} has no sanitizers for ${platformName()}`;
  const built = join(folder, 'build', `${platformName()}-sanitized`);
  const programs = runPrograms(built, ['--sanitize']);
  runTests(built, ['test/conformance.test.ts', 'test/int8'], '(native kernels|(amx|avx512|avxvnni|avx2|i8mm|neon), )', {
    LD_PRELOAD: library,
    // traps of WebAssembly are signals that the engine handles, and Node frees little at its end
    ASAN_OPTIONS: 'detect_leaks=0:handle_segv=0:handle_sigill=0:handle_sigfpe=0',
  });
  return `${programs}; the tests of the backend pass`;
}

const { values } = parseArgs({
  options: { sanitize: { type: 'boolean' }, emulate: { type: 'boolean' }, arm64: { type: 'boolean' } },
});
const checks = [
  ...(values.sanitize ? [checkSanitized] : []),
  ...(values.emulate ? [checkEmulated] : []),
  ...(values.arm64 ? [checkArm64] : []),
];
for (const check of checks) process.stderr.write(`native kernels: ${check()}\n`);
