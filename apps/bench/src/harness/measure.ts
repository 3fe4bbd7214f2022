/** Measures several contenders in turns, so that other load affects all of them alike. */

/** One thing to measure. */
export interface Contender {
  /** Does the work once; returns its milliseconds, or undefined to let the caller measure the time. */
  run(): Promise<number | void>;
}

export interface Timing {
  readonly medianMs: number;
  readonly minMs: number;
  readonly samplesMs: readonly number[];
}

export interface MeasureOptions {
  /** Number of warm-up runs of each contender. */
  readonly warmups: number;
  /** Number of measured runs of each contender. */
  readonly rounds: number;
}

/**
 * Runs the contenders in turns: first to last in even rounds, last to first in odd ones.
 * @returns a timing per contender, by name
 */
export async function measure(
  contenders: Readonly<Record<string, Contender>>,
  { warmups, rounds }: MeasureOptions,
): Promise<Record<string, Timing>> {
  const entries = Object.entries(contenders);
  const samples = new Map<string, number[]>(entries.map(([name]) => [name, []]));
  for (let round = -warmups; round < rounds; round++) {
    for (const [name, contender] of round % 2 === 0 ? entries : entries.toReversed()) {
      const startMs = performance.now();
      const ownMs = await contender.run();
      const timeMs = ownMs ?? performance.now() - startMs;
      if (round >= 0) samples.get(name)?.push(timeMs);
    }
  }
  return Object.fromEntries([...samples].map(([name, times]) => [name, timingOf(times)]));
}

export function timingOf(samplesMs: readonly number[]): Timing {
  return { medianMs: median(samplesMs), minMs: Math.min(...samplesMs), samplesMs };
}

/** @throws {Error} when there are no values */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  if (low === undefined || high === undefined) throw new Error('expected at least one value, got none');
  return (low + high) / 2;
}
