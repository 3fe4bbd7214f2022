import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** Kinds of pooling. */
export type PoolingKind = 'mean' | 'first' | 'last' | 'max' | 'weighted-mean' | 'mean-sqrt';

/** In the order of their encoded values. */
export const poolingKinds: readonly PoolingKind[] = ['mean', 'first', 'last', 'max', 'weighted-mean', 'mean-sqrt'];

/**
 * Pools each run of rows into one: `y[b]` from the `n = lengths[b]` rows `x[starts[b] + i]`, `0 <= i < n`.
 *
 * - `mean`: `sum(x_i) / n`; `mean-sqrt`: `sum(x_i) / sqrt(n)`
 * - `weighted-mean`: `sum((i + 1) x_i) / (n (n + 1) / 2)` (SGPT, arXiv:2202.08904 eq. 2)
 * - `first` and `last`: that row; `max`: the largest value of each column
 *
 * Shapes: x `[T, E]` f32, starts and lengths `[B]` i32 inside of the T rows, y `[B, E]` f32. An empty run gives 0.
 * Numerics: sums in f64.
 */
export const poolRows: OpSpec = {
  name: 'pool-rows',
  inputs: {
    x: { dtypes: f32Only, shape: 'T E' },
    starts: { dtypes: i32Only, shape: 'B' },
    lengths: { dtypes: i32Only, shape: 'B' },
  },
  outputs: { y: { dtypes: f32Only, shape: 'B E' } },
  axes: { T: 'numTokens', E: 'dim', B: 'numSequences' },
  attributes: { kind: { kind: 'string', values: poolingKinds } },
  fixedAxes: ['E'],
  partition: 'rows',
  bindReference({ inputs: { x, starts, lengths }, outputs: { y }, attributes }) {
    const kind = attributes['kind'] as PoolingKind;
    const hiddenDim = x.shape[1];
    return () => {
      const numRuns = starts.shape[0];
      for (let b = 0; b < numRuns; b++) {
        const numRows = lengths.data[b];
        for (let column = 0; column < hiddenDim; column++) {
          const at = (i: number): number => x.data[(starts.data[b] + i) * hiddenDim + column];
          y.data[b * hiddenDim + column] = numRows <= 0 ? 0 : pool(kind, numRows, at);
        }
      }
    };
  },
  flops: ({ x }) => 2 * x[0] * x[1],
};

/** @param numRows at least 1 */
function pool(kind: PoolingKind, numRows: number, at: (i: number) => number): number {
  if (kind === 'first') return at(0);
  if (kind === 'last') return at(numRows - 1);
  let sum = 0;
  let max = at(0);
  for (let i = 0; i < numRows; i++) {
    sum += kind === 'weighted-mean' ? (i + 1) * at(i) : at(i);
    max = Math.max(max, at(i));
  }
  if (kind === 'max') return max;
  if (kind === 'mean-sqrt') return sum / Math.sqrt(numRows);
  return sum / (kind === 'mean' ? numRows : (numRows * (numRows + 1)) / 2);
}
