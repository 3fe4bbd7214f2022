/** Where a generation stands: what is needed to go on with it later, token for token. */
import type { RngState } from '@winnow/tensor';
import type { Sampling } from './sampling-options.js';
import { textOf } from './constraint.js';
import type { GenerateOptions } from './generation.js';

/** Options that stay those of the generation when it goes on, unless the caller gives others. */
export interface LastingOptions extends Pick<
  GenerateOptions,
  'stop' | 'ignoreEos' | 'numTopLogprobs' | 'overflow' | 'jsonSchema' | 'showTokens'
> {
  readonly grammar?: string;
}

export interface GenerationState {
  /** What it began with, as it was used. */
  readonly prompt: Int32Array;
  /** Tokens at the end of the prompt that a grammar takes as the beginning of what is chosen. */
  readonly numConstrained: number;
  /** Tokens chosen so far. All but the last have been computed. */
  readonly chosen: number[];
  readonly sampling: Sampling;
  readonly options: LastingOptions;
  /** Where the draws of its sampler stand. */
  rngState(): RngState;
  /** It has given all its text; otherwise some may be held back still. */
  hasEnded: boolean;
}

/** All tokens so far. */
export function tokensOf({ prompt, chosen }: GenerationState): Int32Array {
  const tokens = new Int32Array(prompt.length + chosen.length);
  tokens.set(prompt);
  tokens.set(chosen, prompt.length);
  return tokens;
}

export function lastingOptions(options: GenerateOptions): LastingOptions {
  const { stop, ignoreEos, numTopLogprobs, overflow, grammar, jsonSchema, showTokens } = options;
  return {
    ...(stop === undefined ? {} : { stop }),
    ...(ignoreEos === undefined ? {} : { ignoreEos }),
    ...(numTopLogprobs === undefined ? {} : { numTopLogprobs }),
    ...(overflow === undefined ? {} : { overflow }),
    ...(grammar === undefined ? {} : { grammar: textOf(grammar) }),
    ...(jsonSchema === undefined ? {} : { jsonSchema }),
    ...(showTokens === undefined ? {} : { showTokens }),
  };
}

/** The state as it is now: what goes on later does not change it. */
export function snapshotOf(state: GenerationState): GenerationState {
  const rngState = state.rngState();
  return { ...state, chosen: [...state.chosen], rngState: () => rngState };
}
