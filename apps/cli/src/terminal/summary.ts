/** Formats a finished generation as one line, and checks constraints. */
import type { GenerationResult } from '@winnow/engine';
import { UnfinishedOutputError } from '../errors/errors.js';

const reasons: Readonly<Record<GenerationResult['finishReason'], string>> = {
  eos: 'end token',
  stop: 'stop sequence',
  length: 'token limit',
  context: 'full context',
};

export function summaryLine(result: GenerationResult): string {
  const { tokens, promptTokens, cachedTokens, timings, finishReason, speculation } = result;
  const rate = (value: number): string => `${value.toFixed(1)} tokens/s`;
  const cached = cachedTokens > 0 ? `, ${cachedTokens} cached` : '';
  const prompt = `prompt ${promptTokens} tokens (${rate(timings.promptTokensPerSecond)}${cached})`;
  const drafted =
    speculation === undefined
      ? ''
      : `, ${speculation.numAcceptedTokens} of ${speculation.numDraftedTokens} drafted tokens accepted`;
  const generated = `generated ${tokens.length} (${rate(timings.tokensPerSecond)}${drafted})`;
  return `${prompt}, ${generated}, ended by ${reasons[finishReason]}`;
}

const cuts: Readonly<Record<GenerationResult['finishReason'], string>> = {
  eos: 'the end token',
  stop: 'a stop sequence',
  length: 'the token limit (try a larger --max-tokens)',
  context: 'the full context (try a larger --context)',
};

/** @throws {UnfinishedOutputError} when the text was cut before it matched its grammar or schema, or inside a call */
export function checkConstraint({ satisfiesConstraint, finishReason }: GenerationResult): void {
  if (satisfiesConstraint) return;
  throw new UnfinishedOutputError(
    `the text is unfinished: it was cut by ${cuts[finishReason]} before it matched the grammar, schema or tool`,
  );
}
