/** Starts the workspace's turbo with our tools. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { taskEnvironment } from './environment.mjs';
import { root, toolchainFolder } from './log.mjs';
import { runLogged, runThrough } from './process.mjs';

function withFixedFlags(turboArguments, inTerminal) {
  const [command, ...rest] = turboArguments;
  const hasConcurrency = rest.some((word) => word.startsWith('--concurrency='));
  const runFlags = [...(hasConcurrency ? [] : [`--concurrency=${availableParallelism()}`]), '--ui=stream'];
  const program = join(root, 'node_modules', 'turbo', 'bin', 'turbo');
  return [program, command, ...(command === 'run' ? runFlags : []), ...(inTerminal ? [] : ['--no-color']), ...rest];
}

/** Runs turbo with its output shown. Resolves to the exit code. */
export function turbo(tools, turboArguments) {
  const environment = taskEnvironment(tools);
  return runThrough(tools.node, withFixedFlags(turboArguments, process.stdout.isTTY), {
    cwd: root,
    env: process.stdout.isTTY ? environment : { ...environment, NO_COLOR: '1', FORCE_COLOR: '0' },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
}

/** Runs turbo silently; its output appears when it fails, and then the task fails with `remedy`. */
export function buildLogged(tools, turboArguments, remedy) {
  return runLogged(tools.node, withFixedFlags(turboArguments, false), {
    cwd: root,
    env: { ...taskEnvironment(tools), NO_COLOR: '1', FORCE_COLOR: '0' },
    logFile: join(toolchainFolder, 'logs', 'build.log'),
    remedy,
  });
}
