/** Token counts of an answer. */
import type { GenerationResult } from '@winnow/engine';
import type { Usage } from '../schemas/common.js';

export function usageOf(results: readonly GenerationResult[]): Usage {
  const sum = (read: (result: GenerationResult) => number): number =>
    results.reduce((total, result) => total + read(result), 0);
  const promptTokens = sum((result) => result.promptTokens);
  const completionTokens = sum((result) => result.tokens.length);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: sum((result) => result.cachedTokens) },
  };
}
