/** Metadata of a finished generation in LangChain's format. */
import type { UsageMetadata } from '@langchain/core/messages';
import type { FinishReason, GenerationResult } from '@winnow/engine';

export function usageOf({ promptTokens, cachedTokens, tokens }: GenerationResult): UsageMetadata {
  return {
    input_tokens: promptTokens,
    output_tokens: tokens.length,
    total_tokens: promptTokens + tokens.length,
    input_token_details: { cache_read: cachedTokens },
  };
}

const finishReasons: Readonly<Record<FinishReason, string>> = {
  eos: 'stop',
  stop: 'stop',
  length: 'length',
  context: 'length',
};

/**
 * Metadata under the names that LangChain's providers share; `winnow` has the engine's own figures.
 * @param endsWithCall whether the last call of the answer is complete
 */
export function responseMetadata(
  name: string,
  result: GenerationResult,
  endsWithCall: boolean,
): Record<string, unknown> {
  const { finishReason, droppedTokens, evictedTokens, timings } = result;
  return {
    model: name,
    model_name: name,
    model_provider: 'winnow',
    finish_reason: endsWithCall ? 'tool_calls' : finishReasons[finishReason],
    winnow: { finishReason, droppedTokens, evictedTokens, timings },
  };
}

/** The total, under the names of `llmOutput`. */
export function tokenUsage(...usages: readonly (UsageMetadata | undefined)[]): Record<string, number> {
  const sum = (name: 'input_tokens' | 'output_tokens' | 'total_tokens'): number =>
    usages.reduce((total, usage) => total + (usage?.[name] ?? 0), 0);
  return {
    promptTokens: sum('input_tokens'),
    completionTokens: sum('output_tokens'),
    totalTokens: sum('total_tokens'),
  };
}
