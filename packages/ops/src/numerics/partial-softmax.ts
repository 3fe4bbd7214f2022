/**
 * The state of an online softmax over part of the keys: the maximum logit `m`, the sum `l` of `exp(s - m)`, and the sum
 * `o` of `exp(s - m) * v`. States over disjoint keys merge exactly and in any order; dividing `o` by `l` at the end
 * gives the attention output. The empty state is `m = -Infinity, l = 0, o = 0`.
 * Source: arXiv:2112.05682 and arXiv:2205.14135.
 */

/** States of many rows: `m` and `l` hold one value per row, `o` holds `dim` values per row. */
export interface PartialStates {
  readonly m: Float32Array;
  readonly l: Float32Array;
  readonly o: Float32Array;
}

/** Empty states of `numRows` rows. */
export function createStates(numRows: number, dim: number): PartialStates {
  return {
    m: new Float32Array(numRows).fill(-Infinity),
    l: new Float32Array(numRows),
    o: new Float32Array(numRows * dim),
  };
}

/** Empties row `row`. */
export function clearState({ m, l, o }: PartialStates, row: number, dim: number): void {
  m[row] = -Infinity;
  l[row] = 0;
  o.fill(0, row * dim, (row + 1) * dim);
}

/** Merges row `sourceRow` of `source` into row `row` of `target`. */
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

/** Attention output `o / l`, zeros without visible keys, as in `attention-finish`. */
export function finishStates({ l, o }: PartialStates): Float32Array {
  const out = new Float32Array(o.length);
  finishRows(l, o, l.length, out);
  return out;
}

/** Writes the output of the first `numRows` rows to `out`. */
export function finishRows(l: ArrayLike<number>, o: ArrayLike<number>, numRows: number, out: Float32Array): void {
  const dim = o.length / l.length;
  for (let row = 0; row < numRows; row++) {
    const factor = l[row] === 0 ? 0 : 1 / l[row];
    for (let i = row * dim; i < (row + 1) * dim; i++) out[i] = o[i] * factor;
  }
}
