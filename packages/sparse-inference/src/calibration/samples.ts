/** Splits samples by purpose and into groups between checkpoints. */
import { createRng } from '@winnow/tensor';
import { batchTokens } from './options.js';
import { shuffled } from './shuffled.js';

type Sample = ArrayLike<number>;

/** Samples by purpose. */
export type SampleParts = Readonly<Record<'train' | 'select' | 'verify', readonly Sample[]>>;

/** A tenth for thresholds, a tenth for the report, the rest for training, chosen by the seed. */
export function splitSamples(samples: readonly Sample[], seed: number): SampleParts {
  const order = Array.from(shuffled(samples.length, createRng(seed)), (index) => samples[index] as Sample);
  const numHeld = Math.max(1, Math.round(samples.length / 10));
  return {
    select: order.slice(0, numHeld),
    verify: order.slice(numHeld, 2 * numHeld),
    train: order.slice(2 * numHeld),
  };
}

/** Groups of consecutive samples with at most this many tokens; a longer sample forms its own group. */
export function groupsOf(samples: readonly Sample[], maxTokens: number): Sample[][] {
  const groups: Sample[][] = [];
  let numTokens = Infinity;
  for (const sample of samples) {
    if (numTokens + sample.length > maxTokens) {
      groups.push([]);
      numTokens = 0;
    }
    groups.at(-1)?.push(sample);
    numTokens += sample.length;
  }
  return groups;
}

/** Training steps over all groups. */
export function numStepsOf(groups: readonly (readonly Sample[])[], epochs: number): number {
  const stepsOf = (numTokens: number): number => Math.floor(numTokens / Math.min(batchTokens, numTokens));
  return groups.reduce((sum, group) => sum + epochs * stepsOf(totalLength(group)), 0);
}

export function totalLength(samples: readonly Sample[]): number {
  return samples.reduce((sum, { length }) => sum + length, 0);
}
