/** Errors of the command line, and the conversion of errors to one line and an exit code. */
import { CommanderError } from 'commander';
import { WinnowError } from '@winnow/tensor';
import { printable } from './printable.js';
import { flagOf, optionsWithFlags } from './names.js';

/** Exit codes. */
export const exitCodes = {
  ok: 0,
  /** Reading, writing, the network or a backend failed. */
  failure: 1,
  /** A flag or argument is invalid. */
  usage: 2,
  /** A model file violates its format, or its values are broken. */
  format: 3,
  /** A prompt, a context or a memory plan is too large, or a constrained text was cut. */
  capacity: 4,
  /** Stopped by Ctrl-C. */
  interrupted: 130,
  /** Ended by SIGHUP: the terminal is gone. */
  hungUp: 129,
  /** Ended by SIGTERM. */
  terminated: 143,
} as const;

/** An invalid flag or argument: `"--temperature: expected a number from 0, got 'hot'"`. */
export class UsageError extends Error {
  override readonly name: string = 'UsageError';
}

/** Ctrl-C aborted the command. */
export class InterruptedError extends Error {
  override readonly name: string = 'InterruptedError';

  constructor(message = 'interrupted') {
    super(message);
  }
}

/** A constrained text was cut before it matched its grammar or schema. */
export class UnfinishedOutputError extends Error {
  override readonly name: string = 'UnfinishedOutputError';
}

/** The reader of stdout has closed it (`winnow run | head -1`): the command exits silently. */
export class OutputClosedError extends Error {
  override readonly name: string = 'OutputClosedError';

  constructor() {
    super('stdout was closed');
  }
}

const codeOfFamily: Readonly<Record<string, number>> = {
  argument: exitCodes.usage,
  format: exitCodes.format,
  'non-finite': exitCodes.format,
  capacity: exitCodes.capacity,
};

export function exitCodeOf(error: unknown): number {
  if (error instanceof InterruptedError) return exitCodes.interrupted;
  if (error instanceof OutputClosedError) return exitCodes.ok;
  if (error instanceof UnfinishedOutputError) return exitCodes.capacity;
  if (error instanceof UsageError || error instanceof CommanderError) return exitCodes.usage;
  if (WinnowError.isInstance(error)) return codeOfFamily[error.code] ?? exitCodes.failure;
  return exitCodes.failure;
}

/** Options that are words are replaced only where a message begins with `<option>: expected` or `<option> of`, the others anywhere. */
const isWord = (path: string): boolean => /^[a-z]+$/.test(path);
/** Options of a group come before the group, so that the whole path is replaced. */
const alternatives = (paths: readonly string[]): string =>
  paths
    .toSorted((a, b) => b.length - a.length)
    .join('|')
    .replaceAll('.', '\\.');
const optionPaths = new RegExp(
  `\\b(${alternatives(optionsWithFlags.filter((path) => !isWord(path)))})\\b` +
    `|(?<=^(?:options\\.)?)(${alternatives(optionsWithFlags.filter(isWord))})(?=: \\w+ |\\.| of )`,
  'g',
);

/** A switch as in `overwrite: true`, whose flag has no value. */
const switches = new RegExp(`\\b(${alternatives(optionsWithFlags)}): true\\b`, 'g');

/** Replaces options in a message of the engine by flags, and arguments by their names in the help. */
export function withFlags(text: string): string {
  return text
    .replaceAll(switches, (_, path: string) => flagOf(path))
    .replaceAll(optionPaths, flagOf)
    .replaceAll(/(?<=\buse )overflow\b/g, flagOf)
    .replace(/^(model|location): /, 'MODEL: ')
    .replace(/^destination: /, 'DESTINATION: ')
    .replaceAll(/\bloadReranker\b/g, 'winnow rerank');
}

/** Formats an error, which may quote a file, as one line of plain text; unexpected failures are marked as such. */
export function errorLine(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const text = printable(message.replaceAll(/\s*[\r\n]+\s*/g, ' ').trim());
  if (WinnowError.isInstance(error) && (error.code === 'argument' || error.code === 'capacity')) {
    return withFlags(text);
  }
  if (isForeseen(error)) return text;
  return `unexpected failure: ${text === '' ? 'no message' : text} (WINNOW_DEBUG=1 prints the stack)`;
}

function isForeseen(error: unknown): boolean {
  if (error instanceof UsageError || error instanceof CommanderError || error instanceof InterruptedError) return true;
  if (error instanceof UnfinishedOutputError) return true;
  if (WinnowError.isInstance(error)) return true;
  // errors of the operating system carry a code such as ENOENT and a readable message
  return error instanceof Error && typeof (error as { code?: unknown }).code === 'string' && 'syscall' in error;
}
