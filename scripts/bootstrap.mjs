/**
 * Entry of the root scripts and their pnpm forms:
 * `npm run demo | test | test:full | test:integrations | native | release | check | mutants | fuzz | winnow | bench`.
 *
 * Runs on any Node >= 20.20 without dependencies. Brings the tools (Node, pnpm, packages) when they are missing, builds
 * what is stale, then runs the task. Progress goes to stderr; stdout belongs to the task.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { taskCheck } from './bootstrap/check.mjs';
import { demoArguments } from './bootstrap/demo.mjs';
import { toolEnvironment } from './bootstrap/environment.mjs';
import { installPackages } from './bootstrap/install.mjs';
import { taskIntegrations } from './bootstrap/integrations.mjs';
import { withLock } from './bootstrap/lock.mjs';
import { fail, root, say, seconds, TaskError } from './bootstrap/log.mjs';
import { runThrough } from './bootstrap/process.mjs';
import { taskRelease } from './bootstrap/release.mjs';
import { taskTest } from './bootstrap/test.mjs';
import { ensureTools } from './bootstrap/tools.mjs';
import { buildStale, recordBuild, sourceStamp } from './bootstrap/build-stamp.mjs';
import { buildLogged, turbo } from './bootstrap/turbo.mjs';

const cliMain = join(root, 'apps', 'cli', 'dist', 'main.js');
const benchMain = join(root, 'apps', 'bench', 'dist', 'main.js');

/** Tools and packages; cheap when nothing changed. */
async function prepare() {
  const tools = await ensureTools();
  await installPackages(tools);
  return tools;
}

/** Builds the command line program and all it depends on, unless a look at the files shows that nothing changed. */
async function buildProgram(tools) {
  if (!buildStale()) return;
  await withLock('build', async () => {
    if (!buildStale()) return;
    const builtFrom = sourceStamp();
    const startMs = Date.now();
    say('building what changed ...');
    const remedy = 'the build failed; its output is above and in .toolchain/logs/build.log';
    await buildLogged(tools, ['run', 'build', '--filter=@winnow/cli...', '--output-logs=errors-only'], remedy);
    if (!existsSync(cliMain)) fail('the build left no apps/cli/dist/main.js');
    recordBuild(builtFrom);
    say(`built after ${seconds(startMs)}`);
  });
}

async function runProgram(tools, programArguments) {
  await buildProgram(tools);
  return runThrough(tools.node, [cliMain, ...programArguments], { cwd: callerFolder(), env: process.env });
}

/** The folder that the caller stands in, not the root that npm and pnpm run scripts in. */
function callerFolder() {
  return process.env.npm_lifecycle_event && process.env.INIT_CWD ? process.env.INIT_CWD : process.cwd();
}

async function runBench(tools, benchArguments) {
  const remedy = 'the build failed; its output is above and in .toolchain/logs/build.log';
  await withLock('build', () =>
    buildLogged(tools, ['run', 'build', '--filter=@winnow/bench...', '--output-logs=errors-only'], remedy),
  );
  return runThrough(tools.node, [benchMain, ...benchArguments], { cwd: callerFolder(), env: process.env });
}

const tasks = {
  setup: async () => {
    await prepare();
    return 0;
  },
  demo: async (rest) => {
    const tools = await prepare();
    return runProgram(tools, [...demoArguments, ...rest]);
  },
  winnow: async (rest) => runProgram(await prepare(), rest),
  bench: async (rest) => runBench(await prepare(), rest),
  test: async (rest) => taskTest(await prepare(), rest),
  'test:full': async (rest) => taskTest(await prepare(), rest, true),
  'test:integrations': async (rest) => taskIntegrations(await prepare(), rest),
  native: async (rest) => {
    const tools = await prepare();
    const main = join(root, 'packages', 'native', 'scripts', 'build.mjs');
    return runThrough(tools.node, [main, ...rest], { cwd: root, env: toolEnvironment(tools) });
  },
  release: async (rest) => taskRelease(await prepare(), rest),
  check: async (rest) => taskCheck(await prepare(), rest),
  mutants: async (rest) => {
    const tools = await prepare();
    const main = join(root, 'tools', 'mutants', 'src', 'main.ts');
    return runThrough(tools.node, [main, ...rest], { cwd: root, env: toolEnvironment(tools) });
  },
  fuzz: async (rest) => {
    const tools = await prepare();
    return runThrough(tools.node, [join(root, 'tools', 'fuzz', 'src', 'start.mjs'), ...rest], {
      cwd: root,
      env: toolEnvironment(tools),
    });
  },
  turbo: async (rest) => {
    const tools = await prepare();
    return turbo(tools, rest);
  },
};

const usage = `usage: node scripts/bootstrap.mjs ${Object.keys(tasks).join('|')} [arguments]`;

async function main() {
  const [name, ...rest] = process.argv.slice(2);
  const task = Object.hasOwn(tasks, name ?? '') ? tasks[name] : undefined;
  if (!task) fail(usage, 2);
  if (rest[0] === '--') rest.shift();
  return task(rest);
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error) => {
    process.exitCode = error instanceof TaskError ? error.exitCode : 1;
    process.stderr.write(`winnow: ${error instanceof TaskError ? error.message : (error.stack ?? error)}\n`);
  },
);
