/** Similarities of the outputs that texts have beside their vectors. */
import { ShapeError } from '@winnow/tensor';
import type { SparseVector } from './token-outputs.js';

/** The dot product of two sparse vectors: the score of lexical weights. */
export function lexicalScore(a: SparseVector, b: SparseVector): number {
  let [i, j, sum] = [0, 0, 0];
  while (i < a.indices.length && j < b.indices.length) {
    const difference = (a.indices[i] as number) - (b.indices[j] as number);
    if (difference === 0) sum += (a.values[i] as number) * (b.values[j] as number);
    if (difference <= 0) i++;
    if (difference >= 0) j++;
  }
  return sum;
}

/**
 * The late interaction of ColBERT (arXiv:2004.12832 section 3.3): `sum_i max_j q_i . d_j`. BGE-M3 divides it by the number of
 * query vectors. 0 without vectors.
 * @throws {ShapeError} for vectors of different lengths
 */
export function maxSim(query: readonly Float32Array[], document: readonly Float32Array[]): number {
  let sum = 0;
  for (const q of query) {
    let max = -Infinity;
    for (const d of document) max = Math.max(max, dot(q, d));
    if (document.length > 0) sum += max;
  }
  return sum;
}

function dot(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) {
    throw new ShapeError({
      op: 'maxSim',
      rule: 'vectors of one length',
      expected: String(a.length),
      actual: String(b.length),
    });
  }
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}
