/** Errors of the command line, and the conversion of errors to one line and an exit code. */
import { CommanderError } from 'commander';
import { WinnowError } from '@winnow/tensor';

/** Exit codes. */
export const exitCodes = {
  ok: 0,
  /** Reading, writing, the network or a backend failed. */
  failure: 1,
  /** A flag or argument is invalid. */
  usage: 2,
  /** A model file violates its format. */
  format: 3,
  /** A prompt, a context or a memory plan is too large, or a constrained text was cut. */
  capacity: 4,
  /** Stopped by Ctrl-C. */
  interrupted: 130,
} as const;

/** An invalid flag or argument: `"--temp: expected a number from 0, got 'hot'"`. */
export class UsageError extends Error {
  override readonly name: string = 'UsageError';
}

/** Ctrl-C aborted the command. */
export class InterruptedError extends Error {
  override readonly name: string = 'InterruptedError';

  constructor() {
    super('interrupted');
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

/** Flags by the engine's option names. */
const flagOfOption: Readonly<Record<string, string>> = {
  context: '--context',
  batchSize: '--batch-size',
  'kvCache.dtype': '--kv-dtype',
  'kvCache.rotation': '--kv-rotation',
  'kvCache.eviction': '--kv-eviction',
  'kvCache.capacity': '--kv-capacity',
  'kvCache.budget': '--kv-budget',
  'kvCache.offload.memory': '--kv-offload-memory',
  'kvCache.offload.folder': '--kv-offload-folder',
  'memory.budget': '--memory',
  'memory.hot': '--memory-hot',
  'memory.warm': '--memory-warm',
  'memory.cold': '--memory-cold',
  'memory.folder': '--memory-folder',
  memory: '--memory',
  'sparsity.calibration': '--sparsity',
  'sparsity.maxActive': '--sparsity-max-active',
  'sparsity.verify': '--sparsity-verify',
  threads: '--threads',
  overflow: '--overflow',
  quantize: '--quantize',
  allowRequantize: '--allow-requantize',
  maxTokens: '--n-predict',
  temperature: '--temp',
  topK: '--top-k',
  topP: '--top-p',
  minP: '--min-p',
  repetitionPenalty: '--repeat-penalty',
  penaltyWindow: '--repeat-last-n',
  presencePenalty: '--presence-penalty',
  frequencyPenalty: '--frequency-penalty',
  positions: '--positions',
};
/** Option names that are English words are replaced only at the start of a message, the others anywhere. */
const isWord = (name: string): boolean => /^[a-z]+$/.test(name);
const namesOf = (names: readonly string[]): string => names.join('|').replaceAll('.', '\\.');
const optionNames = new RegExp(
  `\\b(${namesOf(Object.keys(flagOfOption).filter((name) => !isWord(name)))})\\b` +
    `|(?<=^(?:options\\.)?)(${namesOf(Object.keys(flagOfOption).filter(isWord))})(?=[:.])`,
  'g',
);

/** Replaces option names in a message of the engine by flags. */
export function withFlags(text: string): string {
  return text.replaceAll(optionNames, (name) => flagOfOption[name] ?? name);
}

/** Formats an error as one line; unexpected failures are marked as such. */
export function errorLine(error: unknown): string {
  const text = (error instanceof Error ? error.message : String(error)).replaceAll(/\s*[\r\n]+\s*/g, ' ').trim();
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
