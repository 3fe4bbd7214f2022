/** The public types of models that embed. */
import type { DecoderConfig, Pooling } from '@winnow/models';
import type { Backend, Fallback, RecordProfile } from '@winnow/ops';
import type { Tokenizer } from '@winnow/tokenizers';
import type { WeightOptions } from '../load/adapt-weights.js';
import type { FeedForwardAccess } from '../sparsity/feed-forward.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import type { SparseLoadOptions } from '../sparsity/options.js';
import type { LoadProgress, OpenOptions } from '../types.js';

export interface EmbeddingLoadOptions extends OpenOptions, WeightOptions, SparseLoadOptions {
  /** Where the model runs. Default: a WebAssembly backend of its own, disposed together with the model. */
  readonly backend?: Backend;
  /** Threads of the default backend. Default: as many as the machine runs at a time. */
  readonly numThreads?: number;
  /** How the default backend takes the activations of products with block-quantised weights. Default `'int8'`. */
  readonly activations?: 'f32' | 'int8';
  /**
   * Most tokens of one text, special ones included. Default: what the model recommends (`max_seq_length`, or its context), at
   * most 2048.
   */
  readonly contextSize?: number;
  /** Most tokens of all texts of a step together. Default, and at least: `contextSize`; the default is at least 512. */
  readonly batchSize?: number;
  /** Most texts of a step. Default 64. */
  readonly maxTexts?: number;
  /**
   * How the vectors of a text's tokens become one. Default: what the model says, else `mean` for encoders; models that
   * generate and say nothing need it, usually `last` or `mean`.
   */
  readonly pooling?: Pooling;
  /** The first dimensions of a vector are an embedding by themselves, though the model's files don't say so. */
  readonly isMatryoshka?: boolean;
  /** Most bytes that the memory plan may need, as for models that generate. Default: no limit. */
  readonly memoryLimitBytes?: number;
  /** Whether ops that the backend lacks run on the reference (counted in `fallbacks`) or are an error. */
  readonly onUnsupported?: 'fallback' | 'error';
  /** Let `feedForward` show what the FFNs see, for calibrations, at the cost of some memory. Default false. */
  readonly traceFeedForward?: boolean;
  /** Measure every op. Default false. */
  readonly profile?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** What to do with a text of more tokens than the context. */
export type TextOverflow =
  /** Refuse it with a `CapacityError`. */
  | 'error'
  /** Embed its beginning; special tokens at its end stay. The result says so. */
  | 'truncate'
  /** Embed it in parts of about the same length and average their vectors by their numbers of tokens. */
  | 'chunk-average';

/** Text, or token ids used as they are. */
export type EmbeddingInput = string | ArrayLike<number>;

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
