/** The generation loop: prompt in chunks, then one token per step. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { lastingOptions, tokensOf, type GenerationState } from './state.js';
import type { LoadedModel } from './loaded-model.js';
import { checkOverflow, chunkLimit, dropsTokens, makeRoom } from './overflow.js';
import { fitPrompt } from './prompt-fit.js';
import { createSampler, type Choice } from './sampler.js';
import { resolveSampling, type Sampling } from './sampling-options.js';
import type { StepRequest } from '../runtime/scheduler.js';
import type { Sequence } from '../runtime/sequence.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import { createTextStream, type TextStream } from './text-stream.js';

import { createTopReader } from './top-reader.js';
import type { FinishReason, GeneratedToken, GenerateOptions, GenerationResult, TokenLogprob } from './generation.js';

/** What a generation starts from. */
export type GenerationStart =
  | { readonly prompt: Int32Array; readonly resumed?: undefined }
  /** A generation to go on with; options that are not given are those it had. */
  | { readonly resumed: GenerationState };

/**
 * Yields the tokens and returns the result. Aborting leaves the sequence with the tokens that were stored.
 * @param onState called when the prompt is known, with an object that follows the generation
 */
export async function* generateTokens(
  model: LoadedModel,
  sequence: Sequence,
  start: GenerationStart,
  callerOptions: GenerateOptions,
  onState: (state: GenerationState) => void,
): AsyncGenerator<GeneratedToken, GenerationResult, void> {
  const { config, scheduler, host, numTop, contextSize } = model;
  const { resumed } = start;
  const options = resumed === undefined ? callerOptions : resumedOptions(resumed, callerOptions);
  const { signal } = options;
  const maxTokens = checkCount('maxTokens', options.maxTokens ?? Infinity, Infinity);
  const numTopLogprobs = checkCount('numTopLogprobs', options.numTopLogprobs ?? 0, numTop);
  const overflow = checkOverflow(options.overflow ?? 'stop');
  const { needsOrderedSlots, reads } = model.attention;
  const minSinks = reads?.sinks ?? 0;
  if (needsOrderedSlots && dropsTokens(overflow)) {
    const expected = 'stop | error | truncate-start | truncate-middle with this attention policy';
    throw new ArgumentError({ argument: 'overflow', expected, actual: overflow });
  }
  const sampling = samplingOf(model, callerOptions, resumed);
  const constraint = model.constraints.start(options);
  const sampler = createSampler(sampling, config.vocabSize, numTop, constraint !== undefined);
  const all = resumed === undefined ? start.prompt : tokensOf(resumed);
  const { tokens, numDropped } = fitPrompt(all, contextSize, overflow);
  const text = textAfter(model, tokens, options, resumed);
  const numConstrained = resumed === undefined || !isSameConstraint(callerOptions) ? 0 : numConstrainedOf(resumed);
  if (numConstrained > 0) for (const tokenId of all.subarray(-numConstrained)) constraint?.accept(tokenId);
  const numCached = sequence.begin(tokens, dropsTokens(overflow));
  for (const tokenId of tokens) sampler.accept(tokenId);
  if (resumed !== undefined && callerOptions.seed === undefined) sampler.restore(resumed.rngState());

  const chosen: number[] = [];
  const state: GenerationState = {
    prompt: tokens,
    numConstrained: constraint === undefined ? 0 : numConstrained,
    chosen,
    sampling,
    options: lastingOptions(options),
    rngState: () => sampler.state(),
    hasEnded: false,
  };
  const top = createTopReader(numTopLogprobs);
  let choice: Choice = { tokenId: 0, logprob: 0 };
  let topLogprobs: readonly TokenLogprob[] = [];
  const readChoice = async (read: ReadOutput): Promise<void> => {
    choice = await sampler.choose(read, constraint?.mask().bits);
    constraint?.accept(choice.tokenId);
    if (numTopLogprobs > 0) topLogprobs = await top(read);
    if (chosen.push(choice.tokenId) === 1) onState(state);
  };

  let numEvicted = 0;
  const makeRoomFor = (count: number): void => {
    if (!dropsTokens(overflow)) return;
    model.noteLength(sequence.view.numTokens + count);
    numEvicted += makeRoom(sequence, count, contextSize, model.pool.manager.blockSize, overflow, minSinks);
  };
  const startMs = host.now();
  const wantsToken = maxTokens > 0;
  // what was generated before is computed as it would have been
  const numPrompt = tokens.length - (resumed?.chosen.length ?? 0);
  await processPrompt(model, sequence, tokens, numPrompt, options, wantsToken ? readChoice : undefined, makeRoomFor);
  const promptMs = host.now() - startMs;

  const generated: number[] = [];
  const pieces: string[] = [];
  const next = new Int32Array(1);
  const request: StepRequest = {
    sequence,
    phase: 'decode',
    tokens: next,
    offset: 0,
    count: 1,
    outputRows: firstRow,
    signal,
    read: readChoice,
  };
  let numSteps = 0;
  let pausedMs = 0; // while the caller had the token
  let finishReason: FinishReason | undefined = wantsToken ? undefined : 'length';
  while (finishReason === undefined) {
    const { tokenId, logprob } = choice;
    const isEnd = options.ignoreEos !== true && model.eosIds.has(tokenId);
    let piece = '';
    if (isEnd) finishReason = 'eos';
    else {
      generated.push(tokenId);
      piece = text.push(tokenId);
      if (text.isStopped || constraint?.isComplete === true) finishReason = 'stop';
      else if (generated.length >= maxTokens) finishReason = 'length';
      else if (isFull(model, tokens.length + generated.length, overflow)) finishReason = 'context';
    }
    if (finishReason !== undefined) {
      piece += text.flush();
      state.hasEnded = true;
    }
    pieces.push(piece);
    if (!isEnd || piece !== '') {
      const handedOverMs = host.now();
      yield { tokenId, text: piece, logprob, topLogprobs };
      pausedMs += host.now() - handedOverMs;
    }
    if (finishReason !== undefined) break;
    signal?.throwIfAborted();
    makeRoomFor(1);
    next[0] = tokenId;
    const step = scheduler.run(request);
    constraint?.prepare(); // while the step runs
    await step;
    numSteps++;
  }
  if (finishReason === 'context' && overflow === 'error') {
    const needed = tokens.length + generated.length + 1;
    throw new CapacityError({ resource: 'context', needed, available: contextSize, unit: 'tokens' });
  }
  const generateMs = host.now() - startMs - promptMs - pausedMs;
  return {
    text: pieces.join(''),
    tokens: generated,
    promptTokens: tokens.length,
    cachedTokens: numCached,
    droppedTokens: numDropped,
    evictedTokens: numEvicted,
    finishReason,
    timings: {
      promptMs,
      generateMs,
      promptTokensPerSecond: perSecond(tokens.length - numCached, promptMs),
      tokensPerSecond: perSecond(numSteps, generateMs),
    },
  };
}

const firstRow: readonly number[] = [0];

/**
 * Computes the part of the prompt that is not cached, in chunks; `read` sees the outputs of the last token.
 * @param numPrompt tokens from there on were generated
 */
async function processPrompt(
  { scheduler, contextSize }: LoadedModel,
  sequence: Sequence,
  tokens: Int32Array,
  numPrompt: number,
  { signal, onPromptProgress, promptPhase = 'prefill' }: GenerateOptions,
  read: ((output: ReadOutput) => Promise<void>) | undefined,
  makeRoomFor: (count: number) => void,
): Promise<void> {
  let begin = sequence.view.numTokens;
  const maxChunk =
    tokens.length < contextSize ? scheduler.maxChunk : Math.min(scheduler.maxChunk, chunkLimit(contextSize));
  onPromptProgress?.({ processedTokens: begin, totalTokens: tokens.length });
  while (begin < tokens.length) {
    signal?.throwIfAborted();
    const phase = begin < numPrompt ? promptPhase : 'decode';
    const count = phase === 'decode' ? 1 : Math.min(maxChunk, numPrompt - begin);
    const isLast = begin + count === tokens.length;
    makeRoomFor(count);
    await scheduler.run({
      sequence,
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

/** What was asked for, or what the generation had that goes on. */
function samplingOf(
  { defaultSampling, host }: LoadedModel,
  options: GenerateOptions,
  resumed: GenerationState | undefined,
): Sampling {
  return resolveSampling(options, resumed?.sampling ?? defaultSampling, host.randomSeed);
}

/** Options that are not given are those it had. */
function resumedOptions({ options }: GenerationState, given: GenerateOptions): GenerateOptions {
  const { grammar: _grammar, jsonSchema: _jsonSchema, ...rest } = options;
  return isSameConstraint(given) ? { ...options, ...given } : { ...rest, ...given };
}

function isSameConstraint({ grammar, jsonSchema }: GenerateOptions): boolean {
  return grammar === undefined && jsonSchema === undefined;
}

/** Tokens at the end that belong to the constrained text. */
function numConstrainedOf({ options, numConstrained, chosen }: GenerationState): number {
  return isSameConstraint(options) ? 0 : numConstrained + chosen.length;
}

/** A text stream that has seen what came before. */
function textAfter(
  { tokenizer, constraints }: LoadedModel,
  tokens: Int32Array,
  options: GenerateOptions,
  resumed: GenerationState | undefined,
): TextStream {
  const isExact = options.grammar !== undefined || options.jsonSchema !== undefined;
  const stops = options.stop ?? [];
  const streamOptions = { isExact, shown: constraints.shownTokens(options) };
  if (resumed === undefined || resumed.hasEnded) return createTextStream(tokenizer, tokens, stops, streamOptions);
  const text = createTextStream(tokenizer, resumed.prompt, stops, streamOptions);
  for (const tokenId of resumed.chosen) text.push(tokenId);
  return text;
}

function isFull(
  { config, contextSize }: LoadedModel,
  numTokens: number,
  overflow: GenerateOptions['overflow'],
): boolean {
  if (overflow === 'slide' || overflow === 'evict') return numTokens >= (config.maxPositions ?? Infinity);
  return numTokens >= contextSize;
}

function checkCount(argument: string, value: number, max: number): number {
  if ((Number.isSafeInteger(value) || value === Infinity) && value >= 0 && value <= max) return value;
  const expected = max === Infinity ? 'an integer from 0' : `an integer from 0 to ${max}`;
  throw new ArgumentError({ argument, expected, actual: String(value) });
}

function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1000) / ms : 0;
}
