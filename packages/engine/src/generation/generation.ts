/** One generation as its caller sees it: options, tokens, result. */
import type { Grammar, JsonSchema } from '@winnow/grammar';
import { ArgumentError, type OptionNames } from '@winnow/tensor';
import { samplingNames, type SamplingOptions } from './sampling-options.js';
import type { OverflowPolicy } from './overflow.js';

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

export const generateOptionNames: OptionNames<GenerateOptions> = {
  ...samplingNames,
  maxTokens: true,
  stop: true,
  ignoreEos: true,
  numTopLogprobs: true,
  grammar: true,
  jsonSchema: true,
  showTokens: true,
  overflow: true,
  promptPhase: true,
  signal: true,
  onPromptProgress: true,
};

export interface PromptProgress {
  readonly processedTokens: number;
  readonly totalTokens: number;
}

export interface TokenLogprob {
  readonly tokenId: number;
  readonly logprob: number;
}

/**
 * One generated token. The end token is not among them, unless it sets free text that was held back as the possible
 * start of a stop sequence.
 */
export interface GeneratedToken {
  readonly tokenId: number;
  /** The text that became certain with this token: complete characters only, and nothing that may belong to a stop sequence. */
  readonly text: string;
  /** Natural logarithm of the token's probability before temperature, penalties, cuts and grammars. */
  readonly logprob: number;
  readonly topLogprobs: readonly TokenLogprob[];
}

/**
 * Why a generation ended: the model's end token; a stop sequence, or a grammar after which nothing can follow; `maxTokens`; a full
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
  /** Whether the text matches its grammar or schema: false where the limit of tokens or a stop sequence cut it. True without one. */
  readonly satisfiesConstraint: boolean;
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
