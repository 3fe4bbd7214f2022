/** A job store whose calls are scripts on a server; each runs atomically. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  checkInteger,
  checkJobs,
  checkNumber,
  checkText,
  eventOptionNames,
  failOptionNames,
  jobStates,
  lapsedError,
  listOptionNames,
  noCounts,
  resolveClaimOptions,
  resolveEnqueueOptions,
  retryDelayMs,
  type ClaimedJob,
  type ClaimOptions,
  type Enqueued,
  type EnqueueOptions,
  type EventOptions,
  type FailOptions,
  type FailState,
  type JobCounts,
  type JobError,
  type JobEvent,
  type JobInfo,
  type JobState,
  type JobStore,
  type LeaseState,
  type ListOptions,
  type NewJob,
  type QueueInfo,
} from '@winnow/jobs';
import { checkOptions, definedFields, ReleasedError } from '@winnow/tensor';
import type { ScriptName } from './scripts/index.js';

/** Reply of a script: texts, numbers, and lists of these. */
export type Reply = string | number | null | readonly Reply[];

/** A connection to a server that has the scripts. It waits for a server that is being restarted. */
export interface Scripts {
  readonly isOpen: boolean;
  /** @throws {ArgumentError} for values that no call can have */
  check(name: ScriptName, values: readonly (string | number)[]): void;
  /** @throws {ReleasedError} after `close` @throws {IoError} */
  run(name: ScriptName, ...values: readonly (string | number)[]): Promise<Reply>;
  close(): Promise<void>;
}

const eventsPerRead = 500;
const jobsPerRead = 200;
/** Maximum number of jobs that one call of the script examines, because it blocks the server. */
const jobsPerLook = 2000;
/** Maximum number of changes of one call, and of characters if it has several, because it blocks the server. */
const changesPerCall = 100;
const charactersPerCall = 4 * 1024 * 1024;
/** Values of a change of a holder: batch, position, token, what it is, and up to six that it needs. */
const valuesPerChange = 10;

/** A change that waits for the others of the same turn of the event loop. */
interface Change {
  readonly values: readonly (string | number)[];
  readonly resolve: (state: string) => void;
  readonly reject: (error: unknown) => void;
}

/** An absent detail differs from an empty one. */
function errorValues(error: JobError | undefined): string[] {
  const { code = '', message = '', detail } = error ?? {};
  return [code, message, detail === undefined ? '0' : '1', detail ?? ''];
}

const lapsed: readonly string[] = [lapsedError.code, lapsedError.message];

/** Encodes a priority as text that sorts the highest one first. */
function orderOf(priority: number): string {
  return (2n ** 53n - BigInt(priority)).toString().padStart(17, '0');
}

export class ScriptJobStore implements JobStore {
  readonly #connection: Scripts;
  readonly #now: (() => number) | undefined;
  readonly #pollMs: number;
  #changes: Change[] = [];

  constructor(connection: Scripts, now: (() => number) | undefined, pollMs: number) {
    this.#connection = connection;
    this.#now = now;
    this.#pollMs = pollMs;
  }

  async enqueue(batchId: string, jobs: readonly NewJob[], options: EnqueueOptions = {}): Promise<Enqueued> {
    checkJobs(batchId, jobs);
    const { queue, priority, maxAttempts, expiresAtMs } = resolveEnqueueOptions(options);
    const values = jobs.flatMap(({ customId, index, queue: own = '', payload, group = '', error }) => {
      return [customId, index, own, payload, group, error === undefined ? '0' : '1', ...errorValues(error)];
    });
    const common = [batchId, queue, orderOf(priority), maxAttempts, expiresAtMs ?? '', jobs.length];
    const [numAdded = 0, ...conflicts] = (await this.#run('enqueue', ...common, ...values)) as (string | number)[];
    return { numAdded: Number(numAdded), conflicts: conflicts.map(Number) };
  }

  async claim(options: ClaimOptions): Promise<ClaimedJob[]> {
    const { worker, leaseMs, limit, alone } = resolveClaimOptions(options);
    const { queues } = options;
    if (queues?.length === 0) return [];
    const wanted = queues === undefined ? [''] : [queues.length, ...queues];
    const common = [worker, leaseMs, limit, alone ? '1' : '0', randomUUID()];
    const reply = (await this.#run('claim', ...lapsed, ...common, ...wanted)) as string[];
    const jobs: ClaimedJob[] = [];
    for (let i = 0; i < reply.length; i += 8) {
      const [batchId, customId, index, queue, payload, attempt, suspect, token] = reply.slice(i, i + 8) as [
        ...[string, string, string, string, string, string, string, string],
      ];
      const numbers = { index: Number(index), attempt: Number(attempt) };
      jobs.push({ batchId, customId, queue, payload, ...numbers, isSuspect: suspect === '1', token });
    }
    return jobs;
  }

  async heartbeat(job: ClaimedJob, leaseMs: number, progress = 0): Promise<LeaseState> {
    checkInteger('leaseMs', leaseMs, 1);
    checkNumber('progress', progress);
    return this.#asHolder<LeaseState>(job, 'heartbeat', leaseMs, progress);
  }

  async complete(job: ClaimedJob, result: string): Promise<LeaseState> {
    return this.#asHolder<LeaseState>(job, 'complete', result);
  }

  async fail(job: ClaimedJob, error: JobError, options: FailOptions = {}): Promise<FailState> {
    checkOptions(options, failOptionNames);
    const { retry = true, delayMs = retryDelayMs(job.attempt) } = options;
    checkNumber('delayMs', delayMs);
    return this.#asHolder<FailState>(job, 'fail', retry ? '1' : '0', delayMs, ...errorValues(error));
  }

  async release(job: ClaimedJob): Promise<LeaseState> {
    return this.#asHolder<LeaseState>(job, 'release');
  }

  async cancel(batchId: string): Promise<number> {
    return Number(await this.#run('cancel', ...lapsed, batchId));
  }

  async list(batchId: string, options: ListOptions = {}): Promise<JobInfo[]> {
    checkOptions(options, listOptionNames);
    const { states, after = -1, limit = 100 } = options;
    checkInteger('limit', limit, 1);
    if (states?.length === 0) return [];
    const wanted = states === undefined ? '' : `,${states.join(',')},`;
    const found: JobInfo[] = [];
    for (let last: string | number = after; found.length < limit;) {
      const count = Math.min(jobsPerRead, limit - found.length);
      const values = [...lapsed, batchId, last, count, jobsPerLook, wanted];
      const [next, ...jobs] = (await this.#run('list', ...values)) as [string, ...Listed[]];
      for (const [index, fields] of jobs) found.push(jobInfo(batchId, Number(index), fields));
      if (next === '') break;
      last = next;
    }
    return found;
  }

  async counts(batchId: string): Promise<JobCounts> {
    const reply = (await this.#run('counts', ...lapsed, batchId)) as string[];
    const counts = noCounts();
    for (const state of jobStates) {
      const at = reply.indexOf(state);
      if (at >= 0) counts[state] = Number(reply[at + 1]);
    }
    return counts;
  }

  async queues(): Promise<QueueInfo[]> {
    const found = (await this.#run('queues', ...lapsed)) as [string, number, string[]][];
    return found.map(([queue, waiting, fields]) => {
      const pairs = Array.from({ length: fields.length / 2 }, (_, i) => fields.slice(2 * i, 2 * i + 2));
      const workers = pairs.map(([name = '', running]) => ({ name, running: Number(running) }));
      workers.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
      return { queue, waiting, running: workers.reduce((sum, { running }) => sum + running, 0), workers };
    });
  }

  async batches(): Promise<string[]> {
    return (await this.#run('batches')) as string[];
  }

  async remove(batchId: string): Promise<boolean> {
    return (await this.#run('remove', ...lapsed, batchId)) === 1;
  }

  events(options: EventOptions): AsyncIterable<JobEvent> {
    checkOptions(options, eventOptionNames);
    if (!this.#connection.isOpen) throw new ReleasedError('job store');
    // requested before any later call, so that its events are included
    const start = options.after === undefined ? this.#readEvents('', options.batchId) : undefined;
    start?.catch(() => {}); // the iteration throws it
    return this.#follow(options, start);
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  async *#follow(
    { batchId, after, signal }: EventOptions,
    start: Promise<EventPage> | undefined,
  ): AsyncGenerator<JobEvent, void, void> {
    let last = String(after ?? (await start)?.last ?? 0);
    while (!signal.aborted && this.#connection.isOpen) {
      const page = await this.#readEvents(last, batchId);
      for (const event of page.events) {
        if (signal.aborted) return;
        yield event;
      }
      if (page.last === last) await sleep(this.#pollMs, undefined, { signal }).catch(() => {});
      last = page.last;
    }
  }

  async #readEvents(after: string, batchId = ''): Promise<EventPage> {
    const reply = await this.#run('events', ...lapsed, after, eventsPerRead, batchId);
    const [last, ...found] = reply as [string, ...[string, string, string, JobEvent['event'], string][]];
    const events = found.map(([sequence, batch, customId, event, atMs]): JobEvent => {
      return { sequence: Number(sequence), batchId: batch, customId, event, atMs: Number(atMs) };
    });
    return { last, events };
  }

  /** Holders that end jobs in one turn of the event loop share a call. */
  async #asHolder<State extends string>(job: ClaimedJob, ...change: readonly (string | number)[]): Promise<State> {
    checkText('job.token', job.token);
    checkInteger('job.index', job.index, 0);
    const values = [job.batchId, job.index, job.token, ...change];
    this.#connection.check('holder', values);
    const missing = Array.from({ length: valuesPerChange - values.length }, () => '');
    return new Promise<string>((resolve, reject) => {
      if (this.#changes.length === 0) setImmediate(() => this.#sendChanges());
      this.#changes.push({ values: [...values, ...missing], resolve, reject });
    }) as Promise<State>;
  }

  #sendChanges(): void {
    while (this.#changes.length > 0) {
      const sent = this.#takeChanges();
      const values = sent.flatMap((change) => change.values);
      this.#connection.run('holder', this.#now?.() ?? '', sent.length, ...values).then(
        (states) => sent.forEach(({ resolve }, index) => resolve((states as string[])[index] as string)),
        (error: unknown) => sent.forEach(({ reject }) => reject(error)),
      );
    }
  }

  /** Takes the first changes, as many as one call may have. */
  #takeChanges(): Change[] {
    let [count, numCharacters] = [0, 0];
    for (const { values } of this.#changes.slice(0, changesPerCall)) {
      for (const value of values) numCharacters += String(value).length;
      if (count > 0 && numCharacters > charactersPerCall) break;
      count++;
    }
    return this.#changes.splice(0, count);
  }

  #run(name: ScriptName, ...values: readonly (string | number)[]): Promise<Reply> {
    this.#sendChanges(); // they came first
    return this.#connection.run(name, this.#now?.() ?? '', ...values);
  }
}

interface EventPage {
  readonly last: string;
  readonly events: readonly JobEvent[];
}

type Listed = readonly [index: string, fields: readonly (string | null)[]];

/** @param fields in the order of the script */
function jobInfo(batchId: string, index: number, fields: readonly (string | null)[]): JobInfo {
  const given = fields.map((field) => field ?? undefined);
  const [customId = '', state, attempts, progress, worker, result, code, message = '', detail, started, ended] = given;
  const error = code === undefined ? undefined : { code, message, ...definedFields({ detail }) };
  return {
    ...{ batchId, customId, index, state: state as JobState, attempts: Number(attempts), progress: Number(progress) },
    ...definedFields({ worker, result, error }),
    ...(started === undefined ? {} : { startedAtMs: Number(started) }),
    ...(ended === undefined ? {} : { endedAtMs: Number(ended) }),
  };
}
