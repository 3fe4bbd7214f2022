/** Validation of the arguments of job stores. */
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import {
  jobPriorities,
  type ClaimOptions,
  type EnqueueOptions,
  type EventOptions,
  type FailOptions,
  type ListOptions,
  type NewJob,
} from './job-store.js';

const enqueueOptionNames: OptionNames<EnqueueOptions> = {
  queue: true,
  priority: true,
  maxAttempts: true,
  expiresAtMs: true,
};

const claimOptionNames: OptionNames<ClaimOptions> = {
  worker: true,
  leaseMs: true,
  limit: true,
  queues: true,
  alone: true,
};

export const failOptionNames: OptionNames<FailOptions> = { retry: true, delayMs: true };
export const listOptionNames: OptionNames<ListOptions> = { states: true, after: true, limit: true };
export const eventOptionNames: OptionNames<EventOptions> = { batchId: true, after: true, signal: true };

export interface ResolvedEnqueueOptions extends Required<Omit<EnqueueOptions, 'expiresAtMs'>> {
  readonly expiresAtMs: number | undefined;
}

/** @throws {UnknownOptionError} @throws {ArgumentError} */
export function resolveEnqueueOptions(options: EnqueueOptions): ResolvedEnqueueOptions {
  checkOptions(options, enqueueOptionNames);
  const { queue = 'default', priority = jobPriorities.batch, maxAttempts = 3, expiresAtMs } = options;
  checkText('queue', queue);
  checkInteger('priority', priority, Number.MIN_SAFE_INTEGER);
  checkInteger('maxAttempts', maxAttempts, 1);
  return { queue, priority, maxAttempts, expiresAtMs };
}

/** @throws {ArgumentError} for an invalid job, or two with one position or one id */
export function checkJobs(batchId: string, jobs: readonly NewJob[]): void {
  checkText('batchId', batchId);
  const positions = new Set<number>();
  for (const [number, { customId, index, queue }] of jobs.entries()) {
    checkText(`jobs[${number}].customId`, customId);
    if (queue !== undefined) checkText(`jobs[${number}].queue`, queue);
    checkInteger(`jobs[${number}].index`, index, 0);
    if (positions.has(index)) {
      throw new ArgumentError({ argument: 'jobs', expected: 'unique positions', actual: `${index} twice` });
    }
    positions.add(index);
  }
}

/** @throws {UnknownOptionError} @throws {ArgumentError} */
export function resolveClaimOptions(options: ClaimOptions): Required<Omit<ClaimOptions, 'queues'>> {
  checkOptions(options, claimOptionNames);
  const { worker, leaseMs, limit = 1, alone = true } = options;
  checkText('worker', worker);
  checkInteger('leaseMs', leaseMs, 1);
  checkInteger('limit', limit, 1);
  return { worker, leaseMs, limit, alone };
}

export function checkText(argument: string, text: string): void {
  if (typeof text === 'string' && text !== '') return;
  throw new ArgumentError({ argument, expected: 'a text', actual: text === '' ? 'an empty string' : String(text) });
}

/** Infinity is a number: stores keep it. NaN would fail the other changes that share a call with it. @throws {ArgumentError} */
export function checkNumber(argument: string, value: number): void {
  if (typeof value === 'number' && !Number.isNaN(value)) return;
  throw new ArgumentError({ argument, expected: 'a number', actual: String(value) });
}

export function checkInteger(argument: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw new ArgumentError({ argument, expected: `an integer from ${least}`, actual: String(value) });
}
