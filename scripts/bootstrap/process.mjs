/** Child processes: passed through untouched, or captured to a log that is shown when they fail. */
import { spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname } from 'node:path';
import { fail } from './log.mjs';

/** In a terminal Ctrl-C reaches the whole process group, so forwarding it would deliver it twice. */
function hasTerminal() {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}

/**
 * npm may be killed without passing the signal on, and its script would go on running.
 * @returns a function that ends the watch
 */
function watchNpm(onGone) {
  if (process.env.npm_lifecycle_event === undefined) return () => {};
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid !== parent) onGone();
  }, 500);
  return () => clearInterval(timer);
}

/**
 * Runs a program with our stdin, stdout and stderr; resolves to its exit code, and dies of the signal it died of.
 * @param {string} command
 * @param {string[]} commandArguments
 * @param {import('node:child_process').SpawnOptions} options
 * @returns {Promise<number>}
 */
export function runThrough(command, commandArguments, { cwd, env, stdio = 'inherit' }) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, commandArguments, { cwd, env, stdio });
    const handlers = new Map();
    for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'])) {
      const handler = () => {
        const terminalSends = signal === 'SIGINT' || signal === 'SIGQUIT';
        if (!terminalSends || !hasTerminal()) child.kill(signal);
      };
      handlers.set(signal, handler);
      process.on(signal, handler);
    }
    const unwatch = watchNpm(() => child.kill('SIGTERM'));
    const release = () => {
      unwatch();
      for (const [signal, handler] of handlers) process.off(signal, handler);
    };
    child.once('error', (error) => {
      release();
      reject(error);
    });
    child.once('close', (code, signal) => {
      release();
      if (signal === null) return resolve(code ?? 1);
      process.kill(process.pid, signal);
      // Only reached when the signal does not end this process.
      setTimeout(() => resolve(128 + (constants.signals[signal] ?? 0)), 200);
    });
  });
}

/** Runs a program with its output in `logFile`; on failure shows the end of that log and fails with `remedy`. */
export async function runLogged(command, commandArguments, { cwd, env, logFile, remedy }) {
  mkdirSync(dirname(logFile), { recursive: true });
  const log = openSync(logFile, 'w');
  let code;
  let problem = '';
  try {
    code = await runThrough(command, commandArguments, { cwd, env, stdio: ['ignore', log, log] });
  } catch (error) {
    code = 1;
    problem = `${error.message}\n`;
  } finally {
    closeSync(log);
  }
  if (code === 0) return;
  const tail = readFileSync(logFile, 'utf8').trimEnd().split('\n').slice(-60).join('\n');
  process.stderr.write(`${problem}${tail}\n`);
  fail(remedy, code);
}
