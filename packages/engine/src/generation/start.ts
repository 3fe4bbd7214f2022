/** Checks what a generation starts from: options, limits, prompt. */
import { ArgumentError, type RngState } from '@winnow/tensor';
import type { GenerateOptions } from './generation.js';
import type { LoadedModel } from './loaded-model.js';
import { checkOverflow, dropsTokens, type OverflowPolicy } from './overflow.js';
import { fitPrompt, type FittedPrompt } from './prompt-fit.js';
import { resolveSampling, type Sampling } from './sampling-options.js';
import { tokensOf, type GenerationState } from './state.js';
import { StopMatcher } from './stop-matcher.js';
import { TextStream } from './text-stream.js';

/** What a generation starts from. */
export type GenerationStart =
  | { readonly prompt: Int32Array; readonly resumed?: undefined }
  /** A generation to resume; options that are not given keep their values. */
  | { readonly resumed: GenerationState };

export interface Limits {
  readonly maxTokens: number;
  readonly numTopLogprobs: number;
  readonly overflow: OverflowPolicy;
}

/** What a generation needs besides its grammar; the options are valid and the prompt fits. */
export interface CheckedStart {
  readonly options: GenerateOptions;
  readonly limits: Limits;
  readonly sampling: Sampling;
  /** The prompt and, when resumed, the tokens that were generated. */
  readonly fitted: FittedPrompt;
  readonly text: TextStream;
  /** Number of tokens at the end that were generated before. */
  readonly numResumed: number;
  /** Tokens at the end that belong to the constrained text. */
  readonly constrained: Int32Array;
  /** Where the random numbers of a resumed generation go on, unless it has a seed of its own. */
  readonly rngState: RngState | undefined;
}

/** @throws {ArgumentError | CapacityError} */
export function checkStart(model: LoadedModel, start: GenerationStart, given: GenerateOptions): CheckedStart {
  const { resumed } = start;
  const options = optionsOf(start, given);
  const limits = limitsOf(model, options);
  const sampling = resolveSampling(given, resumed?.sampling ?? model.defaultSampling, model.host.randomSeed);
  const allTokens = resumed === undefined ? start.prompt : tokensOf(resumed);
  const fitted = fitPrompt(allTokens, model.contextSize, limits.overflow);
  const numConstrained = resumed === undefined || setsConstraint(given) ? 0 : numConstrainedOf(resumed);
  return {
    ...{ options, limits, sampling, fitted },
    text: textAfter(model, fitted.tokens, options, resumed),
    numResumed: resumed?.chosen.length ?? 0,
    constrained: allTokens.subarray(Math.max(0, allTokens.length - numConstrained)),
    rngState: given.seed === undefined ? resumed?.rngState() : undefined,
  };
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
  const stops = new StopMatcher(options.stop ?? []);
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
