/** The sampling that a Hugging Face model recommends in its generation_config.json. */
import type { JsonObject } from '@winnow/hub';
import { samplingRules, type SamplingOptions } from './sampling-options.js';

/**
 * `do_sample: false` means greedy; fields that are missing or null say nothing. A `top_k` of -1 switches it off, as
 * other engines write it.
 * @throws {FormatError} for invalid values
 */
export function recommendedSampling(config: JsonObject): SamplingOptions {
  if (config.optionalBoolean('do_sample') === false) return { temperature: 0 };
  const topK = config.optionalNumber('top_k');
  const given: [keyof SamplingOptions, string, number | undefined][] = [
    ['temperature', 'temperature', config.optionalNumber('temperature')],
    ['topK', 'top_k', topK === -1 ? 0 : topK],
    ['topP', 'top_p', config.optionalNumber('top_p')],
    ['minP', 'min_p', config.optionalNumber('min_p')],
    ['repetitionPenalty', 'repetition_penalty', config.optionalNumber('repetition_penalty')],
  ];
  const sampling: { -readonly [name in keyof SamplingOptions]: SamplingOptions[name] } = {};
  for (const [name, field, value] of given) {
    if (value === undefined) continue;
    const [expected, isValid] = samplingRules[name];
    if (!isValid(value)) throw config.invalid(field, `expected ${expected}, found ${value}`);
    sampling[name] = value;
  }
  return sampling;
}
