/** Log-probabilities of the whole vocabulary at chosen positions of a text. */
import { ArgumentError, CapacityError, NonFiniteError, type OptionNames } from '@winnow/tensor';
import { readTraces, type AttentionTrace } from '../plan/attention-trace.js';
import type { LoadedModel } from './loaded-model.js';
import type { RowReader } from '../runtime/batch.js';
import { Sequence } from '../runtime/sequence.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import { StepReports } from '../memory/step-reports.js';
import type { FeedForwardTrace, FeedForwardLayer } from '../sparsity/feed-forward.js';
import { readFeedForward } from '../sparsity/feed-forward-trace.js';

export interface LogitsOptions {
  /** Indices into the tokens. Default: the last one. */
  readonly positions?: readonly number[];
  /**
   * The phase whose attention policy computes the tokens; `decode` takes one token per step. Default `prefill`.
   */
  readonly phase?: 'prefill' | 'decode';
  /**
   * With `phase: 'decode'`, index of the first token of the decode phase: tokens before it are a prompt, computed in
   * prefill. Default 0.
   */
  readonly decodeFrom?: number;
  /** Maximum number of tokens per step, at most the model's `batchSize`, which is the default. */
  readonly batchSize?: number;
  /**
   * Receives each row as it is computed, in ascending order of positions. The run waits for its promise. No rows are
   * kept, and the result is empty.
   */
  readonly onRow?: (position: number, logprobs: Float32Array) => void | Promise<void>;
  /**
   * Receives the attention inputs of each layer, step by step. Needs `trace.attention`, and no other running session.
   */
  readonly onAttention?: (trace: AttentionTrace) => void | Promise<void>;
  /** A session of the same salt reuses the pages of these tokens, see `createSession`. Default: one without a salt. */
  readonly cacheSalt?: string;
  readonly signal?: AbortSignal;
}

export const logitsOptionNames: OptionNames<LogitsOptions> = {
  positions: true,
  phase: true,
  decodeFrom: true,
  batchSize: true,
  onRow: true,
  onAttention: true,
  cacheSalt: true,
  signal: true,
};

/** A trace of layers: the traced layers and the receiver of their values. */
interface LayerTrace {
  readonly layers: readonly FeedForwardLayer[];
  readonly onLayer: (trace: FeedForwardTrace) => void | Promise<void>;
}

interface RunOptions extends LogitsOptions {
  /** Receives the FFN inputs of steps that this sequence has to itself. */
  readonly feedForward?: LayerTrace;
}

/** Runs the tokens in a new sequence. Results in the order of `positions`. */
export async function computeLogprobs(
  model: LoadedModel,
  tokens: Int32Array,
  options: RunOptions,
): Promise<Float32Array[]> {
  const { scheduler } = model;
  const positions = checkPositions(options.positions ?? [tokens.length - 1], tokens.length);
  const maxStep = Math.min(checkBatchSize(options.batchSize, scheduler.chunks.maxTokens), scheduler.chunks.maxTokens);
  const numPrefilled = checkDecodeFrom(options, tokens.length);
  if (tokens.length > model.contextSize) {
    const [needed, available] = [tokens.length, model.contextSize];
    throw new CapacityError({ resource: 'context', needed, available, unit: 'tokens' });
  }
  const wanted = new Set(positions);
  const reader = new LogprobReader(model, options);
  const sequence = Sequence.create(model.pool, options.cacheSalt);
  scheduler.enter(sequence);
  try {
    sequence.rotateFor(numPrefilled);
    for (let begin = 0; begin < tokens.length;) {
      const offset = begin;
      const phase = begin < numPrefilled ? 'prefill' : 'decode';
      const [limit, max] = phase === 'decode' ? [tokens.length, 1] : [numPrefilled, maxStep];
      const end = scheduler.chunks.endOf(tokens, begin, limit, max);
      const { count, outputRows } = nextStep(begin, end, wanted, scheduler.maxOutputRows);
      // the rows of an image stay together: the step is repeated for further outputs
      const isKept = begin + count === end || !scheduler.chunks.isImage(tokens[begin] as number);
      const numTokens = isKept ? count : end - begin;
      const read = (rows: RowReader): Promise<number> =>
        reader
          .read(rows(0), offset, numTokens, outputRows)
          .catch((error: unknown) => model.nonFinite.fail(error, sequence.view.blocks))
          .then(() => (isKept ? numTokens : 0));
      sequence.grow(numTokens);
      await scheduler.run({
        sequence,
        phase,
        tokens,
        offset,
        count: numTokens,
        outputRows,
        signal: options.signal,
        read,
      });
      if (isKept) begin += count;
      else for (const row of outputRows) wanted.delete(begin + row);
    }
    return options.onRow === undefined ? positions.map((position) => reader.rows.get(position) as Float32Array) : [];
  } finally {
    scheduler.leave(sequence);
    sequence.free();
  }
}

function checkPositions(positions: readonly number[], numTokens: number): readonly number[] {
  const wrong = positions.find((position) => !Number.isSafeInteger(position) || position < 0 || position >= numTokens);
  if (wrong === undefined) return positions;
  const expected = `indices from 0 to ${numTokens - 1}`;
  throw new ArgumentError({ argument: 'positions', expected, actual: String(wrong) });
}

/** The number of tokens that prefill computes. */
function checkDecodeFrom({ phase = 'prefill', decodeFrom }: LogitsOptions, numTokens: number): number {
  if (phase === 'prefill' && decodeFrom === undefined) return numTokens;
  const from = decodeFrom ?? 0;
  if (phase === 'decode' && Number.isSafeInteger(from) && from >= 0 && from <= numTokens) return from;
  const expected = phase === 'decode' ? `an index from 0 to ${numTokens}` : "nothing without phase: 'decode'";
  throw new ArgumentError({ argument: 'decodeFrom', expected, actual: String(decodeFrom) });
}

function checkBatchSize(batchSize: number | undefined, fallback: number): number {
  const value = batchSize ?? fallback;
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw new ArgumentError({ argument: 'batchSize', expected: 'a positive integer', actual: String(value) });
}

/** Reads the outputs of each step: traces, then log-probabilities. */
class LogprobReader {
  /** By position, unless `onRow` takes them. */
  readonly rows = new Map<number, Float32Array>();
  readonly #model: LoadedModel;
  readonly #options: RunOptions;
  readonly #numSharedBefore: number;
  readonly #reports = new StepReports();

  constructor(model: LoadedModel, options: RunOptions) {
    this.#model = model;
    this.#options = options;
    this.#numSharedBefore = model.scheduler.statistics().numSharedSteps;
  }

  async read(output: ReadOutput, begin: number, numTokens: number, outputRows: readonly number[]): Promise<void> {
    const { onAttention, feedForward } = this.#options;
    const reports = this.#reports;
    reports.begin(begin);
    if (onAttention !== undefined || feedForward !== undefined) {
      checkAlone(this.#model.scheduler.statistics().numSharedSteps - this.#numSharedBefore);
    }
    const step = { begin, numTokens, reports };
    if (onAttention !== undefined) await readTraces(this.#model.tracedLayers, output, step, onAttention);
    if (feedForward !== undefined) await readFeedForward(feedForward.layers, output, step, feedForward.onLayer);
    if (outputRows.length > 0) await this.#readRows(output, begin, outputRows);
  }

  async #readRows(output: ReadOutput, begin: number, outputRows: readonly number[]): Promise<void> {
    const { vocabSize } = this.#model.config;
    const { onRow } = this.#options;
    const logits = new Float32Array(outputRows.length * vocabSize);
    const logSumExp = new Float32Array(outputRows.length);
    await output('logits', logits);
    await output('logSumExp', logSumExp);
    for (const [row, token] of outputRows.entries()) {
      const shift = logSumExp[row] as number;
      if (!Number.isFinite(shift)) throw new NonFiniteError({ result: 'log-probabilities', value: shift });
      const logprobs = logits.slice(row * vocabSize, (row + 1) * vocabSize);
      for (let id = 0; id < logprobs.length; id++) logprobs[id] = (logprobs[id] as number) - shift;
      if (onRow === undefined) this.rows.set(begin + token, logprobs);
      else if (this.#reports.take()) await onRow(begin + token, logprobs);
    }
  }
}

/** Traces have the rows of the whole step, so no other sequence may share it. */
function checkAlone(numSharedSteps: number): void {
  if (numSharedSteps === 0) return;
  const [expected, actual] = ['no other running session', 'steps shared with other sessions'];
  throw new ArgumentError({ argument: 'trace', expected, actual });
}

/** The longest step from `begin` to at most `end` whose output rows fit. */
function nextStep(
  begin: number,
  end: number,
  wanted: ReadonlySet<number>,
  maxOutputRows: number,
): { count: number; outputRows: number[] } {
  const outputRows: number[] = [];
  let count = 0;
  for (; begin + count < end; count++) {
    if (!wanted.has(begin + count)) continue;
    if (outputRows.length === maxOutputRows) break;
    outputRows.push(count);
  }
  return { count, outputRows };
}

/** Runs a text and traces the FFN inputs of a decoder. */
export async function traceFeedForward(
  loaded: LoadedModel,
  layers: readonly FeedForwardLayer[],
  tokens: ArrayLike<number>,
  onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
  options: { readonly signal?: AbortSignal },
): Promise<void> {
  const ids = Int32Array.from(tokens);
  const { vocabSize } = loaded.config;
  for (const id of ids) {
    if (id >= 0 && id < vocabSize) continue;
    throw new ArgumentError({ argument: 'tokens', expected: `ids below ${vocabSize}`, actual: String(id) });
  }
  await computeLogprobs(loaded, ids, {
    ...options,
    onRow: () => undefined,
    feedForward: { layers, onLayer },
  });
}
