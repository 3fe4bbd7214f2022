/** One generation as its caller sees it: options, tokens, result. */
import type { Grammar, JsonSchema } from '@winnow/grammar';
import { ArgumentError, type OptionNames } from '@winnow/tensor';
import type { LogitBias } from './penalties.js';
import { samplingNames, type SamplingOptions } from './sampling-options.js';
import type { OverflowPolicy } from './overflow.js';

export interface GenerateOptions extends SamplingOptions {
  /** Maximum number of tokens to generate. Default: until an end token or a full context. */
  readonly maxTokens?: number;
  /** Stop sequences, which are not part of the output. Default: none. */
  readonly stop?: readonly string[];
  /** Continue after end tokens. Default false. */
  readonly ignoreEos?: boolean;
  /** Number of most probable tokens to report with each generated one, in `topLogprobs`. Default 0. */
  readonly numTopLogprobs?: number;
  /** Added to the logits of these tokens, by id, before penalties; -100 excludes a token in practice. Default: none. */
  readonly logitBias?: LogitBias;
  /**
   * Grammar that the text must match: GBNF text in llama.cpp's dialect, or a `Grammar` of `@winnow/grammar`. Each step
   * samples only tokens that can continue the text, and an end token only where the text may end. Default: none.
   */
  readonly grammar?: string | Grammar;
  /** Schema of the JSON to generate, instead of `grammar`. Keywords that cannot be enforced are rejected. Default: none. */
  readonly jsonSchema?: JsonSchema;
  /**
   * Maximum time in milliseconds to compile a grammar or schema; a slower one is rejected with a `CapacityError`. It is
   * compiled in slices, between which other generations run. Default: unlimited.
   */
  readonly compileTimeoutMs?: number;
  /** Control tokens that appear in the text, such as `[TOOL_CALLS]`. Default: none. */
  readonly showTokens?: readonly string[];
  /** What to do when the context is full. Default `stop`. */
  readonly overflow?: OverflowPolicy;
  /**
   * The phase whose attention policy computes the prompt; `decode` takes one token per step. Default `prefill`.
   */
  readonly promptPhase?: 'prefill' | 'decode';
  /** Aborts the generation, which then throws the signal's reason. */
  readonly signal?: AbortSignal;
  /** Called after each prefill step. */
  readonly onPromptProgress?: (progress: PromptProgress) => void;
}

export const generateOptionNames: OptionNames<GenerateOptions> = {
  ...samplingNames,
  maxTokens: true,
  stop: true,
  ignoreEos: true,
  numTopLogprobs: true,
  logitBias: true,
  grammar: true,
  jsonSchema: true,
  compileTimeoutMs: true,
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
 * One generated token. An end token is reported only if it releases text that was held back as the possible start of a
 * stop sequence.
 */
export interface GeneratedToken {
  readonly tokenId: number;
  /** The text that this token completes: whole characters only, without a possible start of a stop sequence. */
  readonly text: string;
  /** Natural logarithm of the token's probability before bias, penalties, truncation, temperature and grammars. */
  readonly logprob: number;
  readonly topLogprobs: readonly TokenLogprob[];
}

/**
 * Why a generation ended: an end token; a stop sequence or a complete grammar; `maxTokens`; a full context. After the
 * last two a constrained text may be incomplete.
 */
export type FinishReason = 'eos' | 'stop' | 'length' | 'context';

/** Times of the engine. They include waiting for other sessions' steps, but not the caller's time between tokens. */
export interface GenerationTimings {
  /** Prefill and sampling of the first token. */
  readonly promptMs: number;
  /** The steps after it. */
  readonly generateMs: number;
  /** Prompt tokens that were not cached, per second of `promptMs`. */
  readonly promptTokensPerSecond: number;
  /** Decode steps per second of `generateMs`; 0 without steps. */
  readonly tokensPerSecond: number;
}

export interface GenerationResult {
  readonly text: string;
  readonly tokens: readonly number[];
  /** Number of prompt tokens used. */
  readonly promptTokens: number;
  /** Number of these that were in the cache. */
  readonly cachedTokens: number;
  /** Number of prompt tokens that the overflow policy dropped before they were computed. */
  readonly droppedTokens: number;
  /** Number of tokens that the overflow policy evicted from the cache. */
  readonly evictedTokens: number;
  readonly finishReason: FinishReason;
  /**
   * Whether the text matches its grammar or schema: false if `maxTokens`, the context or a stop sequence cut it off.
   * True without a constraint.
   */
  readonly satisfiesConstraint: boolean;
  readonly timings: GenerationTimings;
}

/**
 * A generation, which starts when it is first iterated or `result` is called. Each token is produced once: two
 * concurrent loops each see a part of them. Leaving a loop early ends the generation.
 */
export interface Generation extends AsyncIterable<GeneratedToken> {
  /**
   * Generates the rest and returns the whole result. It may be called during or after a loop, and repeatedly.
   * @throws the error that ended the generation
   * @throws {ArgumentError} when a loop was left early
   */
  result(): Promise<GenerationResult>;
}

/**
 * Wraps the generator so that it can be iterated and return its result; it starts on first use. Leaving a `for await`
 * loop early ends the generation. After a failure, every call throws the same error.
 */
export class StartedGeneration implements Generation {
  readonly #start: () => TokenGenerator;
  #running: TokenGenerator | undefined;
  #finished: GenerationResult | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(start: () => TokenGenerator) {
    this.#start = start;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<GeneratedToken, void, void> {
    const running = (this.#running ??= this.#start());
    try {
      for (;;) {
        const { done, value } = await this.#next(running);
        if (done === true) {
          this.#finished ??= value as GenerationResult | undefined; // a generator returns its result once
          return;
        }
        yield value;
      }
    } finally {
      await running.return(undefined as never);
    }
  }

  async result(): Promise<GenerationResult> {
    for await (const _token of this);
    if (this.#finished === undefined) {
      const [expected, actual] = ['a generation whose loop ran to the end', 'a loop that was left early'];
      throw new ArgumentError({ argument: 'result', expected, actual });
    }
    return this.#finished;
  }

  async #next(running: TokenGenerator): Promise<IteratorResult<GeneratedToken, GenerationResult>> {
    try {
      const next = await running.next();
      if (this.#failure === undefined) return next;
    } catch (error) {
      this.#failure ??= { error };
      throw error;
    }
    throw this.#failure.error;
  }
}

type TokenGenerator = AsyncGenerator<GeneratedToken, GenerationResult, void>;
