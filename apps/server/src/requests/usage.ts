/** Token counts of an answer. */
import type { GenerationResult } from '@winnow/engine';
import type { Usage } from '../schemas/common.js';

/**
 * @param results of each choice of each prompt in turn
 * @param numChoices per prompt, which counts once
 */
export function usageOf(results: readonly GenerationResult[], numChoices = 1): Usage {
  const sum = (of: readonly GenerationResult[], read: (result: GenerationResult) => number): number =>
    of.reduce((total, result) => total + read(result), 0);
  const firsts = results.filter((_, index) => index % numChoices === 0);
  const promptTokens = sum(firsts, (result) => result.promptTokens);
  const completionTokens = sum(results, (result) => result.tokens.length);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: sum(firsts, (result) => result.cachedTokens) },
  };
}
