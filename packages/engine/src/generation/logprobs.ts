/** Log-probabilities of the whole vocabulary at chosen positions of a text. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { readTraces, type AttentionTrace } from '../plan/attention-trace.js';
import type { LoadedModel } from './loaded-model.js';
import { Sequence } from '../runtime/sequence.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { FeedForwardTrace, FeedForwardLayer } from '../sparsity/feed-forward.js';
import { readFeedForward } from '../sparsity/feed-forward-trace.js';

export interface LogitsOptions {
  /** Indices into the tokens. Default: the last one. */
  readonly positions?: readonly number[];
  /**
   * As what the tokens are computed, where prompts and generated tokens attend in different ways: `decode` takes one token
   * per step. Default `prefill`.
   */
  readonly phase?: 'prefill' | 'decode';
  /** Most tokens per step, at most the model's `batchSize`. Default: that. */
  readonly batchSize?: number;
  /**
   * Takes each row as it is computed, in ascending order of positions, and may make the run wait: nothing is kept, and the
   * result is empty.
   */
  readonly onRow?: (position: number, logprobs: Float32Array) => void | Promise<void>;
  /** Takes what the layers attend with, step by step. Needs `traceAttention`, and that no other session runs. */
  readonly onAttention?: (trace: AttentionTrace) => void | Promise<void>;
  readonly signal?: AbortSignal;
}

/** Reads further outputs of a step that was this sequence's own. */
export type ReadStep = (
  read: ReadOutput,
  step: { readonly begin: number; readonly numTokens: number },
) => Promise<void>;

/** Runs the tokens in a sequence of its own. Results in the order of `positions`. */
export async function computeLogprobs(
  { config, contextSize, pool, scheduler, tracedLayers }: LoadedModel,
  tokens: Int32Array,
  options: LogitsOptions & { readonly onStep?: ReadStep },
): Promise<Float32Array[]> {
  const positions = options.positions ?? [tokens.length - 1];
  for (const position of positions) {
    if (!Number.isSafeInteger(position) || position < 0 || position >= tokens.length) {
      throw new ArgumentError({
        argument: 'positions',
        expected: `indices from 0 to ${tokens.length - 1}`,
        actual: String(position),
      });
    }
  }
  const phase = options.phase ?? 'prefill';
  const batchSize = phase === 'decode' ? 1 : (options.batchSize ?? scheduler.maxChunk);
  if (!Number.isSafeInteger(batchSize) || batchSize < 1) {
    throw new ArgumentError({ argument: 'batchSize', expected: 'a positive integer', actual: String(batchSize) });
  }
  if (tokens.length > contextSize) {
    throw new CapacityError({ resource: 'context', needed: tokens.length, available: contextSize, unit: 'tokens' });
  }
  const { onRow, onAttention, onStep } = options;
  const numSharedBefore = scheduler.statistics().numSharedSteps;
  const wanted = new Set(positions);
  const results = new Map<number, Float32Array>();
  const sequence = Sequence.create(pool);
  scheduler.enter(sequence);
  try {
    for (let begin = 0; begin < tokens.length;) {
      const step = nextStep(
        begin,
        Math.min(tokens.length, begin + Math.min(batchSize, scheduler.maxChunk)),
        wanted,
        scheduler.maxOutputRows,
      );
      const { count, outputRows } = step;
      await scheduler.run({
        sequence,
        phase,
        tokens,
        offset: begin,
        count,
        outputRows,
        signal: options.signal,
        async read(read) {
          if (onAttention !== undefined) {
            checkAlone(scheduler.statistics().numSharedSteps - numSharedBefore);
            await readTraces(tracedLayers, read, { begin, numTokens: count }, onAttention);
          }
          if (onStep !== undefined) {
            checkAlone(scheduler.statistics().numSharedSteps - numSharedBefore);
            await onStep(read, { begin, numTokens: count });
          }
          if (outputRows.length === 0) return;
          const logits = new Float32Array(outputRows.length * config.vocabSize);
          const logSumExp = new Float32Array(outputRows.length);
          await read('logits', logits);
          await read('logSumExp', logSumExp);
          for (const [row, token] of outputRows.entries()) {
            const shift = logSumExp[row] as number;
            const logprobs = logits.slice(row * config.vocabSize, (row + 1) * config.vocabSize);
            for (let id = 0; id < logprobs.length; id++) logprobs[id] = (logprobs[id] as number) - shift;
            if (onRow === undefined) results.set(begin + token, logprobs);
            else await onRow(begin + token, logprobs);
          }
        },
      });
      begin += count;
    }
    return onRow !== undefined ? [] : positions.map((position) => results.get(position) as Float32Array);
  } finally {
    scheduler.leave(sequence);
    sequence.free();
  }
}

/** Traces are rows of the whole step, so that the step has to be this sequence's own. */
function checkAlone(numSharedSteps: number): void {
  if (numSharedSteps === 0) return;
  const [expected, actual] = ['a model that nobody else uses', 'steps shared with other sessions'];
  throw new ArgumentError({ argument: 'trace', expected, actual });
}

/** The longest step from `begin` to at most `end` that wants no more output rows than there are. */
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

/** Runs a text and shows what the FFNs of a model that generates see. */
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
    onStep: (read, step) => readFeedForward(layers, read, step, onLayer),
  });
}
