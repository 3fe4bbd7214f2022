/** A session: one sequence, one generation at a time. */
import { ArgumentError, ReleasedError, checkOptions, type OptionNames } from '@winnow/tensor';
import { GenerationRun } from '../generation/generate.js';
import { checkStart, type GenerationStart } from '../generation/start.js';
import type { JsonValue } from '@winnow/kv-cache';
import { snapshotOf, type GenerationState } from '../generation/state.js';
import { Sequence } from '../runtime/sequence.js';
import type { SessionModel, SessionParts, SessionSize } from './file.js';
import { saveSession } from './save.js';
import { openSessionTarget, type SessionTarget } from './location.js';
import {
  generateOptionNames,
  type GenerateOptions,
  type Generation,
  StartedGeneration,
  type GenerationResult,
  type GeneratedToken,
} from '../generation/generation.js';
import type { Prompt } from '../chat/encode-prompt.js';

export interface SaveOptions {
  /** Metadata of the caller to store in the file, such as the messages of a conversation. Default: none. */
  readonly metadata?: JsonValue;
  /**
   * Appends a MAC (HMAC-SHA-256) with this secret key of at least 16 bytes, so that `restoreSession` with the same key
   * accepts files of its holders alone. Default: none.
   */
  readonly key?: Uint8Array;
  readonly signal?: AbortSignal;
}

export interface RestoreOptions {
  /**
   * The key that the session was saved with. The whole file is verified before any of it is used; sessions restored from the
   * same file then share cached prefixes. Default: none, so anyone who can write the file is trusted with this session.
   */
  readonly key?: Uint8Array;
  readonly signal?: AbortSignal;
}

/** Options of `createSession`. */
export interface SessionOptions {
  /**
   * The session shares cached prefixes only with sessions of the same salt. For several tenants: otherwise the time to
   * the first token and `cachedTokens` reveal to each the prompts of the others. Default: shares with all
   * sessions without a salt.
   */
  readonly cacheSalt?: string;
}

export const sessionOptionNames: OptionNames<SessionOptions> = { cacheSalt: true };
const saveOptionNames: OptionNames<SaveOptions> = { metadata: true, key: true, signal: true };
export const restoreOptionNames: OptionNames<RestoreOptions> = { key: true, signal: true };

/** One conversation with its own cache. */
export interface Session {
  /** The tokens that were computed and stored, as a new array; some may have been evicted since. */
  readonly tokens: readonly number[];
  /**
   * Generates after a prompt. A prefix that is cached, in this session or in whole blocks of others, is not recomputed.
   * A session runs one generation at a time; concurrent sessions share steps.
   * @throws {CapacityError} when the prompt does not fit, unless `overflow` makes it fit
   * @throws {NonFiniteError} naming the first tensor with a value that is not finite, if the logits have one
   * @throws the signal's reason when aborted; the session remains usable
   */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /**
   * Continues the last generation after its last token, whether it reached `maxTokens`, was aborted or was restored
   * from a file. Options that are not given keep their values; without a `seed` its random stream continues, so that
   * the two parts equal one generation. In the result, the first part counts as prompt.
   * @throws {ArgumentError} when no token has been generated
   */
  resume(options?: GenerateOptions): Generation;
  /**
   * A second session with the same contents. They share memory until they diverge.
   * @throws {CapacityError} when `maxSessions` are open
   * @throws {ArgumentError} while a generation is in progress
   */
  fork(): Session;
  /**
   * Writes tokens, cache, recurrent states and sampler, so that `restoreSession` of the same model with the same cache
   * options continues token for token. During a generation it saves between two steps. A file is replaced atomically.
   * Format: docs/formats/session.md.
   * @throws {IoError} when writing fails
   */
  save(target: SessionTarget, options?: SaveOptions): Promise<SessionSize>;
  /** The metadata that was passed to `save` if the session was restored; otherwise null. */
  readonly metadata: JsonValue;
  /**
   * Forgets the tokens from `numTokens` on; models with recurrent state may forget more.
   * @throws {ArgumentError} while a generation is in progress
   */
  truncate(numTokens: number): void;
  /** Forgets all tokens. @throws {ArgumentError} while a generation is in progress */
  reset(): void;
  /** Releases the cache. @throws {ArgumentError} while a generation is in progress */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** The model of a session. */
export interface SessionOwner {
  /** The tokens of a prompt, with negative ids for rows of images. */
  encodeWithImages(prompt: Prompt, signal: AbortSignal | undefined): Promise<Int32Array>;
  /** @throws {ReleasedError} when the model is disposed of */
  checkOpen(): void;
  /** @throws {CapacityError} when `maxSessions` are open */
  checkRoom(): void;
  openSession(start: SessionStart): Session;
  /** Called when the session is disposed of. */
  forget(session: Session): void;
}

/** What a session starts with: nothing, another session or a file. */
export interface SessionStart extends SessionParts {
  readonly sequence: Sequence;
}

export class ModelSession implements Session {
  /** Of the file that it was restored from. */
  readonly metadata: JsonValue;
  readonly #model: SessionModel;
  readonly #owner: SessionOwner;
  readonly #sequence: Sequence;
  #state: GenerationState | undefined;
  #isBusy = false;
  #isDisposed = false;

  constructor(model: SessionModel, owner: SessionOwner, start: Partial<SessionStart> & SessionOptions) {
    this.#model = model;
    this.#owner = owner;
    const { sequence, state, metadata = null, cacheSalt } = start;
    this.#sequence = sequence ?? Sequence.create(model.pool, cacheSalt);
    this.#state = state;
    this.metadata = metadata;
  }

  get tokens(): readonly number[] {
    return this.#isDisposed ? [] : Array.from(this.#sequence.tokens);
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return new StartedGeneration(() => this.#checked(() => this.fromPrompt(prompt, options.signal), options));
  }

  resume(options: GenerateOptions = {}): Generation {
    return new StartedGeneration(() => this.#checked(() => Promise.resolve(this.#fromState()), options));
  }

  /** The state that a generation starts from. */
  async fromPrompt(prompt: Prompt, signal: AbortSignal | undefined): Promise<GenerationStart> {
    const tokens = await this.#owner.encodeWithImages(prompt, signal);
    this.#state = undefined;
    return { prompt: tokens };
  }

  /**
   * Generates with options whose names were checked.
   * @param begin the state that the generation starts from
   */
  async *run(
    begin: () => Promise<GenerationStart>,
    options: GenerateOptions,
  ): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    this.#checkIdle();
    this.#isBusy = true;
    try {
      this.#owner.checkOpen();
      options.signal?.throwIfAborted();
      const start = checkStart(this.#model, await begin(), options);
      const constraint = await this.#model.constraints.start(start.options, options.signal); // takes longest
      return yield* this.#scheduled(new GenerationRun(this.#model, this.#sequence, start, constraint));
    } finally {
      this.#isBusy = false;
    }
  }

  fork(): Session {
    this.#checkIdle();
    this.#owner.checkRoom();
    const state = this.#state && snapshotOf(this.#state);
    return this.#owner.openSession({ sequence: this.#sequence.fork(), state, metadata: this.metadata });
  }

  async save(target: SessionTarget, options: SaveOptions = {}): Promise<SessionSize> {
    checkOptions(options, saveOptionNames);
    const { key, signal, metadata = null } = options;
    if (this.#isDisposed) throw new ReleasedError('session');
    this.#owner.checkOpen();
    signal?.throwIfAborted();
    const sink = await openSessionTarget(target, this.#model.files);
    const writing = { ...(key === undefined ? {} : { key }), ...(signal === undefined ? {} : { signal }) };
    return saveSession(this.#model, this.#sequence, () => ({ state: this.#state, metadata }), sink, writing);
  }

  truncate(numTokens: number): void {
    this.#checkIdle();
    if (!Number.isSafeInteger(numTokens) || numTokens < 0) {
      const [expected, actual] = ['an integer from 0', String(numTokens)];
      throw new ArgumentError({ argument: 'numTokens', expected, actual });
    }
    this.#state = undefined;
    this.#sequence.truncate(numTokens);
  }

  reset(): void {
    this.#checkIdle();
    this.#state = undefined;
    this.#sequence.clear();
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#checkIdle();
    this.#isDisposed = true;
    this.#sequence.free();
    this.#owner.forget(this);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #checkIdle(): void {
    if (this.#isDisposed) throw new ReleasedError('session');
    if (!this.#isBusy) return;
    const [expected, actual] = ['no generation in progress', 'one in progress'];
    throw new ArgumentError({ argument: 'session', expected, actual });
  }

  async *#checked(
    begin: () => Promise<GenerationStart>,
    options: GenerateOptions,
  ): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    checkOptions(options, generateOptionNames);
    return yield* this.run(begin, options);
  }

  /** Steps of other sessions wait for this one only from here on, not while its grammar is compiled. */
  async *#scheduled(run: GenerationRun): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    const { scheduler } = this.#model;
    scheduler.enter(this.#sequence);
    try {
      await undefined; // generations that start together all enter before the first step
      return yield* run.tokens((state) => {
        this.#state = state;
      });
    } finally {
      scheduler.leave(this.#sequence);
    }
  }

  #fromState(): GenerationStart {
    if (this.#state !== undefined) return { resumed: this.#state };
    const [expected, actual] = ['a session whose last generation produced a token', 'one without'];
    throw new ArgumentError({ argument: 'resume', expected, actual });
  }
}
