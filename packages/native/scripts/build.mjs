/**
 * Compiles the addon with the system's C++ compiler: every source once per level, against the headers of Node-API, and
 * the programs of source/tests. Objects and outputs are named by the content of their inputs, so nothing compiles twice.
 *
 * `--if-available` says so and succeeds where there is no compiler. CXX names another compiler than `c++`. `--sanitize` builds with
 * AddressSanitizer and UndefinedBehaviorSanitizer, `--emulate` with emulated instructions, each in a folder of its own; see check.mjs.
 * `--platform linux-arm64-gnu` builds for another platform, with a CXX that compiles for it.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { architectureOf, emulating, levelsOf, platformName, sanitizing } from './levels.mjs';
import { lock } from './lock.mjs';

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const source = join(folder, 'source');
const compiler = process.env['CXX'] ?? 'c++';
const { values: options } = parseArgs({
  options: {
    'if-available': { type: 'boolean', default: false },
    sanitize: { type: 'boolean', default: false },
    emulate: { type: 'boolean', default: false },
    platform: { type: 'string', default: platformName() },
  },
});
const { platform } = options;
const allLevels = levelsOf(architectureOf(platform));
const isWindows = platform.startsWith('win32');
const common = [
  '-std=c++20',
  ...(options.sanitize ? sanitizing : ['-O3']),
  ...(isWindows ? [] : ['-fPIC']),
  '-fno-exceptions',
  '-fno-rtti',
  '-fvisibility=hidden',
  '-ffp-contract=off',
];
/** Sources of which each level has a copy. */
const levelSources = ['attention', 'ffn', 'gemm', 'ops', 'level.cpp'];
const linking = [
  ...(isWindows
    ? ['-shared']
    : platform.startsWith('darwin')
      ? ['-bundle', '-undefined', 'dynamic_lookup']
      : ['-shared', '-Wl,--as-needed']),
  ...(options.sanitize ? sanitizing : []),
];

/** The headers of Node-API: an MIT package without code. */
function headerFolder() {
  return createRequire(import.meta.url)('node-api-headers').include_dir;
}

function filesBelow(path, ending) {
  if (!existsSync(path)) return [];
  return readdirSync(path, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith(ending))
    .sort()
    .map((file) => join(path, file));
}

function hashOf(parts) {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('hex').slice(0, 16);
}

/** Windows: the import library of Node-API, and what compilers call for `__builtin_cpu_supports`. */
function windowsLibraries(target) {
  if (!isWindows) return [];
  const output = join(target, 'node.lib');
  const definitions = createRequire(import.meta.url)('node-api-headers').def_paths.node_api_def;
  const tool = spawnSync('llvm-dlltool', ['-m', 'i386:x86-64', '-D', 'node.exe', '-d', definitions, '-l', output]);
  if (tool.status !== 0) throw new Error(`llvm-dlltool failed for ${definitions}: ${tool.error ?? tool.stderr}`);
  const flags = ['--rtlib=compiler-rt', '-print-libgcc-file-name'];
  return [output, spawnSync(compiler, flags, { encoding: 'utf8' }).stdout.trim()];
}

/** Runs programs, as many at once as there are cores. @throws {Error} with the output of the first that fails */
async function runAll(commands) {
  const waiting = [...commands];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await run(next);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
}

/**
 * Runs a compiler whose output appears under its name only when it is complete.
 * @returns {Promise<void>}
 */
function run({ programArguments, output }) {
  const temporary = `${output}.${process.pid}`;
  return new Promise((resolve, reject) => {
    const child = spawn(compiler, [...programArguments, '-o', temporary], { stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (text += data));
    child.on('error', reject);
    child.on('close', (code) => {
      if (code !== 0) return reject(new Error(`${compiler} failed for ${relative(folder, output)}:\n${text}`));
      renameSync(temporary, output);
      resolve();
    });
  });
}

/** Levels that few machines have, with emulated instructions. */
function emulatedLevels() {
  const levels = allLevels.filter(({ emulated }) => emulated !== undefined);
  return levels.map((level) => ({ ...level, flags: [...level.flags, ...emulating], exported: level.emulated }));
}

/** The outputs of a build, by the content of all that they depend on. */
class Build {
  /** @param version what the compiler calls itself */
  constructor(version) {
    const kind = options.sanitize ? '-sanitized' : options.emulate ? '-emulated' : '';
    this.folder = join(folder, 'build', `${platform}${kind}`);
    this.objects = join(this.folder, 'objects');
    this.levels = options.emulate ? emulatedLevels() : allLevels;
    const headers = filesBelow(source, '.h').flatMap((path) => [relative(source, path), readFileSync(path)]);
    this.base = hashOf([compiler, version, readFileSync(join(headerFolder(), 'node_api.h')), ...headers]);
    this.kept = new Set();
  }

  /** An object file and, unless it exists, the command that makes it. */
  #object(path, name, flags) {
    const hash = hashOf([this.base, ...flags, readFileSync(path)]);
    const output = join(this.objects, `${name}-${hash}.o`);
    this.kept.add(basename(output));
    return { output, programArguments: ['-c', path, ...common, ...flags] };
  }

  /** @param places folders and files of source */
  levelObjects({ name, flags }, places = levelSources) {
    const files = places.flatMap((each) =>
      each.endsWith('.cpp') ? [join(source, each)] : filesBelow(join(source, each), '.cpp'),
    );
    return files.map((path) => {
      const stem = relative(source, path).replaceAll(/[\\/]/g, '-').replace('.cpp', '');
      return this.#object(path, `${name}-${stem}`, [...flags, `-DWINNOW_LEVEL=${name}`]);
    });
  }

  addonObjects() {
    const names = this.levels.flatMap(({ name, exported }) => exported.map((each) => `X(${name}, ${each})`)).join(' ');
    const flags = [`-DWINNOW_LEVELS=${names}`, `-I${headerFolder()}`];
    return filesBelow(join(source, 'addon'), '.cpp').map((path) =>
      this.#object(path, `addon-${basename(path, '.cpp')}`, flags),
    );
  }

  /** The test programs of a level. */
  programs(level, levelObjects, names, kind = '') {
    if (isWindows) return []; // they need aligned_alloc of C11
    const objects = levelObjects.map(({ output }) => output);
    const paths = names.map((name) => join(source, 'tests', `${name}.cpp`));
    return paths.map((path) => {
      const stem = `${basename(path, '.cpp')}-${level.name}${kind}`;
      const hash = hashOf([this.base, readFileSync(path), ...level.flags, ...objects]);
      const output = join(this.folder, 'tests', `${stem}-${hash}`);
      mkdirSync(dirname(output), { recursive: true });
      this.kept.add(basename(output));
      const flags = [...common, ...level.flags, `-DWINNOW_LEVEL=${level.name}`];
      return {
        output,
        programArguments: [path, ...objects, ...flags, '-pthread', '-lm'],
        link: join(this.folder, 'tests', stem),
      };
    });
  }

  /** Compiles and links what is missing, alone in the folder; returns the number of compilations. */
  async make() {
    mkdirSync(this.objects, { recursive: true });
    const unlock = await lock(join(this.folder, 'lock'));
    try {
      return await this.#make();
    } finally {
      unlock();
    }
  }

  async #make() {
    const byLevel = this.levels.map((level) => this.levelObjects(level));
    // for programs of source/tests alone, which link microkernels
    const emulated = (options.emulate ? [] : emulatedLevels()).map((level) => ({
      level,
      microkernels: this.levelObjects(level, level.emulatedSources),
    }));
    const objects = [...byLevel.flat(), ...this.addonObjects()];
    const missing = [...objects, ...emulated.flatMap(({ microkernels }) => microkernels)].filter(
      ({ output }) => !existsSync(output),
    );
    await runAll(missing);
    const paths = objects.map(({ output }) => output);
    const addon = join(this.folder, `winnow-${hashOf(paths.map((path) => basename(path)))}.node`);
    this.kept.add(basename(addon));
    const links = existsSync(addon)
      ? []
      : [{ output: addon, programArguments: [...paths, ...windowsLibraries(this.folder), ...linking] }];
    const programs = [
      ...this.levels.flatMap((level, i) =>
        this.programs(level, byLevel[i], options.emulate ? level.emulatedPrograms : level.programs),
      ),
      ...emulated.flatMap(({ level, microkernels }) =>
        this.programs(level, microkernels, level.emulatedPrograms, '-emulated'),
      ),
    ];
    const stale = [...links, ...programs].filter(({ output }) => !existsSync(output));
    await runAll(stale);
    publish(addon, join(this.folder, 'winnow.node'));
    for (const { output, link } of programs) publish(output, link);
    this.#sweep();
    return missing.length + stale.length;
  }

  /** Removes outputs of other inputs. */
  #sweep() {
    for (const path of [this.folder, this.objects, join(this.folder, 'tests')]) {
      if (!existsSync(path)) continue;
      for (const file of readdirSync(path)) {
        if (/-[0-9a-f]{16}(\.o|\.node)?$/.test(file) && !this.kept.has(file)) rmSync(join(path, file), { force: true });
      }
    }
  }
}

/** Copies an output to its public name, if it changed; a process that has it loaded keeps its own. */
function publish(from, to) {
  if (existsSync(to) && readFileSync(to).equals(readFileSync(from))) return;
  const temporary = `${to}.${process.pid}`;
  copyFileSync(from, temporary);
  renameSync(temporary, to);
}

async function main() {
  const found = spawnSync(compiler, ['--version'], { encoding: 'utf8' });
  const refusal =
    found.status !== 0
      ? `no C++ compiler (${compiler})`
      : allLevels.length === 0
        ? `no kernels for ${platform}`
        : undefined;
  if (refusal !== undefined) {
    if (!options['if-available']) throw new Error(refusal);
    process.stderr.write(`native kernels are not built: ${refusal}\n`);
    return;
  }
  const start = Date.now();
  const numCompiled = await new Build(found.stdout).make();
  const seconds = ((Date.now() - start) / 1000).toFixed(1);
  if (numCompiled > 0) process.stderr.write(`native kernels: built ${numCompiled} outputs in ${seconds} s\n`);
}

await main().catch((error) => {
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
});
