/** A loaded decoder: opens sessions and computes log-probabilities. */
import type { Tokenizer } from '@winnow/tokenizers';
import type { RecordProfile, Fallback } from '@winnow/ops';
import type { DecoderConfig } from '@winnow/models';
import { ArgumentError, CapacityError, ReleasedError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { ChatTemplate } from '../chat/template.js';
import { encodePrompt, encodePromptSliced, partsOfPrompt, type Prompt } from '../chat/encode-prompt.js';
import type { VisitedKeysMetrics } from '../metrics/visited-keys.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import type { FeedForwardAccess } from '../sparsity/feed-forward.js';
import { computeLogprobs, logitsOptionNames, type LogitsOptions } from '../generation/logprobs.js';
import type { ImageInput } from '../images/image-encoder.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import { runSliced } from '../runtime/compilation.js';
import type { SessionModel } from './file.js';
import { restoreSession } from './restore.js';
import { openSessionSource, type SessionSource } from './location.js';
import {
  generateOptionNames,
  StartedGeneration,
  type GenerateOptions,
  type Generation,
  type GenerationResult,
  type GeneratedToken,
} from '../generation/generation.js';
import {
  ModelSession,
  restoreOptionNames,
  sessionOptionNames,
  type RestoreOptions,
  type Session,
  type SessionOptions,
  type SessionOwner,
  type SessionStart,
} from './session.js';
import type { ModelMetrics } from '../metrics/model-metrics.js';
import type { SamplingOptions } from '../generation/sampling-options.js';

/** A loaded model. */
export interface Model {
  readonly name: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  /** The model's chat template, if it has one. */
  readonly chatTemplate: ChatTemplate | undefined;
  /** Whether prompts may contain images, and the text that stands for one in a prompt without a template. */
  readonly imageToken: string | undefined;
  /** Sampling that the model recommends. */
  readonly defaultSampling: SamplingOptions;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  /** The text form of its attention policy. */
  readonly attention: string;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  /** What differs from the requested options, such as matrices that could not be quantized: one sentence each. */
  readonly notices: readonly string[];
  /** @throws {CapacityError} when `maxSessions` are open */
  createSession(options?: SessionOptions): Session;
  /**
   * Opens a session that `save` wrote.
   * @throws {FormatError} for a damaged file, or one of another model, of another key or with different cache options
   * @throws {CapacityError} when `maxSessions` are open or the cache has no room
   * @throws {IoError} when reading fails
   */
  restoreSession(source: SessionSource, options?: RestoreOptions): Promise<Session>;
  /** Generates in a new session, which counts toward `maxSessions` while it runs. */
  generate(prompt: Prompt, options?: GenerateOptions & SessionOptions): Generation;
  /**
   * Tokens of a prompt, with BOS and EOS as the tokenizer specifies.
   * @throws {ArgumentError} for ids outside the vocabulary
   */
  encodePrompt(prompt: Prompt): Int32Array;
  /**
   * The same with turns of the event loop, so that megabytes of text do not block it.
   * @throws the reason of the signal
   */
  tokenize(prompt: Prompt, options?: TokenizeOptions): Promise<Int32Array>;
  /**
   * Puts the rows of images in the place of the image tokens of a prompt, in the same order. The result is for `generate` and
   * `logprobs`; rows of images have negative ids, which are equal for equal images. They stay in memory, up to 256 MB of the latest.
   * @throws {ArgumentError} for a model that takes no images, and unless there is one image per image token
   * @throws {FormatError} for a file of another format, or a broken one
   * @throws {CapacityError} for an image that is too large, before it is decoded
   */
  insertImages(ids: Int32Array, images: readonly ImageInput[], options?: TokenizeOptions): Promise<Int32Array>;
  /**
   * Log-probabilities of the whole vocabulary after the tokens at the given positions, `[vocabSize]` each.
   * @throws {NonFiniteError} naming the first tensor with a value that is not finite, if they have one
   */
  logprobs(tokens: ArrayLike<number>, options?: LogitsOptions): Promise<Float32Array[]>;
  /** Inputs and weights of the FFNs, when loaded with `trace.feedForward`. */
  readonly feedForward: FeedForwardAccess | undefined;
  /** The state of the cache, and counters since loading. */
  metrics(): ModelMetrics;
  /** Per op, when loaded with `profile`. */
  profile(): readonly RecordProfile[];
  /** Frees everything after the step that is running; generations in progress end with `ReleasedError`. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface TokenizeOptions {
  /** Stops between slices. Default: never. */
  readonly signal?: AbortSignal;
}

const tokenizeOptionNames: OptionNames<TokenizeOptions> = { signal: true };

export interface ModelParts {
  readonly name: string;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  readonly notices: readonly string[];
  readonly chatTemplate: ChatTemplate | undefined;
  readonly maxSessions: number;
  readonly plan: MemoryPlan;
  readonly attention: string;
  readonly feedForward: FeedForwardAccess | undefined;
  readonly feedForwardMetrics: () => FeedForwardMetrics | undefined;
  readonly visitedKeysMetrics: () => VisitedKeysMetrics | undefined;
  readonly loaded: SessionModel;
  /** Frees programs, weights and cache. No step may run. */
  readonly release: () => Promise<void>;
}

/** Options of a generation in a session of its own. */
const newSessionNames: OptionNames<GenerateOptions & SessionOptions> = {
  ...generateOptionNames,
  ...sessionOptionNames,
};

/** Public members are properties, so that a model can be spread into another one that replaces some of them. */
export class GenerativeModel implements Model, SessionOwner {
  readonly name: string;
  readonly backend: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate | undefined;
  readonly imageToken: string | undefined;
  readonly defaultSampling: SamplingOptions;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  readonly attention: string;
  readonly fallbacks: readonly Fallback[];
  readonly notices: readonly string[];
  readonly feedForward: FeedForwardAccess | undefined;
  readonly #parts: ModelParts;
  readonly #sessions = new Set<Session>();
  #disposal: Promise<void> | undefined;

  constructor(parts: ModelParts) {
    const { loaded } = parts;
    this.name = parts.name;
    this.backend = parts.backend;
    this.config = loaded.config;
    this.tokenizer = loaded.tokenizer;
    this.chatTemplate = parts.chatTemplate;
    this.imageToken = loaded.images?.tokenText;
    this.defaultSampling = loaded.defaultSampling;
    this.contextSize = loaded.contextSize;
    this.plan = parts.plan;
    this.attention = parts.attention;
    this.fallbacks = parts.fallbacks;
    this.notices = parts.notices;
    this.feedForward = parts.feedForward;
    this.#parts = parts;
  }

  readonly createSession: Model['createSession'] = (options = {}) => {
    checkOptions(options, sessionOptionNames);
    this.checkRoom();
    return this.openSession(options);
  };

  readonly generate: Model['generate'] = (prompt, options = {}) => {
    return new StartedGeneration(() => this.#generate(prompt, options));
  };

  readonly encodePrompt: Model['encodePrompt'] = (prompt) => {
    const { text, images } = partsOfPrompt(prompt);
    if (images.length > 0) {
      const expected = 'no images, which tokenize encodes';
      throw new ArgumentError({ argument: 'prompt', expected, actual: `${images.length} images` });
    }
    return encodePrompt(text, this.tokenizer, this.chatTemplate, this.config.vocabSize);
  };

  readonly tokenize: Model['tokenize'] = async (prompt, options = {}) => {
    checkOptions(options, tokenizeOptionNames);
    return this.encodeWithImages(prompt, options.signal);
  };

  readonly insertImages: Model['insertImages'] = async (ids, images, { signal } = {}) => {
    this.#checkImages(images);
    return this.#parts.loaded.images?.expand(ids, images, signal) ?? ids;
  };

  async encodeWithImages(prompt: Prompt, signal: AbortSignal | undefined): Promise<Int32Array> {
    const { text, images } = partsOfPrompt(prompt);
    this.#checkImages(images);
    const { tokenizer, chatTemplate, config } = this;
    const isImage = this.#parts.loaded.images?.has;
    const ids = await runSliced(encodePromptSliced(text, tokenizer, chatTemplate, config.vocabSize, isImage), signal);
    return this.insertImages(ids, images, signal === undefined ? {} : { signal });
  }

  readonly restoreSession: Model['restoreSession'] = async (location, options = {}) => {
    checkOptions(options, restoreOptionNames);
    this.checkRoom();
    options.signal?.throwIfAborted();
    const { loaded } = this.#parts;
    const source = await openSessionSource(location, loaded.files);
    try {
      const start = await restoreSession(loaded, source, options);
      try {
        this.checkRoom();
        return this.openSession(start);
      } catch (error) {
        start.sequence.free();
        throw error;
      }
    } finally {
      await source.close();
    }
  };

  readonly logprobs: Model['logprobs'] = async (tokens, options = {}) => {
    checkOptions(options, logitsOptionNames);
    this.checkOpen();
    return computeLogprobs(this.#parts.loaded, await this.encodeWithImages(tokens, options.signal), options);
  };

  readonly metrics: Model['metrics'] = () => {
    const { pool, scheduler, promptCache, speculation } = this.#parts.loaded;
    const feedForward = this.#parts.feedForwardMetrics();
    const visitedKeys = this.#parts.visitedKeysMetrics();
    return {
      numSessions: this.#sessions.size,
      cache: pool.metrics(),
      ...(promptCache === undefined ? {} : { promptCache: promptCache.metrics() }),
      ...(pool.tiers === undefined ? {} : { tiers: pool.tiers.metrics() }),
      steps: scheduler.statistics(),
      speculation: speculation.metrics(),
      numFallbackRecords: this.#parts.fallbacks.reduce((sum, { numRecords }) => sum + numRecords, 0),
      ...(feedForward === undefined ? {} : { feedForward }),
      ...(visitedKeys === undefined ? {} : { visitedKeys }),
    };
  };

  readonly profile: Model['profile'] = () => {
    return this.#parts.loaded.scheduler.profile();
  };

  /** All callers wait for the same disposal. */
  readonly dispose: Model['dispose'] = () => {
    this.#disposal ??= this.#parts.loaded.scheduler.dispose().then(() => this.#parts.release());
    return this.#disposal;
  };

  readonly [Symbol.asyncDispose]: () => Promise<void> = () => this.dispose();

  checkOpen(): void {
    if (this.#disposal !== undefined) throw new ReleasedError('model');
  }

  checkRoom(): void {
    this.checkOpen();
    const { maxSessions } = this.#parts;
    if (this.#sessions.size < maxSessions) return;
    const [needed, hint] = [this.#sessions.size + 1, 'dispose of one, or load with a larger maxSessions'];
    throw new CapacityError({ resource: 'sessions', needed, available: maxSessions, unit: 'sessions', hint });
  }

  openSession(start: Partial<SessionStart> & SessionOptions): ModelSession {
    const session = new ModelSession(this.#parts.loaded, this, start);
    this.#sessions.add(session);
    return session;
  }

  forget(session: Session): void {
    this.#sessions.delete(session);
  }

  /** @throws {ArgumentError} for a model that takes no images */
  #checkImages({ length }: readonly ImageInput[]): void {
    if (length === 0 || this.#parts.loaded.images !== undefined) return;
    const expected = 'none, since this model takes no images';
    throw new ArgumentError({ argument: 'images', expected, actual: String(length) });
  }

  /** Generates in a new session. */
  async *#generate(
    prompt: Prompt,
    options: GenerateOptions & SessionOptions,
  ): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    checkOptions(options, newSessionNames);
    this.checkRoom();
    const session = this.openSession(options);
    try {
      return yield* session.run(() => session.fromPrompt(prompt, options.signal), options);
    } finally {
      session.dispose();
    }
  }
}
