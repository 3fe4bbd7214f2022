/** A session: one sequence, one generation at a time. */
import { ArgumentError, ReleasedError } from '@winnow/tensor';
import { generateTokens } from './generate.js';
import type { LoadedModel } from './loaded-model.js';
import { createSequence } from './sequence.js';
import type { GeneratedToken, Generation, GenerationResult, Prompt, Session } from './types.js';

export interface SessionOptions {
  readonly encodePrompt: (prompt: Prompt) => Int32Array;
  /** Throws when the model is disposed. */
  readonly checkOpen: () => void;
  readonly onDispose: () => void;
}

export function createSession(model: LoadedModel, { encodePrompt, checkOpen, onDispose }: SessionOptions): Session {
  const sequence = createSequence(model.pool);
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

  const dispose = (): void => {
    if (isDisposed) return;
    checkIdle();
    isDisposed = true;
    sequence.truncate(0);
    onDispose();
  };

  return {
    tokens: sequence.tokens,
    generate(prompt, options = {}): Generation {
      return createGeneration(async function* run() {
        checkIdle();
        isBusy = true;
        try {
          checkOpen();
          options.signal?.throwIfAborted();
          return yield* generateTokens(model, sequence, encodePrompt(prompt), options);
        } finally {
          sequence.truncate(sequence.tokens.length); // a step that failed had taken blocks
          isBusy = false;
        }
      });
    },
    reset(): void {
      checkIdle();
      sequence.truncate(0);
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
