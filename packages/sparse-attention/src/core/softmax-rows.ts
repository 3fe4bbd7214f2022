/** Online softmax over rows of queries in f64: what every family here accumulates with. */
import type { PartialStates } from '@winnow/ops';

/** States `(m, l, o)` as `PartialStates` of `@winnow/ops`, kept in f64. */
export class SoftmaxRows {
  readonly numRows: number;
  readonly dim: number;
  readonly m: Float64Array; // [numRows]
  readonly l: Float64Array; // [numRows]
  readonly o: Float64Array; // [numRows, dim]

  constructor(numRows: number, dim: number) {
    this.numRows = numRows;
    this.dim = dim;
    this.m = new Float64Array(numRows);
    this.l = new Float64Array(numRows);
    this.o = new Float64Array(numRows * dim);
  }

  clear(): void {
    this.m.fill(-Infinity);
    this.l.fill(0);
    this.o.fill(0);
  }

  /** Adds a key of this logit whose value starts at `values[offset]`. A logit of -Infinity is a key not seen. */
  add(row: number, logit: number, values: Float32Array, offset: number): void {
    if (logit === -Infinity) return;
    const { m, l, o, dim } = this;
    const begin = row * dim;
    if (logit > m[row] || Number.isNaN(logit)) {
      const shrink = m[row] === -Infinity ? 0 : Math.exp(m[row] - logit);
      l[row] *= shrink;
      for (let i = begin; i < begin + dim; i++) o[i] *= shrink;
      m[row] = logit;
    }
    const weight = Math.exp(logit - m[row]);
    l[row] += weight;
    for (let i = 0; i < dim; i++) o[begin + i] += weight * values[offset + i];
  }

  /** Writes `o / l` of `numRows` rows from `first`, one after the other; zeros for a row that saw no key. */
  finish(out: Float32Array, offset: number, first = 0, numRows: number = this.numRows): void {
    const { l, o, dim } = this;
    for (let row = 0; row < numRows; row++) {
      const factor = l[first + row] === 0 ? 0 : 1 / l[first + row];
      const from = (first + row) * dim;
      for (let i = 0; i < dim; i++) out[offset + row * dim + i] = o[from + i] * factor;
    }
  }

  /** Writes the states of `numRows` rows from `first` to rows `targetRow...` of `target`. */
  store(target: PartialStates, targetRow: number, first = 0, numRows: number = this.numRows): void {
    const { m, l, o, dim } = this;
    for (let row = first; row < first + numRows; row++) {
      const at = targetRow + row - first;
      target.m[at] = m[row];
      const rounding = m[row] === -Infinity ? 0 : Math.exp(m[row] - target.m[at]); // sums follow the stored maximum
      target.l[at] = l[row] * rounding;
      for (let i = 0; i < dim; i++) target.o[at * dim + i] = o[row * dim + i] * rounding;
    }
  }
}
