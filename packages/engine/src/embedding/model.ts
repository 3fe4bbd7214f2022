/** The public face of a loaded model that embeds. */
import type { RecordProfile, Fallback, Executable } from '@winnow/ops';
import type { DecoderConfig, Pooling } from '@winnow/models';
import { ArgumentError, ReleasedError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { EmbeddingPlan } from './plan.js';
import { namedPrompt, type EmbeddingSettings } from './settings.js';
import { createEmbeddingStep } from './step.js';
import { encodeInput, fitText, frameOf, type FittedText, type EmbeddingInput, type TextOverflow } from './text.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import { createFeedForwardAccess, readFeedForward, type FeedForwardParts } from '../sparsity/feed-forward-trace.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import type { FeedForwardAccess } from '../sparsity/feed-forward.js';

export interface EmbeddingProgress {
  readonly embeddedTexts: number;
  readonly totalTexts: number;
  readonly embeddedTokens: number;
}

export interface EmbedOptions {
  /** Whether vectors get length 1. Default true, unless the model is made for dot products of vectors as they are. */
  readonly normalise?: boolean;
  /** Default `error`. */
  readonly overflow?: TextOverflow;
  /** Only so many of the first dimensions, of Matryoshka models. Default: what the model says, else all. */
  readonly dimensions?: number;
  /** Put before each text that is not token ids. Default: the model's default prompt, which few have. */
  readonly prompt?: string;
  /** The same by its name among the model's `prompts`. */
  readonly promptName?: string;
  readonly signal?: AbortSignal;
  /** Called after every step. */
  readonly onProgress?: (progress: EmbeddingProgress) => void;
}

/** The vector of a text, and what became of the text. */
export interface TextEmbedding {
  readonly vector: Float32Array;
  /** Tokens that were computed, special ones included. */
  readonly numTokens: number;
  /** Parts that the text was embedded in. */
  readonly numChunks: number;
  /** Tokens that were left out: more than 0 only with `truncate`. */
  readonly numDroppedTokens: number;
}

/** A model that turns texts into vectors. */
export interface EmbeddingModel {
  readonly name: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly pooling: Pooling;
  /** Values of a vector. */
  readonly dimensions: number;
  /** Dimensions that vectors may be cut to: those listed, or any. */
  readonly matryoshkaDimensions: readonly number[] | 'any' | 'none';
  /** Texts to put before others by their purpose, such as `query` and `document`. */
  readonly prompts: Readonly<Record<string, string>>;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  /** What the user should know of how the model was loaded. */
  readonly notices: readonly string[];
  /**
   * A vector for each text, in their order; the order has no influence. Calls at the same time take turns.
   * @throws {CapacityError} for a text of more than `contextSize` tokens, unless `overflow` says what to do
   * @throws {ArgumentError} for a text without any token, ids outside the vocabulary, and dimensions the model does not have
   * @throws the signal's reason when aborted
   */
  embed(texts: readonly EmbeddingInput[], options?: EmbedOptions): Promise<Float32Array[]>;
  /** The same with token counts. */
  embedTexts(texts: readonly EmbeddingInput[], options?: EmbedOptions): Promise<TextEmbedding[]>;
  /** Tokens of a text, special ones included. @throws {ArgumentError} as `embed` */
  encodeText(text: EmbeddingInput, options?: Pick<EmbedOptions, 'prompt' | 'promptName'>): Int32Array;
  /** What the FFNs see and are, when loaded with `traceFeedForward`. */
  readonly feedForward: FeedForwardAccess | undefined;
  /** What FFNs skipped and read since loading; `undefined` when they do neither. */
  feedForwardMetrics(): FeedForwardMetrics | undefined;
  /** Per op, when loaded with `profile`. */
  profile(): readonly RecordProfile[];
  /** Frees everything after the step that is running; calls in progress end with `ReleasedError`. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export type TracedFeedForward = Omit<FeedForwardParts, 'trace' | 'exclusive'>;

export interface EmbeddingModelParts {
  readonly name: string;
  readonly backend: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly pooling: Pooling;
  readonly settings: EmbeddingSettings;
  readonly plan: EmbeddingPlan;
  readonly executable: Executable;
  readonly notices: readonly string[];
  readonly feedForwardMetrics: () => FeedForwardMetrics | undefined;
  /** With `traceFeedForward`. */
  readonly traced: TracedFeedForward | undefined;
  /** Frees weights and scratch, when the program is gone. */
  readonly freeMemory: () => Promise<void>;
}

/** Of a vector that is all zeros the direction is not known; it stays. */
const minNorm = 1e-12;

export function createEmbeddingModel(parts: EmbeddingModelParts): EmbeddingModel {
  const { config, tokenizer, settings, plan, executable, freeMemory, name, backend, pooling, notices } = parts;
  const { hiddenDim, vocabSize } = config;
  const { contextSize, maxTokens, maxTexts } = plan;
  const step = createEmbeddingStep(executable, { maxTokens, maxTexts, hiddenDim });
  const frame = frameOf(tokenizer);
  let disposal: Promise<void> | undefined;
  let queue: Promise<unknown> = Promise.resolve();

  const checkOpen = (): void => {
    if (disposal !== undefined) throw new ReleasedError('model');
  };

  /** One task after the other, whether or not the one before succeeded. */
  function inTurn<T>(task: () => Promise<T>): Promise<T> {
    const result = queue.then(task);
    queue = result.catch(() => undefined);
    return result;
  }

  function promptOf({ prompt, promptName }: Pick<EmbedOptions, 'prompt' | 'promptName'>): string {
    if (prompt !== undefined && promptName !== undefined) {
      throw new ArgumentError({ argument: 'promptName', expected: 'nothing beside a prompt', actual: promptName });
    }
    const chosen =
      promptName === undefined ? (prompt ?? settings.defaultPrompt) : namedPrompt(settings.prompts, promptName);
    if (chosen === '' || !settings.skipsPrompt) return chosen;
    const expected = 'none: the pooling of this model leaves the tokens of a prompt out, which is not supported';
    throw new ArgumentError({ argument: 'prompt', expected, actual: JSON.stringify(chosen) });
  }

  /** @param argument what to call the input in messages */
  function encode(input: EmbeddingInput, prompt: string, argument: string): Int32Array {
    const encodeText = (text: string): Int32Array =>
      tokenizer.encode(settings.isLowerCased ? (prompt + text).toLowerCase() : prompt + text);
    return encodeInput(input, argument, encodeText, vocabSize);
  }

  function dimensionsOf(asked: number | undefined): number {
    const { matryoshkaDimensions: known, defaultDimensions } = settings;
    if (asked === undefined) return Math.min(defaultDimensions ?? hiddenDim, hiddenDim);
    const fits = Number.isSafeInteger(asked) && asked > 0 && asked <= hiddenDim;
    const isKnown = known === 'any' || (known !== 'none' && known.includes(asked));
    if (fits && (isKnown || asked === hiddenDim || asked === defaultDimensions)) return asked;
    let expected = `an integer from 1 to ${hiddenDim}`;
    if (known === 'none') expected = `${hiddenDim}, since the model does not say that its vectors may be cut`;
    else if (known !== 'any') expected = [...known, hiddenDim].join(' | ');
    throw new ArgumentError({ argument: 'dimensions', expected, actual: String(asked) });
  }

  async function embedTexts(inputs: readonly EmbeddingInput[], options: EmbedOptions = {}): Promise<TextEmbedding[]> {
    checkOpen();
    const { overflow = 'error', normalise = settings.normalises, signal, onProgress } = options;
    checkOverflow(overflow);
    const dimensions = dimensionsOf(options.dimensions);
    const prompt = promptOf(options);
    signal?.throwIfAborted();
    return inTurn(async () => {
      // all of them first, so that a text that is refused costs nothing
      const texts = inputs.map((input, index): FittedText => {
        const argument = `texts[${index}]`;
        return fitText(encode(input, prompt, argument), argument, contextSize, overflow, frame);
      });
      const results = texts.map((text) => ({ ...text, vector: new Float64Array(hiddenDim), numTokens: 0, numDone: 0 }));
      let embeddedTexts = 0;
      let embeddedTokens = 0;
      const members: { readonly result: (typeof results)[number]; readonly numTokens: number }[] = [];

      async function runStep(): Promise<void> {
        checkOpen();
        signal?.throwIfAborted();
        const vectors = await step.run(signal);
        members.forEach(({ result, numTokens }, row) => {
          for (let i = 0; i < hiddenDim; i++) {
            (result.vector[i] as number) += numTokens * (vectors[row * hiddenDim + i] as number);
          }
          result.numTokens += numTokens;
          result.numDone++;
          embeddedTokens += numTokens;
          if (result.numDone === result.chunks.length) embeddedTexts++;
        });
        members.length = 0;
        onProgress?.({ embeddedTexts, totalTexts: texts.length, embeddedTokens });
      }

      try {
        for (const result of results) {
          for (const ids of result.chunks) {
            if (!step.hasRoom(ids.length)) await runStep();
            step.add(ids);
            members.push({ result, numTokens: ids.length });
          }
        }
        if (members.length > 0) await runStep();
      } finally {
        step.clear();
      }
      return results.map(({ vector, numTokens, chunks, numDroppedTokens }) => ({
        vector: finished(vector, numTokens, dimensions, normalise),
        numTokens,
        numChunks: chunks.length,
        numDroppedTokens,
      }));
    });
  }

  const { traced } = parts;
  const feedForward =
    traced &&
    createFeedForwardAccess({
      ...traced,
      exclusive: inTurn,
      trace: (tokens, onLayer, { signal } = {}) =>
        inTurn(async () => {
          checkOpen();
          const ids = Int32Array.from(tokens);
          if (ids.length === 0 || ids.length > contextSize) {
            const expected = `1 to ${contextSize} tokens`;
            throw new ArgumentError({ argument: 'tokens', expected, actual: `${ids.length} tokens` });
          }
          step.add(ids);
          try {
            await step.run(signal);
          } finally {
            step.clear();
          }
          const read = (output: string, target: Float32Array | Int32Array): Promise<void> =>
            executable.read(output, target);
          await readFeedForward(traced.layers, read, { begin: 0, numTokens: ids.length }, onLayer);
        }),
    });

  /** Every caller waits for the end of the one disposal. */
  function dispose(): Promise<void> {
    disposal ??= inTurn(() => executable.dispose()).then(freeMemory);
    return disposal;
  }

  return {
    name,
    backend,
    config,
    tokenizer,
    pooling,
    dimensions: dimensionsOf(undefined),
    matryoshkaDimensions: settings.matryoshkaDimensions,
    prompts: settings.prompts,
    contextSize,
    plan: plan.memory,
    fallbacks: executable.fallbacks,
    notices,
    feedForward,
    feedForwardMetrics: parts.feedForwardMetrics,
    embedTexts,
    embed: async (texts, options) => (await embedTexts(texts, options)).map(({ vector }) => vector),
    encodeText: (text, options = {}) => encode(text, promptOf(options), 'text'),
    profile: () => executable.profile(),
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}

/** The mean of what was summed, cut, and of length 1 if wanted. */
function finished(sum: Float64Array, weight: number, dimensions: number, normalise: boolean): Float32Array {
  let squares = 0;
  for (let i = 0; i < dimensions; i++) squares += ((sum[i] as number) / weight) ** 2;
  const divisor = normalise ? weight * Math.max(Math.sqrt(squares), minNorm) : weight;
  return Float32Array.from({ length: dimensions }, (_, i) => (sum[i] as number) / divisor);
}

function checkOverflow(overflow: TextOverflow): void {
  const known: readonly TextOverflow[] = ['error', 'truncate', 'chunk-average'];
  if (known.includes(overflow)) return;
  throw new ArgumentError({ argument: 'overflow', expected: known.join(' | '), actual: String(overflow) });
}
