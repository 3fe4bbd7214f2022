/** The state of a generation: what is needed to resume it, token for token. */
import type { RngState } from '@winnow/tensor';
import type { Sampling } from './sampling-options.js';
import type { GenerateOptions } from './generation.js';

/** Options that a resumed generation keeps unless the caller overrides them. */
export type LastingOptions = Pick<
  GenerateOptions,
  | 'stop'
  | 'ignoreEos'
  | 'numTopLogprobs'
  | 'logitBias'
  | 'overflow'
  | 'grammar'
  | 'jsonSchema'
  | 'showTokens'
  | 'spanLimit'
>;

export interface GenerationState {
  /** The prompt as used. */
  readonly prompt: Int32Array;
  /** Number of tokens at the end of the prompt that belong to the constrained text. */
  readonly numConstrained: number;
  /** Tokens chosen so far. All but the last have been computed. */
  readonly chosen: number[];
  readonly sampling: Sampling;
  readonly options: LastingOptions;
  /** The state of its random number generator. */
  rngState(): RngState;
  /** Whether all of its text was output; otherwise some may be held back. */
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
  const { stop, ignoreEos, numTopLogprobs, logitBias, overflow, grammar, jsonSchema, showTokens, spanLimit } = options;
  return {
    ...(stop === undefined ? {} : { stop }),
    ...(ignoreEos === undefined ? {} : { ignoreEos }),
    ...(numTopLogprobs === undefined ? {} : { numTopLogprobs }),
    ...(logitBias === undefined ? {} : { logitBias }),
    ...(overflow === undefined ? {} : { overflow }),
    ...(grammar === undefined ? {} : { grammar }),
    ...(jsonSchema === undefined ? {} : { jsonSchema }),
    ...(showTokens === undefined ? {} : { showTokens }),
    ...(spanLimit === undefined ? {} : { spanLimit }),
  };
}

/** A copy of the current state, which later tokens do not change. */
export function snapshotOf(state: GenerationState): GenerationState {
  const rngState = state.rngState();
  return { ...state, chosen: [...state.chosen], rngState: () => rngState };
}
