/** Root folder, progress lines and the error that ends a task with one line. */
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
export const toolchainFolder = join(root, '.toolchain');

/** An expected failure: shown as one line, without a stack. */
export class TaskError extends Error {
  constructor(message, exitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}

export function fail(message, exitCode = 1) {
  throw new TaskError(message, exitCode);
}

/** One progress line on stderr. */
export function say(message) {
  process.stderr.write(`winnow: ${message}\n`);
}

export function seconds(sinceMs) {
  return `${((Date.now() - sinceMs) / 1000).toFixed(1)} s`;
}
