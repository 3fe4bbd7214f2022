/** Cosines and correlation coefficients of two lists of the same length. */
import { dotProduct } from '@winnow/ops';
import { covarianceOf } from './statistics.js';

/** Cosine of vectors of length 1. */
export function cosineOf(a: Float32Array, b: Float32Array): number {
  return dotProduct(a, 0, b, 0, a.length);
}

/** Pearson's correlation: the cosine of the deviations from the means. 1 when both lists are constant, 0 when one is. */
export function pearson(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const scale = Math.sqrt(covarianceOf(a, a) * covarianceOf(b, b));
  if (scale > 0) return Math.max(-1, Math.min(1, covarianceOf(a, b) / scale));
  return covarianceOf(a, a) === covarianceOf(b, b) ? 1 : 0;
}

/** Spearman's rank correlation; ties share the mean of their ranks. */
export function spearman(a: readonly number[], b: readonly number[]): number {
  return pearson(ranks(a), ranks(b));
}

/** Ranks, starting at 1. */
function ranks(values: readonly number[]): number[] {
  const order = Array.from(values.keys()).sort((i, j) => (values[i] as number) - (values[j] as number));
  const result = new Array<number>(values.length).fill(0);
  for (let begin = 0; begin < order.length;) {
    let end = begin + 1;
    while (end < order.length && values[order[end] as number] === values[order[begin] as number]) end++;
    for (let at = begin; at < end; at++) result[order[at] as number] = (begin + 1 + end) / 2;
    begin = end;
  }
  return result;
}
