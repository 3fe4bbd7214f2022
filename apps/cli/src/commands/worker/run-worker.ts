/** Loads the models of a worker, then answers lines until it is stopped or, with `--until-empty`, the queue is empty. */
import { hostname } from 'node:os';
import { runWorker, type JobStore } from '@winnow/jobs';
import { exitCodes, InterruptedError, UsageError } from '../../errors/errors.js';
import { LineFigures } from '../batch/figures.js';
import { withLineServer, type LineModels, type LineServer, type NamedModel } from '../batch/line-server.js';
import { openQueue, queueOf, withoutPassword } from '../queue/open-queue.js';
import type { CommandContext } from '../command-host.js';
import type { WorkerFlags } from './command.js';
import { depthOf, progressLine, WorkerReport } from './worker-report.js';

/** Lease of a running line: after a crash, lines that were running wait this long before another worker runs them. */
const leaseMs = 10_000;
/** Polling interval while there are no lines. */
const pollMs = 250;

export async function runWorkerCommand(
  names: readonly string[],
  flags: WorkerFlags,
  context: CommandContext,
): Promise<void> {
  const models = modelsOf(names, flags);
  const url = queueOf(flags, context.io);
  if (url === undefined)
    throw new UsageError('--queue: expected the URL of a queue, here or in WINNOW_QUEUE, got none');
  const store = await openQueue(url);
  try {
    await withLineServer(models, flags, context, (lines) => work({ store, url }, lines, flags, context));
  } finally {
    await store.close();
  }
}

function modelsOf(names: readonly string[], flags: WorkerFlags): LineModels {
  const { modelId = [], embeddingModel = [], embeddingModelId = [] } = flags;
  const { reranker = [], rerankerId = [] } = flags;
  const isDemo = [names, embeddingModel, reranker].every(({ length }) => length === 0);
  return {
    models: named('--model-id', isDemo ? [undefined] : names, modelId),
    embeddingModels: named('--embedding-model-id', embeddingModel, embeddingModelId),
    rerankers: named('--reranker-id', reranker, rerankerId),
  };
}

function named<N extends string | undefined>(
  flagName: string,
  models: readonly N[],
  ids: readonly string[],
): NamedModel<N>[] {
  if (ids.length > models.length) {
    throw new UsageError(`${flagName}: expected at most ${models.length}, one per model, got ${ids.length}`);
  }
  return models.map((model, index) => ({ model, id: ids[index] }));
}

/** @throws {InterruptedError} when running lines were given back; errors of the store */
async function work(
  { store, url }: { readonly store: JobStore; readonly url: string },
  lines: LineServer,
  flags: WorkerFlags,
  context: CommandContext,
): Promise<void> {
  const { out, warn } = context;
  const figures = new LineFigures();
  // the server is loaded by now
  const { workerJobs } = await import('./worker-jobs.js');
  const { pools, handler } = workerJobs(lines, flags, figures, context);
  const queues = new Set(pools.flatMap((pool) => pool.queues));
  const numLines = lines.pools.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const print = (fields: object): Promise<void> =>
    flags.json === true ? out.write(`${JSON.stringify(fields)}\n`) : Promise.resolve();
  const { untilEmpty = false } = flags;
  const report = new WorkerReport(figures);
  const ending = new WorkerEnding(context);
  const reports = setInterval(() => void ending.guard(show()), flags.reportEvery * 1000);
  const show = async (): Promise<void> => {
    const progress = report.next(await depthOf(store, queues));
    if (progress === undefined) return;
    warn(progressLine(progress));
    await print({ event: 'progress', ...progress });
  };
  const ofLines = lines.pools.flatMap((pool) => pool.queues);
  warn(`answering lines of ${ofLines.join(', ')} in ${withoutPassword(url)}, ${numLines} at once`);
  await print({ event: 'start', queues: ofLines, maxLines: numLines });
  try {
    await runWorker(store, {
      name: `${hostname()}-${process.pid}`,
      concurrency: pools,
      leaseMs,
      pollMs,
      handler,
      drain: ending.drain,
      signal: ending.signal,
      onEnd: (_job, outcome) => {
        if (outcome === 'failed') report.numFailed++;
      },
      ...(untilEmpty ? { isDone: () => isEmpty(store, queues) } : {}),
    });
  } finally {
    clearInterval(reports);
    ending.release();
  }
  const { numFailed: failed } = report;
  warn(`${figures.summary()}${failed === 0 ? '' : `, ${failed} failed`}`);
  await print({ event: 'end', answered: figures.numAnswered, failed, seconds: figures.seconds(), ...figures.tokens() });
  ending.throwIfStopped();
}

async function isEmpty(store: JobStore, queues: ReadonlySet<string>): Promise<boolean> {
  const { waiting, running } = await depthOf(store, queues);
  return waiting + running === 0;
}

/** SIGTERM and Ctrl-C: the first drains, the second gives running lines back, the third exits the process. */
class WorkerEnding {
  readonly #drain = new AbortController();
  readonly #stop = new AbortController();
  readonly #unsubscribe: readonly (() => void)[];
  #failure: { readonly error: unknown } | undefined;

  constructor({ io, warn, releaseInterrupts }: CommandContext) {
    releaseInterrupts();
    const onSignal = (): void => {
      if (this.#stop.signal.aborted) io.exitNow(exitCodes.interrupted);
      else if (this.#drain.signal.aborted) this.#stop.abort();
      else {
        this.#drain.abort();
        warn('draining: running lines finish; the second signal gives them back');
      }
    };
    this.#unsubscribe = [io.onInterrupt(onSignal), io.onTerminate(onSignal)];
  }

  get drain(): AbortSignal {
    return this.#drain.signal;
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Stops the worker when work beside it fails. */
  async guard(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#failure ??= { error };
      this.#stop.abort();
    }
  }

  release(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
  }

  /** @throws {InterruptedError} when running lines were given back; what work beside the worker threw */
  throwIfStopped(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
    if (this.#stop.signal.aborted) throw new InterruptedError('interrupted; the lines that ran are back in the queue');
  }
}
