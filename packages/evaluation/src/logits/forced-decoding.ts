/** Forced decoding: runs the same tokens through two models in lockstep, in bounded memory. */
import type { Model } from '@winnow/engine';
import type { Phase } from '../configuration.js';
import { DivergenceCollector, type DivergenceReport } from './divergence.js';
import { checkOptions } from '@winnow/tensor';

/** Maximum bytes of base rows cached for further tested models; beyond that, the base runs again for each of them. */
export const maxBaseBytes: number = 256 * 1024 * 1024;

export interface ForcedOptions {
  readonly tokens: Int32Array;
  /** The phase in which the tested run computes the tokens. Default: `prefill`. */
  readonly phase?: Phase | undefined;
  readonly numBuckets?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Log-probabilities of the base after each token except the last, in f32. */
export interface BaseRows {
  /**
   * Calls `take` with each row in order and awaits it. Row buffers may be reused afterwards.
   * @param signal aborts a run in progress
   */
  forEach(take: (position: number, row: Float32Array) => Promise<void>, signal: AbortSignal): Promise<void>;
}

/** Positions that have a next token. */
function positionsOf(tokens: Int32Array): number[] {
  return Array.from({ length: Math.max(0, tokens.length - 1) }, (_, position) => position);
}

/** Caches the rows if they fit into `maxBytes`; otherwise recomputes them each time. */
export async function createBaseRows(
  model: Model,
  tokens: Int32Array,
  options: { readonly signal?: AbortSignal | undefined; readonly maxBytes?: number } = {},
): Promise<BaseRows> {
  checkOptions(options, { signal: true, maxBytes: true });
  const { signal, maxBytes = maxBaseBytes } = options;
  const positions = positionsOf(tokens);
  const run = (onRow: (position: number, row: Float32Array) => void | Promise<void>, abort?: AbortSignal) =>
    model.logprobs(tokens, { positions, onRow, ...(abort === undefined ? {} : { signal: abort }) });
  if (positions.length * model.config.vocabSize * 4 > maxBytes) {
    return {
      async forEach(take, abort): Promise<void> {
        await run(take, abort);
      },
    };
  }
  const rows: Float32Array[] = [];
  await run((_position, row) => void rows.push(row), signal);
  return {
    async forEach(take): Promise<void> {
      for (const [index, row] of rows.entries()) await take(positions[index], row);
    },
  };
}

/**
 * Runs the tokens through the tested model and compares each row with the base's.
 * @throws the error of whichever run fails first
 */
export async function compareForced(base: BaseRows, tested: Model, options: ForcedOptions): Promise<DivergenceReport> {
  const { tokens, phase = 'prefill', numBuckets, signal } = options;
  const collector = new DivergenceCollector();
  const meeting = new Meeting();
  const stop = new AbortController();
  const abort = signal === undefined ? stop.signal : AbortSignal.any([signal, stop.signal]);
  const fail = (error: unknown): never => {
    meeting.fail(error);
    stop.abort(error);
    throw error;
  };
  const baseRun = base.forEach((_position, row) => meeting.give(row), abort).catch(fail);
  const testedRun = tested
    .logprobs(tokens, {
      positions: positionsOf(tokens),
      phase,
      signal: abort,
      async onRow(position, row) {
        const baseRow = await meeting.take();
        collector.add(position, baseRow, row, tokens[position + 1]);
        meeting.done();
      },
    })
    .catch(fail);
  const outcomes = await Promise.allSettled([baseRun, testedRun]);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  return collector.report(numBuckets);
}

/** A rendezvous of two runs at every row, so that only one row of each is in memory. */
class Meeting {
  #given = Promise.withResolvers<Float32Array>();
  #used = Promise.withResolvers<void>();

  /** Resolves when the row has been consumed. */
  give(row: Float32Array): Promise<void> {
    this.#given.resolve(row);
    return this.#used.promise;
  }

  take(): Promise<Float32Array> {
    return this.#given.promise;
  }

  done(): void {
    const { resolve } = this.#used;
    this.#given = Promise.withResolvers();
    this.#used = Promise.withResolvers();
    resolve();
  }

  /** Releases all waiters. */
  fail(error: unknown): void {
    for (const { promise, reject } of [this.#given, this.#used]) {
      promise.catch(() => undefined);
      reject(error);
    }
  }
}
