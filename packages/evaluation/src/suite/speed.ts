/** Tokens per second of prefill and decode at several context lengths. */
import type { Model } from '@winnow/engine';

export interface SpeedPoint {
  /** Number of prompt tokens. */
  readonly length: number;
  readonly promptTokensPerSecond: number;
  /** Decode speed after the prompt. */
  readonly tokensPerSecond: number;
}

export interface SpeedOptions {
  /** Tokens, at least as many as the longest length. */
  readonly tokens: Int32Array;
  readonly lengths: readonly number[];
  /** Number of generated tokens. */
  readonly numAnswer: number;
  readonly signal?: AbortSignal | undefined;
}

/** Measures each length in a new session, after a short warm-up. The model should not share prefixes. */
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
