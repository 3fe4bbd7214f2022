/** The sums of one softmax in f64, key by key, for the references of sparse attention. */

/** `out = sum(exp(s) v) / sum(exp(s))` over the keys added so far, relative to the largest logit `max`. */
export class SoftmaxSum {
  max: number = -Infinity;
  /** Sum of `exp(s - max)`. */
  sum = 0;
  readonly #weighted: Float64Array;

  constructor(valueDim: number) {
    this.#weighted = new Float64Array(valueDim);
  }

  clear(): void {
    this.max = -Infinity;
    this.sum = 0;
    this.#weighted.fill(0);
  }

  /** A logit of -Infinity is a masked key; NaN and +Infinity make the result NaN. */
  add(logit: number, value: Float32Array): void {
    if (logit === -Infinity) return;
    const weighted = this.#weighted;
    if (logit > this.max || Number.isNaN(logit)) {
      const shrink = this.max === -Infinity ? 0 : Math.exp(this.max - logit);
      this.sum *= shrink;
      for (let i = 0; i < weighted.length; i++) weighted[i] *= shrink;
      this.max = logit;
    }
    const weight = Math.exp(logit - this.max);
    this.sum += weight;
    for (let i = 0; i < weighted.length; i++) weighted[i] += weight * value[i];
  }

  /** Value `i` of the quotient; 0 when no key was added. */
  mean(i: number): number {
    return this.sum === 0 ? 0 : this.#weighted[i] / this.sum;
  }

  /** Writes the quotient to `out[begin...]`. */
  finish(out: Float32Array, begin: number): void {
    for (let i = 0; i < this.#weighted.length; i++) out[begin + i] = this.mean(i);
  }
}
