/** Tokens per second of prompts and of answers, at several lengths. */
import type { Model } from '@winnow/engine';

export interface SpeedPoint {
  /** Tokens of the prompt; answers come after it. */
  readonly length: number;
  readonly promptTokensPerSecond: number;
  /** Of the tokens after the prompt. */
  readonly tokensPerSecond: number;
}

export interface SpeedOptions {
  /** At least as many as the longest length. */
  readonly tokens: Int32Array;
  readonly lengths: readonly number[];
  /** Tokens of each answer. */
  readonly numAnswer: number;
  readonly signal?: AbortSignal | undefined;
}

/** Each length in a session of its own, once before (short) to warm up. The model should not share prefixes. */
export async function measureSpeed(model: Model, options: SpeedOptions): Promise<SpeedPoint[]> {
  const { tokens, lengths, numAnswer, signal } = options;
  const run = async (length: number, maxTokens: number): Promise<SpeedPoint> => {
    const generation = model.generate(tokens.subarray(0, length), {
      maxTokens,
      temperature: 0,
      ignoreEos: true,
      ...(signal === undefined ? {} : { signal }),
    });
    const { timings } = await generation.result();
    const { promptTokensPerSecond, tokensPerSecond } = timings;
    return { length, promptTokensPerSecond, tokensPerSecond };
  };
  await run(Math.min(64, tokens.length), 4);
  const points: SpeedPoint[] = [];
  for (const length of lengths) points.push(await run(length, numAnswer));
  return points;
}
