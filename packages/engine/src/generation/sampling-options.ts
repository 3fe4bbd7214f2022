/** How the next token is sampled. Names and defaults follow llama.cpp. */
import { ArgumentError, type OptionNames } from '@winnow/tensor';

/**
 * The sampler chain: penalties, top-k, top-p, min-p, temperature, then one draw. Each stage is off at the value that
 * its field names.
 */
export interface SamplingOptions {
  /** Divides the logits before the draw, from 0 on; 0: greedy, always the most probable token. Default 0.8. */
  readonly temperature?: number;
  /** Keep the k most probable tokens, an integer from 0 on; 0: all. Default 40. */
  readonly topK?: number;
  /**
   * Keep the smallest set of most probable tokens whose probabilities sum to p, above 0 and at most 1; 1: all. Default
   * 0.95.
   */
  readonly topP?: number;
  /** Drop tokens less probable than this share, from 0 to 1, of the most probable one; 0: none. Default 0.05. */
  readonly minP?: number;
  /** Divide positive logits (multiply negative ones) of recent tokens by this; 1: off. Default 1. arXiv:1909.05858 */
  readonly repetitionPenalty?: number;
  /** Subtract this once from recent tokens; 0: off. Default 0. */
  readonly presencePenalty?: number;
  /** Subtract this from the logit of a token for each of its occurrences; 0: off. Default 0. */
  readonly frequencyPenalty?: number;
  /** Number of recent tokens that count as repeated, prompt included; 0: none, -1: all. Default 64. */
  readonly penaltyWindow?: number;
  /** Random seed, an integer. Default: random. */
  readonly seed?: number;
}

export const samplingNames: OptionNames<SamplingOptions> = {
  temperature: true,
  topK: true,
  topP: true,
  minP: true,
  repetitionPenalty: true,
  presencePenalty: true,
  frequencyPenalty: true,
  penaltyWindow: true,
  seed: true,
};

/** All options with their values. */
export type Sampling = Required<SamplingOptions>;

const defaults: Omit<Sampling, 'seed'> = {
  temperature: 0.8,
  topK: 40,
  topP: 0.95,
  minP: 0.05,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  penaltyWindow: 64,
};

type Rule = readonly [expected: string, isValid: (value: number) => boolean];
/** Valid values of each option. */
export const samplingRules: Readonly<Record<keyof Sampling, Rule>> = {
  temperature: ['a number from 0', (value) => value >= 0],
  topK: ['an integer from 0', (value) => Number.isSafeInteger(value) && value >= 0],
  topP: ['a number above 0, at most 1', (value) => value > 0 && value <= 1],
  minP: ['a number from 0 to 1', (value) => value >= 0 && value <= 1],
  repetitionPenalty: ['a positive number', (value) => value > 0],
  presencePenalty: ['a number', () => true],
  frequencyPenalty: ['a number', () => true],
  penaltyWindow: ['an integer from -1', (value) => Number.isSafeInteger(value) && value >= -1],
  seed: ['an integer', (value) => Number.isSafeInteger(value)],
};

/**
 * The caller's values, then the model's recommendations, then the defaults. A value that is given as `undefined` counts
 * as not given.
 * @throws {ArgumentError} for invalid values
 */
export function resolveSampling(
  options: SamplingOptions,
  recommended: SamplingOptions,
  randomSeed: () => number,
): Sampling {
  const names = Object.keys(samplingRules) as (keyof Sampling)[];
  const entries = names.map((name) => {
    const fallback = name === 'seed' ? undefined : defaults[name];
    const value = options[name] ?? recommended[name] ?? fallback ?? randomSeed();
    const [expected, isValid] = samplingRules[name];
    if (!Number.isFinite(value) || !isValid(value)) {
      throw new ArgumentError({ argument: name, expected, actual: String(value) });
    }
    return [name, value];
  });
  return Object.fromEntries(entries) as Sampling;
}
