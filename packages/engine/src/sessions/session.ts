/** A session: one sequence, one generation at a time. */
import { ArgumentError, ReleasedError } from '@winnow/tensor';
import { generateTokens, type GenerationStart } from '../generation/generate.js';
import type { JsonValue } from '@winnow/kv-cache';
import { snapshotOf } from '../generation/state.js';
import { Sequence } from '../runtime/sequence.js';
import { saveSession, type SessionModel, type SessionParts, type SessionSize } from './file.js';
import { openSessionTarget, type SessionTarget } from './location.js';
import { type GenerateOptions, type Generation, createGeneration } from '../generation/generation.js';
import type { Prompt } from '../chat/encode-prompt.js';

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

export interface SessionOptions {
  readonly encodePrompt: (prompt: Prompt) => Int32Array;
  /** Throws when the model is disposed. */
  readonly checkOpen: () => void;
  readonly onDispose: () => void;
  /** Opens a session with the same contents. @throws {CapacityError} when there are too many */
  readonly openFork: (begin: () => SessionStart) => Session;
}

/** What a session begins with. */
export interface SessionStart extends SessionParts {
  readonly sequence: Sequence;
}

function startOf({ pool }: SessionModel): SessionStart {
  return { sequence: Sequence.create(pool), state: undefined, metadata: null };
}

export function createSession(
  model: SessionModel,
  options: SessionOptions,
  { sequence, state: initialState, metadata: metadataOfFile }: SessionStart = startOf(model),
): Session {
  const { encodePrompt, checkOpen, onDispose, openFork } = options;
  let state = initialState;
  let isBusy = false;
  let isDisposed = false;

  const checkIdle = (): void => {
    if (isDisposed) throw new ReleasedError('session');
    if (isBusy) {
      throw new ArgumentError({
        argument: 'session',
        expected: 'no generation in progress',
        actual: 'one in progress',
      });
    }
  };

  const checkAlive = (): void => {
    if (isDisposed) throw new ReleasedError('session');
    checkOpen();
  };

  const dispose = (): void => {
    if (isDisposed) return;
    checkIdle();
    isDisposed = true;
    sequence.free();
    onDispose();
  };

  function run(start: () => GenerationStart, generateOptions: GenerateOptions): Generation {
    return createGeneration(async function* generation() {
      checkIdle();
      isBusy = true;
      model.scheduler.enter(sequence);
      try {
        checkOpen();
        generateOptions.signal?.throwIfAborted();
        return yield* generateTokens(model, sequence, start(), generateOptions, (next) => {
          state = next;
        });
      } finally {
        model.scheduler.leave(sequence);
        isBusy = false;
      }
    });
  }

  return {
    get tokens(): readonly number[] {
      return isDisposed ? [] : Array.from(sequence.view.tokens.subarray(0, sequence.view.numCommitted));
    },
    generate(prompt, generateOptions = {}): Generation {
      return run(() => {
        const tokens = encodePrompt(prompt);
        state = undefined;
        return { prompt: tokens };
      }, generateOptions);
    },
    resume(generateOptions = {}): Generation {
      return run(() => {
        if (state !== undefined) return { resumed: state };
        const [expected, actual] = ['a session whose last generation chose a token', 'one without'];
        throw new ArgumentError({ argument: 'resume', expected, actual });
      }, generateOptions);
    },
    fork(): Session {
      checkIdle();
      checkOpen();
      return openFork(() => ({
        sequence: sequence.fork(),
        state: state === undefined ? undefined : snapshotOf(state),
        metadata: metadataOfFile,
      }));
    },
    async save(target, { signal, metadata = null } = {}): Promise<SessionSize> {
      checkAlive();
      signal?.throwIfAborted();
      const sink = await openSessionTarget(target, model.files);
      return saveSession(model, sequence, () => ({ state, metadata }), sink, signal);
    },
    get metadata(): JsonValue {
      return metadataOfFile;
    },
    truncate(numTokens): void {
      checkIdle();
      if (!Number.isSafeInteger(numTokens) || numTokens < 0) {
        const [expected, actual] = ['an integer from 0', String(numTokens)];
        throw new ArgumentError({ argument: 'numTokens', expected, actual });
      }
      state = undefined;
      sequence.truncate(numTokens);
    },
    reset(): void {
      checkIdle();
      state = undefined;
      sequence.clear();
    },
    dispose,
    [Symbol.dispose]: dispose,
  };
}
