/**
 * The state of an online softmax over part of the keys: the maximum logit `m`, the sum `l` of `exp(s - m)`, and the sum
 * `o` of `exp(s - m) * v`. States over disjoint keys merge exactly and in any order; dividing `o` by `l` at the end gives
 * the attention output. The empty state is `m = -Infinity, l = 0, o = 0`. Source: arXiv:2112.05682 and arXiv:2205.14135.
 */

/** States of many rows: `m` and `l` hold one value per row, `o` holds `dim` values per row. */
export interface PartialStates {
  readonly m: Float32Array;
  readonly l: Float32Array;
  readonly o: Float32Array;
}

/** Empties row `row`. */
export function clearState({ m, l, o }: PartialStates, row: number, dim: number): void {
  m[row] = -Infinity;
  l[row] = 0;
  o.fill(0, row * dim, (row + 1) * dim);
}

/** Adds row `sourceRow` of `source` to row `row` of `target`. */
export function mergeState(
  target: PartialStates,
  row: number,
  source: PartialStates,
  sourceRow: number,
  dim: number,
): void {
  const sourceMax = source.m[sourceRow];
  if (sourceMax === -Infinity) return;
  const targetMax = target.m[row];
  const max = Math.max(targetMax, sourceMax);
  const targetScale = targetMax === -Infinity ? 0 : Math.exp(targetMax - max);
  const sourceScale = Math.exp(sourceMax - max);
  target.m[row] = max;
  target.l[row] = target.l[row] * targetScale + source.l[sourceRow] * sourceScale;
  for (let i = 0; i < dim; i++) {
    target.o[row * dim + i] = target.o[row * dim + i] * targetScale + source.o[sourceRow * dim + i] * sourceScale;
  }
}
