/** Batches of clients: from a file of requests to files of results, on a job store and a blob store that survive restarts. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { hostname } from 'node:os';
import { runWorker, type BlobStore, type JobStore, type QueueInfo } from '@winnow/jobs';
import { ApiError } from '../http/api-error.js';
import type { InternalRequest, InternalResponse } from '../http/internal-calls.js';
import type { BatchObject, BatchRequest, JobOverview } from '../schemas/batches.js';
import { batchResults, type ResultKind } from './batch-results.js';
import { BatchRates } from './rates.js';
import { enqueueBatchLines } from './enqueue-lines.js';
import { FileStore } from './file-store.js';
import { batchLineHandler } from './line-handler.js';
import { Records, type Page, type PageOptions } from './records.js';

export interface BatchServiceOptions {
  readonly jobs: JobStore;
  readonly blobs: BlobStore;
  /** Maximum number of lines at once; 0: workers in other processes answer them. */
  readonly concurrency: number;
  /** Queues to claim lines from. Undefined: all. */
  readonly queues: readonly string[] | undefined;
  readonly call: (request: InternalRequest) => Promise<InternalResponse>;
  readonly reportError: (error: unknown) => void;
}

type Owner = string | undefined;

/** Maximum number of claims of a line: the server may be killed this often while the line runs. */
const maxAttempts = 10;
const leaseMs = 10_000;
/** Interval at which batches are checked for lines that have all ended, or expired. */
const checkMs = 250;
const maxListedErrors = 100;
/** Failed lines in the overview of a batch. */
const maxShownErrors = 20;

const finalStates: ReadonlySet<BatchObject['status']> = new Set(['failed', 'completed', 'expired', 'cancelled']);
const nowSeconds = (): number => Math.floor(Date.now() / 1000);

export class BatchService {
  readonly files: FileStore;
  readonly #options: BatchServiceOptions;
  readonly #records: Records<BatchObject>;
  /** Owners of the batches that are not final. */
  readonly #active = new Map<string, Owner>();
  /** The end of the last change of each batch: the changes of a batch run one after the other. */
  readonly #changes = new Map<string, Promise<unknown>>();
  readonly #rates = new BatchRates();
  readonly #drain = new AbortController();
  readonly #abort = new AbortController();
  #ended: Promise<void> | undefined;

  constructor(options: BatchServiceOptions) {
    this.#options = options;
    this.files = new FileStore(options.blobs);
    this.#records = new Records(options.blobs, 'batches');
  }

  /** Continues the batches that the last server left. */
  async start(): Promise<void> {
    const { jobs } = this.#options;
    const known = new Set(await jobs.batches());
    for (const { record, owner } of await this.#records.all()) {
      if (finalStates.has(record.status)) {
        // left by a server that was killed after the last line; batches of other servers stay
        if (known.has(record.id)) await jobs.remove(record.id);
        continue;
      }
      this.#active.set(record.id, owner);
      if (record.status === 'validating') this.#inBackground(this.#validate(record, owner));
    }
    const timer = setInterval(() => this.#inBackground(this.#checkAll()), checkMs);
    this.#ended = this.#work().finally(() => clearInterval(timer));
  }

  /** Resolves when the service ends. */
  async #work(): Promise<void> {
    const { jobs, concurrency, queues, call, reportError } = this.#options;
    const [drain, signal] = [this.#drain.signal, this.#abort.signal];
    if (concurrency === 0) {
      if (!drain.aborted) await once(drain, 'abort');
      return;
    }
    await runWorker(jobs, {
      name: `${hostname()}-${process.pid}`,
      concurrency: queues === undefined ? concurrency : [{ queues, concurrency }],
      leaseMs,
      pollMs: checkMs,
      handler: batchLineHandler(call),
      drain,
      signal,
      onStoreError: reportError,
    });
  }

  /** No further line begins; resolves when the running ones have ended. */
  async close(): Promise<void> {
    this.#drain.abort();
    await this.#ended;
    await Promise.all(this.#changes.values());
  }

  /** Returns running lines to the store. */
  abort(): void {
    this.#abort.abort();
  }

  /** @throws {ApiError} 400 for an input that does not exist */
  async create(request: BatchRequest, owner: Owner): Promise<BatchObject> {
    const { input_file_id: inputId, endpoint, completion_window: window, metadata = null } = request;
    const file = await this.files.get(inputId, owner);
    if (file === undefined || file.purpose !== 'batch') {
      const message = `input_file_id: expected a file with the purpose 'batch', got '${inputId}'`;
      throw new ApiError({ status: 400, message, param: 'input_file_id', code: 'invalid_value' });
    }
    const created = nowSeconds();
    const batch: BatchObject = {
      ...{ id: `batch_${randomUUID().replaceAll('-', '')}`, object: 'batch', endpoint, errors: null },
      ...{ input_file_id: inputId, completion_window: window, status: 'validating', created_at: created },
      ...{ expires_at: created + secondsOf(window), request_counts: { total: 0, completed: 0, failed: 0 }, metadata },
    };
    await this.#records.put(batch, owner);
    this.#active.set(batch.id, owner);
    this.#inBackground(this.#validate(batch, owner));
    return batch;
  }

  async get(id: string, owner: Owner): Promise<BatchObject | undefined> {
    const batch = await this.#records.get(id, owner);
    return batch === undefined ? undefined : this.#withCounts(batch);
  }

  async page(owner: Owner, options: PageOptions): Promise<Page<BatchObject>> {
    const page = await this.#records.page(owner, options);
    return { ...page, data: await Promise.all(page.data.map((batch) => this.#withCounts(batch))) };
  }

  /** The queues of the store, for all owners. Undefined: the store could not be read. */
  async queues(): Promise<readonly QueueInfo[] | undefined> {
    try {
      return await this.#options.jobs.queues();
    } catch (error) {
      this.#options.reportError(error);
      return undefined;
    }
  }

  /** The queues, and the batches of an owner that have not ended. */
  async overview(owner: Owner): Promise<JobOverview> {
    const ids = [...this.#active].filter(([, each]) => each === owner).map(([id]) => id);
    const batches = await Promise.all(ids.map((id) => this.#progressOf(id, owner)));
    const queues = await this.#options.jobs.queues();
    return { queues: queues.map(queueObject), batches: batches.filter((batch) => batch !== undefined) };
  }

  async #progressOf(id: string, owner: Owner): Promise<JobOverview['batches'][number] | undefined> {
    const batch = await this.#records.get(id, owner);
    if (batch === undefined) return undefined;
    const { jobs } = this.#options;
    const { waiting, running, completed, failed, expired } = await jobs.counts(id);
    const errors = await jobs.list(id, { states: ['failed'], limit: maxShownErrors });
    const { linesPerSecond, secondsLeft = null } = this.#rates.rateOf(id, completed + failed, waiting + running);
    const lines = { waiting, running, completed, failed: failed + expired };
    const failures = errors.map(({ index, error }) => {
      return { line: index + 1, code: error?.code ?? '', message: error?.message ?? '' };
    });
    const { status, endpoint, created_at } = batch;
    return {
      id,
      status,
      endpoint,
      created_at,
      lines,
      lines_per_second: linesPerSecond,
      seconds_left: secondsLeft,
      failures,
    };
  }

  /** Cancels the lines that have not ended; results of the others are in the files. Undefined for an unknown batch. */
  async cancel(id: string, owner: Owner): Promise<BatchObject | undefined> {
    return this.#change(id, owner, async (batch) => {
      if (finalStates.has(batch.status)) {
        const message = `The batch is ${batch.status} and can no longer be canceled`;
        throw new ApiError({ status: 409, message, code: 'batch_ended' });
      }
      await this.#options.jobs.cancel(id);
      return { ...batch, status: 'cancelling', cancelling_at: nowSeconds() };
    });
  }

  async #validate(batch: BatchObject, owner: Owner): Promise<void> {
    const { id, endpoint, expires_at: expiresAt } = batch;
    const { jobs } = this.#options;
    await this.#change(id, owner, async (current) => {
      if (current.status !== 'validating') return current;
      const content = (await this.files.read(batch.input_file_id, owner)) ?? [];
      const options = {
        ...{ endpoint, maxAttempts, expiresAtMs: expiresAt * 1000, signal: this.#abort.signal },
        ...(owner === undefined ? {} : { owner }),
      };
      const { numLines, numRejected } = await enqueueBatchLines(jobs, id, content, options);
      if (numLines > numRejected) return { ...current, status: 'in_progress', in_progress_at: nowSeconds() };
      const errors = { object: 'list' as const, data: await this.#errorsOf(id) };
      const counts = { total: numLines, completed: 0, failed: numRejected };
      return { ...current, status: 'failed', failed_at: nowSeconds(), errors, request_counts: counts };
    });
  }

  /** The errors of an input of which no line is a request. */
  async #errorsOf(id: string): Promise<NonNullable<BatchObject['errors']>['data']> {
    const infos = await this.#options.jobs.list(id, { limit: maxListedErrors });
    if (infos.length === 0) return [{ code: 'empty_file', message: 'The file has no lines', line: null, param: null }];
    return infos.map(({ index, error }) => ({
      ...{ code: error?.code ?? '', message: error?.message ?? '', line: index + 1, param: null },
    }));
  }

  async #checkAll(): Promise<void> {
    for (const [id, owner] of this.#active) {
      if (this.#changes.has(id) || this.#drain.signal.aborted) continue;
      await this.#change(id, owner, (batch) => this.#advance(batch, owner));
    }
  }

  async #advance(batch: BatchObject, owner: Owner): Promise<BatchObject> {
    const { jobs } = this.#options;
    if (batch.status === 'in_progress') {
      const { waiting, running, completed, failed } = await jobs.counts(batch.id);
      this.#rates.add(batch.id, completed + failed);
      return waiting + running > 0 ? batch : { ...batch, status: 'finalizing', finalizing_at: nowSeconds() };
    }
    if (batch.status !== 'finalizing' && batch.status !== 'cancelling') return batch;
    const { expired } = await jobs.counts(batch.id);
    const counted = await this.#withCounts(batch);
    const output = await this.#writeResults(batch, 'output', owner);
    const errors = await this.#writeResults(batch, 'errors', owner);
    const files = { ...(output && { output_file_id: output }), ...(errors && { error_file_id: errors }) };
    const at = nowSeconds();
    if (batch.status === 'cancelling') return { ...counted, ...files, status: 'cancelled', cancelled_at: at };
    if (expired > 0) return { ...counted, ...files, status: 'expired', expired_at: at };
    return { ...counted, ...files, status: 'completed', completed_at: at };
  }

  /** @returns the id of the file; undefined without results of the kind */
  async #writeResults(batch: BatchObject, kind: ResultKind, owner: Owner): Promise<string | undefined> {
    const { jobs } = this.#options;
    const states = kind === 'output' ? (['completed'] as const) : (['failed', 'expired'] as const);
    if ((await jobs.list(batch.id, { states, limit: 1 })).length === 0) return undefined;
    // the same name in a second attempt, after a crash
    const id = `file-${batch.id.slice('batch_'.length)}-${kind}`;
    const file = {
      id,
      filename: `${batch.id}_${kind}.jsonl`,
      purpose: 'batch_output',
      createdAt: nowSeconds(),
    } as const;
    await this.files.write(file, bytesOf(batchResults(jobs, batch.id, kind)), owner);
    return id;
  }

  async #withCounts(batch: BatchObject): Promise<BatchObject> {
    if (finalStates.has(batch.status)) return batch;
    const counts = await this.#options.jobs.counts(batch.id);
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const { completed, failed, expired } = counts;
    return { ...batch, request_counts: { total, completed, failed: failed + expired } };
  }

  /** The changes of a batch run one after the other. A batch that becomes final is removed from the job store. */
  async #change(
    id: string,
    owner: Owner,
    work: (batch: BatchObject) => Promise<BatchObject>,
  ): Promise<BatchObject | undefined> {
    const before = this.#changes.get(id) ?? Promise.resolve();
    const change = before.then(async () => {
      const batch = await this.#records.get(id, owner);
      if (batch === undefined) return undefined;
      const changed = await work(batch);
      if (changed !== batch) await this.#records.put(changed, owner);
      if (!finalStates.has(changed.status)) return changed;
      await this.#options.jobs.remove(id);
      this.#active.delete(id);
      this.#rates.forget(id);
      return changed;
    });
    const settled = change.catch(() => undefined);
    this.#changes.set(id, settled);
    void settled.then(() => {
      if (this.#changes.get(id) === settled) this.#changes.delete(id);
    });
    return change;
  }

  /** Runs work that no request waits for. */
  #inBackground(work: Promise<unknown>): void {
    void work.catch((error: unknown) => {
      if (!this.#abort.signal.aborted) this.#options.reportError(error);
    });
  }
}

function queueObject({ queue, waiting, running, workers }: QueueInfo): JobOverview['queues'][number] {
  return { queue, waiting, running, workers: [...workers] };
}

async function* bytesOf(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array, void, void> {
  const encoder = new TextEncoder();
  for await (const line of lines) yield encoder.encode(line);
}

const secondsPerUnit: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

function secondsOf(window: string): number {
  return Number(window.slice(0, -1)) * (secondsPerUnit[window.slice(-1)] ?? 1);
}
