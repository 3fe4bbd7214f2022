/** Starts the workspace's turbo with our tools. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { taskEnvironment } from './environment.mjs';
import { root } from './log.mjs';
import { runThrough } from './process.mjs';

/** Runs turbo; with `quiet` its stdout goes to stderr, so that stdout stays the program's. Resolves to the exit code. */
export function turbo(tools, turboArguments, { quiet = false, env = taskEnvironment(tools) } = {}) {
  const program = join(root, 'node_modules', 'turbo', 'bin', 'turbo');
  const inTerminal = quiet ? process.stderr.isTTY : process.stdout.isTTY;
  const runFlags = [`--concurrency=${Math.max(1, availableParallelism())}`, '--ui=stream'];
  const fixed = [...(turboArguments[0] === 'run' ? runFlags : []), ...(inTerminal ? [] : ['--no-color'])];
  const [command, ...rest] = turboArguments;
  return runThrough(tools.node, [program, command, ...fixed, ...rest], {
    cwd: root,
    env,
    stdio: quiet ? ['ignore', process.stderr, process.stderr] : ['ignore', 'inherit', 'inherit'],
  });
}
