/** Boxes of the keys of pages, shared by the cases of policies that bound the logits of pages. */
import type { Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { CaseTensor } from '../kernel-case.js';
import type { AttentionProblem, AttentionSetup } from './attention-setup.js';
import { randomMeans } from './sparse-setup.js';

export interface Boxes {
  readonly shape: readonly number[];
  readonly boxCounts: CaseTensor;
  readonly low: Float64Array;
  readonly high: Float64Array;
  readonly norms: Float64Array;
}

/** Arbitrary boxes: an op uses them unchecked. */
export function randomBoxes(problem: AttentionProblem, setup: AttentionSetup, numParts: number, rng: Rng): Boxes {
  const { meanCounts: boxCounts, keyMeans } = randomMeans(problem, setup, numParts, rng);
  const { shape } = keyMeans;
  const numRows = shape[0] * shape[1] * shape[2];
  const middle = Float32Array.from({ length: numRows * setup.headDim }, () => rng.nextGaussian());
  const radius = Float32Array.from({ length: numRows * setup.headDim }, () => 0.5 * rng.nextFloat());
  return {
    ...{ shape, boxCounts },
    low: Float64Array.from(middle, (m, i) => Math.fround(m - radius[i])),
    high: Float64Array.from(middle, (m, i) => Math.fround(m + radius[i])),
    norms: Float64Array.from({ length: numRows }, () => Math.fround(1 + rng.nextFloat())),
  };
}

/** What a bound depends on besides the page. */
export interface BoundProblem {
  readonly problem: AttentionProblem;
  readonly setup: AttentionSetup;
  readonly boxes: Boxes;
  readonly arithmetic: Arithmetic;
  /** A query head. */
  readonly q: Float64Array;
}

/** The upper bound of the logits of a page, and its error. */
export function boundOf(
  { problem, setup, boxes, arithmetic, q }: BoundProblem,
  summary: number,
): { readonly bound: number; readonly error: number } {
  const { headDim, softCap } = setup;
  const { unit, elementary } = arithmetic;
  let sum = 0;
  let magnitude = 0;
  for (const [i, x] of q.entries()) {
    const [a, b] = [boxes.low[summary * headDim + i], boxes.high[summary * headDim + i]];
    sum += Math.max(problem.scale * x * a, problem.scale * x * b);
    magnitude += problem.scale * Math.abs(x) * Math.max(Math.abs(a), Math.abs(b));
  }
  const error = (headDim + 5) * unit * magnitude;
  if (softCap === 0) return { bound: sum, error };
  return { bound: softCap * Math.tanh(sum / softCap), error: error + (elementary + 4 * unit) * softCap };
}
