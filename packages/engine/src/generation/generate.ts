/** The generation loop: prefill of the prompt in chunks, then one token per decode step. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { StepRequest } from '../runtime/batch.js';
import type { Sequence } from '../runtime/sequence.js';
import type { Constraint } from './constraint.js';
import type {
  FinishReason,
  GeneratedToken,
  GenerateOptions,
  GenerationResult,
  GenerationTimings,
  TokenLogprob,
} from './generation.js';
import type { LoadedModel } from './loaded-model.js';
import { checkOverflow, chunkLimit, dropsTokens, makeRoom, type OverflowPolicy } from './overflow.js';
import { fitPrompt, type FittedPrompt } from './prompt-fit.js';
import { Sampler, type Choice } from './sampler.js';
import { resolveSampling, type Sampling } from './sampling-options.js';
import { lastingOptions, tokensOf, type GenerationState } from './state.js';
import { TextStream } from './text-stream.js';
import { TopReader } from './top-reader.js';

/** What a generation starts from. */
export type GenerationStart =
  | { readonly prompt: Int32Array; readonly resumed?: undefined }
  /** A generation to resume; options that are not given keep their values. */
  | { readonly resumed: GenerationState };

interface Limits {
  readonly maxTokens: number;
  readonly numTopLogprobs: number;
  readonly overflow: OverflowPolicy;
}

/** What a generation needs besides its grammar; the options are valid and the prompt fits. */
interface CheckedStart {
  readonly options: GenerateOptions;
  readonly limits: Limits;
  readonly sampling: Sampling;
  /** The prompt and, when resumed, the tokens that were generated. */
  readonly allTokens: Int32Array;
  readonly fitted: FittedPrompt;
  readonly text: TextStream;
}

export class GenerationRun {
  readonly #model: LoadedModel;
  readonly #sequence: Sequence;
  readonly #options: GenerateOptions;
  readonly #limits: Limits;
  /** The prompt as used, including tokens of a resumed generation. */
  readonly #prompt: Int32Array;
  readonly #numDropped: number;
  /** Number of prompt tokens that were generated before; they are computed in the decode phase. */
  readonly #numResumed: number;
  readonly #constraint: Constraint | undefined;
  readonly #sampler: Sampler;
  readonly #text: TextStream;
  readonly #state: GenerationState;
  readonly #top: TopReader;
  readonly #generated: number[] = [];
  readonly #pieces: string[] = [];
  #choice: Choice = { tokenId: 0, logprob: 0 };
  #topLogprobs: readonly TokenLogprob[] = [];
  #numEvicted = 0;
  #numSteps = 0;

  /**
   * Checks everything else before it compiles the grammar, which takes longest.
   * @throws {ArgumentError | CapacityError} for invalid options, and a prompt that does not fit
   */
  static async create(
    model: LoadedModel,
    sequence: Sequence,
    start: GenerationStart,
    given: GenerateOptions,
  ): Promise<GenerationRun> {
    const checked = check(model, start, given);
    const constraint = await model.constraints.start(checked.options, given.signal);
    return new GenerationRun(model, sequence, start, given, checked, constraint);
  }

  private constructor(
    model: LoadedModel,
    sequence: Sequence,
    start: GenerationStart,
    given: GenerateOptions,
    { options, limits, sampling, allTokens, fitted, text }: CheckedStart,
    constraint: Constraint | undefined,
  ) {
    const { resumed } = start;
    this.#model = model;
    this.#sequence = sequence;
    this.#options = options;
    this.#limits = limits;
    this.#constraint = constraint;
    const isMasked = this.#constraint !== undefined;
    this.#sampler = new Sampler(sampling, model.config.vocabSize, model.numTop, isMasked, options.logitBias);
    const { tokens, numDropped } = fitted;
    this.#prompt = tokens;
    this.#numDropped = numDropped;
    this.#numResumed = resumed?.chosen.length ?? 0;
    this.#text = text;
    this.#top = new TopReader(limits.numTopLogprobs);
    const numConstrained = resumed === undefined || setsConstraint(given) ? 0 : numConstrainedOf(resumed);
    if (numConstrained > 0)
      for (const tokenId of allTokens.subarray(-numConstrained)) this.#constraint?.accept(tokenId);
    this.#state = {
      prompt: tokens,
      numConstrained: this.#constraint === undefined ? 0 : numConstrained,
      chosen: [],
      sampling,
      options: lastingOptions(options),
      rngState: () => this.#sampler.state(),
      hasEnded: false,
    };
    for (const tokenId of tokens) this.#sampler.accept(tokenId);
    if (resumed !== undefined && given.seed === undefined) this.#sampler.restore(resumed.rngState());
  }

  /**
   * Yields the tokens and returns the result. Aborting leaves the sequence with the tokens that were stored.
   * @param onState called with the first token; the object is updated in place
   */
  async *tokens(onState: (state: GenerationState) => void): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    const { now } = this.#model.host;
    const { maxTokens, overflow } = this.#limits;
    const read = (output: ReadOutput): Promise<void> => this.#choose(output, onState);
    const numShared = this.#sequence.begin(this.#prompt, dropsTokens(overflow));
    const startMs = now();
    const numCached = numShared + (await this.#restorePages());
    const computeMs = now();
    await this.#prefill(maxTokens > 0 ? read : undefined);
    const promptMs = now() - startMs;
    this.#storePages(numCached, now() - computeMs);
    const request = decodeRequest(this.#sequence, this.#options.signal, read);
    let pausedMs = 0; // while the caller handles the token
    let finishReason: FinishReason | undefined = maxTokens > 0 ? undefined : 'length';
    while (finishReason === undefined) {
      const { tokenId, logprob } = this.#choice;
      const topLogprobs = this.#topLogprobs;
      const isEnd = this.#options.ignoreEos !== true && this.#model.eosIds.has(tokenId);
      finishReason = this.#accept(tokenId, isEnd);
      const text = this.#pieces.at(-1) as string;
      if (!isEnd || text !== '') {
        const handedOverMs = now();
        yield { tokenId, text, logprob, topLogprobs };
        pausedMs += now() - handedOverMs;
      }
      if (finishReason === undefined) await this.#decode(request, tokenId);
    }
    return this.#result(finishReason, numCached, promptMs, now() - startMs - promptMs - pausedMs);
  }

  /**
   * Samples the next token from the outputs of a step. If the device is lost during a read, the step and the choice are
   * repeated: random numbers, penalties and the grammar change only after the last read.
   */
  async #choose(read: ReadOutput, onState: (state: GenerationState) => void): Promise<void> {
    if (this.#limits.numTopLogprobs > 0) this.#topLogprobs = await this.#top.read(read);
    this.#choice = await this.#sampler
      .choose(read, this.#constraint?.mask().bits)
      .catch((error: unknown) => this.#model.nonFinite.fail(error, this.#sequence.view.blocks));
    this.#constraint?.accept(this.#choice.tokenId);
    if (this.#state.chosen.push(this.#choice.tokenId) === 1) onState(this.#state);
  }

  /** Adds the text of a token to the pieces. Returns the finish reason if the generation ends with it. */
  #accept(tokenId: number, isEnd: boolean): FinishReason | undefined {
    let finishReason: FinishReason | undefined = isEnd ? 'eos' : undefined;
    let piece = '';
    if (!isEnd) {
      this.#generated.push(tokenId);
      piece = this.#text.push(tokenId);
      if (this.#text.isStopped || this.#constraint?.isComplete === true) finishReason = 'stop';
      else if (this.#generated.length >= this.#limits.maxTokens) finishReason = 'length';
      else if (this.#isFull()) finishReason = 'context';
    }
    if (finishReason !== undefined) {
      piece += this.#text.flush();
      this.#state.hasEnded = true;
    }
    this.#pieces.push(piece);
    return finishReason;
  }

  #isFull(): boolean {
    const { config, contextSize } = this.#model;
    const maxTokens = dropsTokens(this.#limits.overflow) ? (config.maxPositions ?? Infinity) : contextSize;
    return this.#prompt.length + this.#generated.length >= maxTokens;
  }

  /** Pages of prompts are computed by the policy of prefill. */
  get #pagesOf(): LoadedModel['promptCache'] {
    return this.#options.promptPhase === 'decode' ? undefined : this.#model.promptCache;
  }

  /** Restores stored pages; returns their number of tokens. */
  async #restorePages(): Promise<number> {
    return (await this.#pagesOf?.restore(this.#sequence, this.#firstPrompt, this.#options.signal)) ?? 0;
  }

  #storePages(numCached: number, milliseconds: number): void {
    const numComputed = this.#prompt.length - numCached;
    this.#pagesOf?.noteComputed(numComputed, milliseconds);
    this.#pagesOf?.save(this.#sequence, this.#firstPrompt.length);
  }

  /** The prompt without the tokens of a resumed generation. */
  get #firstPrompt(): Int32Array {
    return this.#prompt.subarray(0, this.#prompt.length - this.#numResumed);
  }

  /**
   * Computes the part of the prompt that is not cached, in chunks.
   * @param read reads the outputs of the last token
   */
  async #prefill(read: ((output: ReadOutput) => Promise<void>) | undefined): Promise<void> {
    const { scheduler, contextSize } = this.#model;
    const { signal, onPromptProgress, promptPhase = 'prefill' } = this.#options;
    const tokens = this.#prompt;
    const numPrompt = tokens.length - this.#numResumed;
    const fits = tokens.length < contextSize;
    const maxChunk = fits ? scheduler.maxChunk : Math.min(scheduler.maxChunk, chunkLimit(contextSize));
    let begin = this.#sequence.tokens.length; // also those of a preempted sequence
    onPromptProgress?.({ processedTokens: begin, totalTokens: tokens.length });
    while (begin < tokens.length) {
      signal?.throwIfAborted();
      const phase = begin < numPrompt ? promptPhase : 'decode';
      const count = phase === 'decode' ? 1 : Math.min(maxChunk, numPrompt - begin);
      const isLast = begin + count === tokens.length;
      this.#makeRoom(count);
      await scheduler.run({
        sequence: this.#sequence,
        phase,
        tokens,
        offset: begin,
        count,
        outputRows: isLast && read !== undefined ? [count - 1] : [],
        signal,
        read: isLast ? read : undefined,
      });
      begin += count;
      onPromptProgress?.({ processedTokens: begin, totalTokens: tokens.length });
    }
  }

  async #decode(request: StepRequest, tokenId: number): Promise<void> {
    request.signal?.throwIfAborted();
    this.#makeRoom(1);
    request.tokens[0] = tokenId;
    const step = this.#model.scheduler.run(request);
    this.#constraint?.prepare(); // while the step runs
    await step;
    this.#numSteps++;
  }

  /** Evicts tokens until `count` more fit, if the overflow policy says so. */
  #makeRoom(count: number): void {
    const { overflow } = this.#limits;
    if (!dropsTokens(overflow)) return;
    const { contextSize, pool, attention, noteLength } = this.#model;
    noteLength(this.#sequence.view.numTokens + count);
    const minSinks = attention.reads?.sinks ?? 0;
    this.#numEvicted += makeRoom(this.#sequence, count, contextSize, pool.manager.blockSize, overflow, minSinks);
  }

  /** @throws {CapacityError} when the context is full and the policy is `error` */
  #result(finishReason: FinishReason, numCached: number, promptMs: number, generateMs: number): GenerationResult {
    const { contextSize } = this.#model;
    const numPrompt = this.#prompt.length;
    if (finishReason === 'context' && this.#limits.overflow === 'error') {
      const needed = numPrompt + this.#generated.length + 1;
      throw new CapacityError({ resource: 'context', needed, available: contextSize, unit: 'tokens' });
    }
    const timings: GenerationTimings = {
      promptMs,
      generateMs,
      promptTokensPerSecond: perSecond(numPrompt - numCached, promptMs),
      tokensPerSecond: perSecond(this.#numSteps, generateMs),
    };
    return {
      text: this.#pieces.join(''),
      tokens: this.#generated,
      promptTokens: numPrompt,
      cachedTokens: numCached,
      droppedTokens: this.#numDropped,
      evictedTokens: this.#numEvicted,
      finishReason,
      satisfiesConstraint: this.#constraint?.isSatisfied !== false,
      timings,
    };
  }
}

const firstRow: readonly number[] = [0];

/** The request of every decode step, reused with another token. */
function decodeRequest(sequence: Sequence, signal: AbortSignal | undefined, read: StepRequest['read']): StepRequest {
  const tokens = new Int32Array(1);
  return { sequence, phase: 'decode', tokens, offset: 0, count: 1, outputRows: firstRow, signal, read };
}

/** @throws {ArgumentError | CapacityError} */
function check(model: LoadedModel, start: GenerationStart, given: GenerateOptions): CheckedStart {
  const { resumed } = start;
  const options = optionsOf(start, given);
  const limits = limitsOf(model, options);
  const sampling = resolveSampling(given, resumed?.sampling ?? model.defaultSampling, model.host.randomSeed);
  const allTokens = resumed === undefined ? start.prompt : tokensOf(resumed);
  const fitted = fitPrompt(allTokens, model.contextSize, limits.overflow);
  return { options, limits, sampling, allTokens, fitted, text: textAfter(model, fitted.tokens, options, resumed) };
}

function limitsOf({ numTop, attention }: LoadedModel, options: GenerateOptions): Limits {
  const maxTokens = checkCount('maxTokens', options.maxTokens ?? Infinity, Infinity);
  const numTopLogprobs = checkCount('numTopLogprobs', options.numTopLogprobs ?? 0, numTop);
  const overflow = checkOverflow(options.overflow ?? 'stop');
  if (attention.needsOrderedSlots && dropsTokens(overflow)) {
    const expected = 'stop | error | truncate-start | truncate-middle with this attention policy';
    throw new ArgumentError({ argument: 'overflow', expected, actual: overflow });
  }
  return { maxTokens, numTopLogprobs, overflow };
}

/** Options that are not given keep the values of the resumed generation. */
function resumedOptions({ options }: GenerationState, given: GenerateOptions): GenerateOptions {
  const { grammar: _grammar, jsonSchema: _jsonSchema, ...rest } = options;
  return setsConstraint(given) ? { ...rest, ...given } : { ...options, ...given };
}

function optionsOf({ resumed }: GenerationStart, given: GenerateOptions): GenerateOptions {
  return resumed === undefined ? given : resumedOptions(resumed, given);
}

function setsConstraint({ grammar, jsonSchema }: GenerateOptions): boolean {
  return grammar !== undefined || jsonSchema !== undefined;
}

/** Tokens at the end that belong to the constrained text. */
function numConstrainedOf({ options, numConstrained, chosen }: GenerationState): number {
  const isConstrained = setsConstraint(options) || options.spanLimit !== undefined;
  return isConstrained ? numConstrained + chosen.length : 0;
}

/** A text stream after the prompt and the text of a resumed generation. */
function textAfter(
  { tokenizer, constraints }: LoadedModel,
  tokens: Int32Array,
  options: GenerateOptions,
  resumed: GenerationState | undefined,
): TextStream {
  const stops = options.stop ?? [];
  const streamOptions = { isExact: setsConstraint(options), shown: constraints.shownTokens(options) };
  if (resumed === undefined || resumed.hasEnded) return new TextStream(tokenizer, tokens, stops, streamOptions);
  const text = new TextStream(tokenizer, resumed.prompt, stops, streamOptions);
  for (const tokenId of resumed.chosen) text.push(tokenId);
  return text;
}

function checkCount(argument: string, value: number, max: number): number {
  if ((Number.isSafeInteger(value) || value === Infinity) && value >= 0 && value <= max) return value;
  const expected = max === Infinity ? 'an integer from 0' : `an integer from 0 to ${max}`;
  throw new ArgumentError({ argument, expected, actual: String(value) });
}

function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1000) / ms : 0;
}
