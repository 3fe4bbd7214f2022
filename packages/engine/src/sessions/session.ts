/** A session: one sequence, one generation at a time. */
import { ArgumentError, ReleasedError } from '@winnow/tensor';
import { generateTokens, type GenerationStart } from '../generation/generate.js';
import type { JsonValue } from '@winnow/kv-cache';
import { snapshotOf } from '../generation/state.js';
import type { LoadedModel } from '../runtime/loaded-model.js';
import { createSequence, type Sequence } from '../runtime/sequence.js';
import { saveSession, type SessionParts, type SessionSize } from './file.js';
import { openSessionTarget } from './location.js';
import type { GeneratedToken, GenerateOptions, Generation, GenerationResult, Prompt, Session } from '../types.js';

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

function startOf({ pool }: LoadedModel): SessionStart {
  return { sequence: createSequence(pool), state: undefined, metadata: null };
}

export function createSession(
  model: LoadedModel,
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
      const leave = model.scheduler.enter(sequence);
      try {
        checkOpen();
        generateOptions.signal?.throwIfAborted();
        return yield* generateTokens(model, sequence, start(), generateOptions, (next) => {
          state = next;
        });
      } finally {
        leave();
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

/**
 * Wraps the generator so that it can be iterated and asked for its result; it starts with the first of both. Leaving a
 * `for await` loop early ends the generation. Whoever comes after a failure gets the same error.
 */
export function createGeneration(start: () => AsyncGenerator<GeneratedToken, GenerationResult, void>): Generation {
  let running: AsyncGenerator<GeneratedToken, GenerationResult, void> | undefined;
  let finished: GenerationResult | undefined;
  let failure: { readonly error: unknown } | undefined;

  const remember = (error: unknown): never => {
    failure ??= { error };
    throw error;
  };

  async function* iterate(): AsyncGenerator<GeneratedToken, void, void> {
    running ??= start();
    try {
      for (;;) {
        const { done, value } = await running.next().catch(remember);
        if (failure !== undefined) throw failure.error;
        if (done === true) {
          finished ??= value as GenerationResult | undefined; // a generator gives its result once
          return;
        }
        yield value;
      }
    } finally {
      await running.return(undefined as never);
    }
  }

  return {
    [Symbol.asyncIterator]: iterate,
    async result(): Promise<GenerationResult> {
      for await (const _token of iterate());
      if (finished === undefined) {
        const [expected, actual] = ['a generation that was not broken off', 'one that was'];
        throw new ArgumentError({ argument: 'result', expected, actual });
      }
      return finished;
    },
  };
}
