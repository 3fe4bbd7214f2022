/** One line about a generation, for people. */
import type { GenerationResult } from '@winnow/engine';

const reasons: Readonly<Record<GenerationResult['finishReason'], string>> = {
  eos: 'end token',
  stop: 'stop text',
  length: 'token limit',
  context: 'full context',
};

export function summaryLine({ tokens, promptTokens, cachedTokens, timings, finishReason }: GenerationResult): string {
  const rate = (value: number): string => `${value.toFixed(1)} tokens/s`;
  const cached = cachedTokens > 0 ? `, ${cachedTokens} cached` : '';
  const prompt = `prompt ${promptTokens} tokens (${rate(timings.promptTokensPerSecond)}${cached})`;
  return `${prompt}, generated ${tokens.length} (${rate(timings.tokensPerSecond)}), ended by ${reasons[finishReason]}`;
}
