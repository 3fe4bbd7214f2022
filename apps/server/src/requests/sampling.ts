/** Converts request parameters to generation options. */
import { definedFields } from '@winnow/tensor';
import type { GenerateOptions, Speculative } from '@winnow/engine';

interface SamplingParameters {
  readonly temperature?: number;
  readonly top_p?: number;
  readonly top_k?: number;
  readonly min_p?: number;
  readonly repetition_penalty?: number;
  readonly presence_penalty?: number;
  readonly frequency_penalty?: number;
  readonly seed?: number;
  readonly logit_bias?: Readonly<Record<string, number>>;
  readonly speculative?: Speculative;
  readonly stop?: string | readonly string[];
}

/** OpenAI allows 0, the engine does not; this value also selects only the most probable token. */
const smallestTopP = 1e-9;

export function samplingOptionsOf(parameters: SamplingParameters): Partial<GenerateOptions> {
  const { stop, top_p: topP } = parameters;
  return definedFields<GenerateOptions>({
    temperature: parameters.temperature,
    topP: topP === undefined ? undefined : Math.max(topP, smallestTopP),
    topK: parameters.top_k,
    minP: parameters.min_p,
    repetitionPenalty: parameters.repetition_penalty,
    presencePenalty: parameters.presence_penalty,
    frequencyPenalty: parameters.frequency_penalty,
    seed: parameters.seed,
    logitBias: parameters.logit_bias,
    speculative: parameters.speculative,
    stop: stop === undefined ? undefined : typeof stop === 'string' ? [stop] : stop,
  });
}

/**
 * Options of one of several answers to a prompt. Equal seeds would give equal answers.
 * @param index from 0
 */
export function optionsOfChoice(options: GenerateOptions, index: number): GenerateOptions {
  const { seed } = options;
  return seed === undefined || index === 0 ? options : { ...options, seed: seed + index };
}
