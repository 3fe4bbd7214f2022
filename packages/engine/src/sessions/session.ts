/** A session: one sequence, one generation at a time. */
import { ArgumentError, ReleasedError, checkOptions, type OptionNames } from '@winnow/tensor';
import { GenerationRun, type GenerationStart } from '../generation/generate.js';
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
  createGeneration,
  type GenerationResult,
  type GeneratedToken,
} from '../generation/generation.js';
import type { Prompt } from '../chat/encode-prompt.js';

export interface SaveOptions {
  /** Kept in the file for the caller, such as the messages of a conversation. */
  readonly metadata?: JsonValue;
  readonly signal?: AbortSignal;
}

export interface RestoreOptions {
  readonly signal?: AbortSignal;
}

const saveOptionNames: OptionNames<SaveOptions> = { metadata: true, signal: true };
export const restoreOptionNames: OptionNames<RestoreOptions> = { signal: true };

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

/** The model of a session. */
export interface SessionOwner {
  encodePrompt(prompt: Prompt): Int32Array;
  /** @throws {ReleasedError} when the model is disposed */
  checkOpen(): void;
  /** @throws {CapacityError} when `maxSessions` are open */
  checkRoom(): void;
  openSession(start: SessionStart): Session;
  /** The session is disposed. */
  forget(session: Session): void;
}

/** What a session starts from: nothing, another session or a file. */
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

  constructor(model: SessionModel, owner: SessionOwner, start?: SessionStart) {
    this.#model = model;
    this.#owner = owner;
    this.#sequence = start?.sequence ?? Sequence.create(model.pool);
    this.#state = start?.state;
    this.metadata = start?.metadata ?? null;
  }

  get tokens(): readonly number[] {
    return this.#isDisposed ? [] : Array.from(this.#sequence.tokens);
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return this.#start(options, () => {
      const tokens = this.#owner.encodePrompt(prompt);
      this.#state = undefined;
      return { prompt: tokens };
    });
  }

  resume(options: GenerateOptions = {}): Generation {
    return this.#start(options, () => {
      if (this.#state !== undefined) return { resumed: this.#state };
      const [expected, actual] = ['a session whose last generation chose a token', 'one without'];
      throw new ArgumentError({ argument: 'resume', expected, actual });
    });
  }

  fork(): Session {
    this.#checkIdle();
    this.#owner.checkRoom();
    const state = this.#state && snapshotOf(this.#state);
    return this.#owner.openSession({ sequence: this.#sequence.fork(), state, metadata: this.metadata });
  }

  async save(target: SessionTarget, options: SaveOptions = {}): Promise<SessionSize> {
    checkOptions(options, saveOptionNames);
    const { signal, metadata = null } = options;
    if (this.#isDisposed) throw new ReleasedError('session');
    this.#owner.checkOpen();
    signal?.throwIfAborted();
    const sink = await openSessionTarget(target, this.#model.files);
    return saveSession(this.#model, this.#sequence, () => ({ state: this.#state, metadata }), sink, signal);
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

  /** @param begin what the generation starts from, asked for when it is first iterated */
  #start(options: GenerateOptions, begin: () => GenerationStart): Generation {
    return createGeneration(() => this.#run(options, begin));
  }

  async *#run(
    options: GenerateOptions,
    begin: () => GenerationStart,
  ): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    checkOptions(options, generateOptionNames);
    this.#checkIdle();
    this.#isBusy = true;
    this.#model.scheduler.enter(this.#sequence);
    try {
      this.#owner.checkOpen();
      options.signal?.throwIfAborted();
      const run = new GenerationRun(this.#model, this.#sequence, begin(), options);
      return yield* run.tokens((state) => {
        this.#state = state;
      });
    } finally {
      this.#model.scheduler.leave(this.#sequence);
      this.#isBusy = false;
    }
  }
}
