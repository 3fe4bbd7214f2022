/** The public types of the engine. */
import type { ByteSource } from '@winnow/bytes';
import type { HubFiles } from '@winnow/hub';
import type { Grammar, JsonSchema } from '@winnow/grammar';
import type { JsonValue } from '@winnow/kv-cache';
import type { DecoderConfig } from '@winnow/models';
import type { Backend, Fallback, RecordProfile } from '@winnow/ops';
import type { AttentionSpec } from '@winnow/sparse-attention';
import type { DType } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ChatMessage, ChatTemplate } from './chat/template.js';
import type { FeedForwardAccess } from './sparsity/feed-forward.js';
import type { MemoryPlan } from './plan/memory-plan.js';
import type { ColdFiles } from './memory/cold-files.js';
import type { Eviction } from './plan/key-masses.js';
import type { EngineEvent, ModelMetrics } from './metrics/metrics.js';
import type { SamplingOptions } from './generation/sampling-options.js';
import type { SessionSize } from './sessions/file.js';
import type { WeightOptions } from './load/adapt-weights.js';
import type { SparseLoadOptions } from './sparsity/options.js';
import type { SessionSource, SessionTarget } from './sessions/location.js';
import type { WhenFull } from './runtime/when-full.js';

/**
 * Where a model comes from: the path or URL of a `.gguf` file (any part of a split one) or of a Hugging Face folder
 * (a URL that ends in `/`), with safetensors or ONNX weights, the path of an `.onnx` file of such a folder, an open GGUF file, a Blob, or the files of a folder. Paths need Node. An open file is taken
 * over: it is closed when the model is loaded, and when it cannot be.
 */
export type ModelLocation = string | URL | Blob | ByteSource | HubFiles;

/** What happens while a model loads: bytes of weights so far. */
export interface LoadProgress {
  readonly loadedBytes: number;
  readonly totalBytes: number;
}

/** Clock and randomness of the caller, for tests and replays. */
export interface HostOptions {
  /** Milliseconds of any origin. Default `performance.now`. */
  readonly now?: () => number;
  /** A seed for generations that do not name one. Default: from `crypto`. */
  readonly randomSeed?: () => number;
}

export interface OpenOptions {
  /** Where URLs are fetched with. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal;
}

/** How keys and values are stored. */
export interface KvDTypes {
  readonly keys: DType;
  readonly values: DType;
}

/** Where keys and values are kept, and how much of them. Tokens leave each tier for the next one, oldest first. */
export interface KvTierOptions {
  /** Most bytes of the cache in the backend's memory. Default: what `cacheSize` needs. */
  readonly hotBytes?: number;
  /** Most bytes in memory beside it. Default 0. */
  readonly warmBytes?: number;
  /** Where the rest goes: a folder for temporary files (in browsers of the origin), or what makes files. Default: nowhere. */
  readonly coldPath?: string | URL | ColdFiles;
}

export interface LoadOptions extends OpenOptions, HostOptions, WeightOptions, SparseLoadOptions {
  /** Where the model runs. Default: a WebAssembly backend of its own, disposed together with the model. */
  readonly backend?: Backend;
  /** Threads of the default backend. Default: as many as the machine runs at a time. */
  readonly numThreads?: number;
  /**
   * How the default backend takes the activations of products with block-quantised weights: `'int8'` as 8-bit integers per
   * block of 32, off by at most 1/254 of the block's largest, or `'f32'` exactly, which takes longer. Default `'int8'`.
   */
  readonly activations?: 'f32' | 'int8';
  /** Most tokens of one session, prompt and answer together. Default: what the model was trained for, at most 4096. */
  readonly contextSize?: number;
  /** Sessions that may be open at the same time. Default 8. */
  readonly maxSessions?: number;
  /** Tokens that the caches of all sessions hold together. Default, and at least: `contextSize`. */
  readonly cacheSize?: number;
  /**
   * What a session gets that finds the cache full: `error`, a `CapacityError`; `wait`, room as soon as others end or are
   * disposed. Default `error`.
   */
  readonly whenFull?: WhenFull;
  /** Whether sessions take over blocks of tokens that others have computed. Default true. */
  readonly prefixSharing?: boolean;
  /** Most tokens of a session in one step of prompt processing. Default 64. */
  readonly batchSize?: number;
  /** How keys and values are stored. Default `f32`. */
  readonly kvDType?: DType | KvDTypes;
  /**
   * `hadamard` stores keys rotated, and rotates queries with them: products stay what they are, but keys of 4 bits lose less,
   * because outliers are spread over all channels. Default `none`.
   */
  readonly kvRotation?: 'none' | 'hadamard';
  /**
   * Which tokens `overflow: 'evict'` drops. All but `oldest` measure in each step how much tokens are looked at, for which the
   * products of queries and keys are computed once more; sessions share no prefixes then. They need dense attention, in the
   * backend's memory. Default `oldest`.
   */
  readonly eviction?: Eviction;
  /**
   * Budgets for contexts that the backend's memory does not hold. Attention reads what is elsewhere in pieces, at each
   * step; results are the same within rounding. Default: everything in the backend's memory.
   */
  readonly kv?: KvTierOptions;
  /**
   * How layers attend: an `AttentionSpec` of `@winnow/sparse-attention` or its text form, such as
   * `prefill=subquadratic:window=256;decode=sparq:rank=32,topk=128`. Default `dense`.
   */
  readonly attention?: AttentionSpec | string;
  /**
   * Most bytes that the memory plan may need: weights, cache and scratch together. Where experts, or neurons with `sparse`,
   * do not fit, they stay in the file until they are needed. Default: no limit.
   */
  readonly memoryLimitBytes?: number;
  /** Whether ops that the backend lacks run on the reference (counted in `fallbacks`) or are an error. */
  readonly onUnsupported?: 'fallback' | 'error';
  /** Let `logprobs` show what the layers attend with (`onAttention`), at the cost of some memory. Default false. */
  readonly traceAttention?: boolean;
  /** Let `feedForward` show what the FFNs see, for calibrations, at the cost of some memory. Default false. */
  readonly traceFeedForward?: boolean;
  /** Measure every op. Default false. */
  readonly profile?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Told of evictions, copies and waiting as they happen. */
  readonly onEvent?: (event: EngineEvent) => void;
}

/** What to do when prompt and answer do not fit into the context. */
export type OverflowPolicy =
  /** Refuse prompts that leave no room for a token with a `CapacityError`; end the answer when the context is full. */
  | 'stop'
  /** Refuse both with a `CapacityError`. */
  | 'error'
  /** Go on without the oldest tokens after the first ones, dropped a block at a time. Positions keep growing. */
  | 'slide'
  /**
   * Go on without the oldest tokens after the first ones, or without those that `eviction` names, dropped one at a time: the
   * cache stays full.
   */
  | 'evict'
  /** Drop tokens of the prompt after the first (BOS) one until it fits, then as `stop`. The result says how many. */
  | 'truncate-start'
  /** Keep the first and the last part of the prompt, drop the middle, then as `stop`. The result says how many. */
  | 'truncate-middle';

export interface PromptProgress {
  readonly processedTokens: number;
  readonly totalTokens: number;
}

export interface GenerateOptions extends SamplingOptions {
  /** Most tokens to generate. Default: until the end token or a full context. */
  readonly maxTokens?: number;
  /** Texts that end the generation; they are not part of the output. */
  readonly stop?: readonly string[];
  /** Go on after end-of-text tokens. Default false. */
  readonly ignoreEos?: boolean;
  /** Report the most probable tokens at each step. Default 0. */
  readonly numTopLogprobs?: number;
  /**
   * What the text has to match: GBNF, the grammars of llama.cpp, as text, or a `Grammar` of `@winnow/grammar`. At each step
   * only tokens are chosen that can go on, and an end token only where the text may end. Default: anything.
   */
  readonly grammar?: string | Grammar;
  /** The text has to be JSON that this schema accepts; instead of `grammar`. Keywords that cannot be enforced are refused. */
  readonly jsonSchema?: JsonSchema;
  /** Control tokens whose spelling is part of the text, such as `[TOOL_CALLS]`. Default: none. */
  readonly showTokens?: readonly string[];
  /** Default `stop`. */
  readonly overflow?: OverflowPolicy;
  /**
   * As what the tokens of the prompt are computed, where prompts and generated tokens attend in different ways: `decode`
   * takes one token per step. Default `prefill`.
   */
  readonly promptPhase?: 'prefill' | 'decode';
  readonly signal?: AbortSignal;
  readonly onPromptProgress?: (progress: PromptProgress) => void;
}

/** A prompt: text, token ids used as they are, or a conversation for the model's chat template. */
export type Prompt = string | ArrayLike<number> | readonly ChatMessage[];

export interface TokenLogprob {
  readonly tokenId: number;
  readonly logprob: number;
}

/**
 * One generated token. The end token is not among them, unless it sets free text that was held back as the possible
 * start of a stop text.
 */
export interface GeneratedToken {
  readonly tokenId: number;
  /** The text that became certain with this token: complete characters only, and nothing that may belong to a stop text. */
  readonly text: string;
  /** Natural logarithm of the token's probability before temperature, penalties, cuts and grammars. */
  readonly logprob: number;
  readonly topLogprobs: readonly TokenLogprob[];
}

/**
 * Why a generation ended: the model's end token; a stop text, or a grammar after which nothing can follow; `maxTokens`; a full
 * context. After the last two a constrained text may be unfinished.
 */
export type FinishReason = 'eos' | 'stop' | 'length' | 'context';

/** Times of the engine, without what the caller did between tokens; waiting for other sessions' steps counts. */
export interface GenerationTimings {
  /** Computing the prompt and choosing the first token. */
  readonly promptMs: number;
  /** The steps after it. */
  readonly generateMs: number;
  /** Prompt tokens that were not cached, per second of `promptMs`. */
  readonly promptTokensPerSecond: number;
  /** Steps per second of `generateMs`, each of which gives one token; 0 when there was none. */
  readonly tokensPerSecond: number;
}

export interface GenerationResult {
  readonly text: string;
  readonly tokens: readonly number[];
  /** Tokens of the prompt as it was used. */
  readonly promptTokens: number;
  /** How many of them were in the cache already. */
  readonly cachedTokens: number;
  /** How many tokens of the prompt were left out by the overflow policy. */
  readonly droppedTokens: number;
  /** How many tokens, of the prompt or the answer, the overflow policy took out of the cache on the way. */
  readonly evictedTokens: number;
  readonly finishReason: FinishReason;
  readonly timings: GenerationTimings;
}

/**
 * A generation, which starts when it is first iterated or asked for its result. Each token is produced once: of two
 * loops at the same time, each sees a part. Leaving a loop early ends the generation.
 */
export interface Generation extends AsyncIterable<GeneratedToken> {
  /**
   * Produces what is left and returns the whole; also after or beside a loop, and more than once.
   * @throws the error that ended the generation
   * @throws {ArgumentError} when a loop was left early
   */
  result(): Promise<GenerationResult>;
}

export interface SaveOptions {
  /** Kept in the file for the caller, such as the messages of a conversation. */
  readonly metadata?: JsonValue;
  readonly signal?: AbortSignal;
}

/** One conversation with its own cache. */
export interface Session {
  /** Tokens whose keys and values have been computed and stored, in a new array; some may have been evicted since. */
  readonly tokens: readonly number[];
  /**
   * Generates after a prompt. What the prompt shares with cached tokens, of this session or in whole blocks of others, is
   * not computed again. One generation at a time per session; sessions that generate at the same time share steps.
   * @throws {CapacityError} when the prompt does not fit, unless `overflow` makes it fit
   * @throws the signal's reason when aborted; the session can be used again
   */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /**
   * Goes on where the last generation stands, after its last token: one that reached `maxTokens`, was broken off or
   * restored from a file. Options that are not given are those it had; without a `seed` its draws go on, so that the two
   * parts are what one generation would have been. In the result the first part counts as prompt.
   * @throws {ArgumentError} when no generation has chosen a token
   */
  resume(options?: GenerateOptions): Generation;
  /**
   * A second session that has everything this one has. They share memory until they differ.
   * @throws {CapacityError} when `maxSessions` are open
   * @throws {ArgumentError} while a generation is in progress
   */
  fork(): Session;
  /**
   * Writes tokens, cache, recurrent states and sampler, so that `restoreSession` of the same model with the same cache
   * options goes on token for token. Also in the middle of a generation: between two steps. A file is replaced as a whole or
   * not at all. Format: docs/formats/session.md.
   * @throws {IoError} when writing fails
   */
  save(target: SessionTarget, options?: SaveOptions): Promise<SessionSize>;
  /** What was given to `save` beside the session that was restored; otherwise null. */
  readonly metadata: JsonValue;
  /**
   * Forgets the tokens from `numTokens` on; models with recurrent state may have to forget more.
   * @throws {ArgumentError} while a generation is in progress
   */
  truncate(numTokens: number): void;
  /** Forgets all tokens. @throws {ArgumentError} while a generation is in progress */
  reset(): void;
  /** Gives the cache back. @throws {ArgumentError} while a generation is in progress */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** What one layer attends with in one step: rows of tokens, flat. */
export interface AttentionTrace {
  readonly layer: number;
  /** Index of the first token of the step. */
  readonly begin: number;
  readonly numTokens: number;
  /** `[numTokens, numHeads, headDim]`, rotated, not scaled. */
  readonly q: Float32Array;
  /** The same before rotation; other factors of the rotary embedding are in it. */
  readonly unrotatedQ: Float32Array;
  /** `[numTokens, numKvHeads, headDim]`, rotated. */
  readonly k: Float32Array;
  /** `[numTokens, numKvHeads, headDim]` */
  readonly v: Float32Array;
  /** Factor of `q . k`. */
  readonly scale: number;
  /** Keys that a query may see, itself included; 0 for all. */
  readonly window: number;
  /** Bound of the attention logits; 0 for none. */
  readonly softCap: number;
}

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

/** A loaded model. */
export interface Model {
  readonly name: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  /** How conversations become prompts, if the model says so. */
  readonly chatTemplate: ChatTemplate | undefined;
  /** Settings the model recommends. */
  readonly defaultSampling: SamplingOptions;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  /** How it attends, in the text form of attention policies. */
  readonly attention: string;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  /** What loading did otherwise than asked, such as matrices that could not be quantised: one sentence each. */
  readonly notices: readonly string[];
  /** @throws {CapacityError} when `maxSessions` are open */
  createSession(): Session;
  /**
   * Opens a session that `save` has written.
   * @throws {FormatError} for a damaged file, or one of another model or with other cache options
   * @throws {CapacityError} when `maxSessions` are open or the cache has no room
   * @throws {IoError} when reading fails
   */
  restoreSession(source: SessionSource, options?: { readonly signal?: AbortSignal }): Promise<Session>;
  /** Generates in a session of its own, which counts among `maxSessions` while it runs. */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /** Tokens of a prompt, with BOS and EOS as the model wants them. @throws {ArgumentError} for ids outside the vocabulary */
  encodePrompt(prompt: Prompt): Int32Array;
  /** Log-probabilities of the whole vocabulary after the tokens at the asked positions, `[vocabSize]` each. */
  logprobs(tokens: ArrayLike<number>, options?: LogitsOptions): Promise<Float32Array[]>;
  /** What the FFNs see and are, when loaded with `traceFeedForward`. */
  readonly feedForward: FeedForwardAccess | undefined;
  /** How full the cache is, and what has happened since loading. */
  metrics(): ModelMetrics;
  /** Per op, when loaded with `profile`. */
  profile(): readonly RecordProfile[];
  /** Frees everything after the step that is running; generations in progress end with `ReleasedError`. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
