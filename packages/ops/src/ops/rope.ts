import { ArgumentError } from '@winnow/tensor';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { Attributes, OpSpec } from '../spec/op-spec.js';

/**
 * Rotary position embedding: rotates pair `i` of every head by the angle `positions[t] * frequencies[i]` and multiplies
 * it by `amplitude`. Other dims are unchanged. With `rows`, the frequencies are those of row `rows[t]`, of `numPairs` pairs.
 *
 * Shapes: x and y `[T, N, H]` f32, positions and rows `[T]` i32, frequencies `[F]` f32 with `2 F <= H` (see `ropeFrequencies`),
 * or as many rows of `numPairs` as there are.
 * `layout` says which dims form pair `i`: `neighbors` (2i, 2i + 1), `halves` (i, i + F). y may take the memory of x.
 * Numerics: angle, sine and cosine in f64.
 * Source: arXiv:2104.09864 eq. 34; amplitude: arXiv:2309.00071 eq. 15.
 */
export const rope: OpSpec = {
  name: 'rope',
  inputs: {
    x: { dtypes: f32Only, shape: 'T N H' },
    positions: { dtypes: i32Only, shape: 'T' },
    frequencies: { dtypes: f32Only, shape: 'F' },
    rows: { dtypes: i32Only, shape: 'T', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T N H', mayAlias: 'x' } },
  axes: { T: 'numTokens', N: 'numHeads', H: 'headDim', F: 'numFrequencies' },
  attributes: {
    layout: { kind: 'string', values: ['neighbors', 'halves'] },
    amplitude: { kind: 'number', default: 1 },
    numPairs: { kind: 'number', default: 0, integer: true },
  },
  fixedAxes: ['N', 'H', 'F'],
  partition: 'tokens',
  work: '2 * x.numElements',
  check({ x, frequencies, rows }, attributes) {
    const numFrequencies = Number(frequencies[0]);
    const numPairs = numRopePairs(numFrequencies, attributes);
    const [expected, actual] = [`at most ${Number(x[2]) / 2} pairs`, String(numPairs)];
    if (2 * numPairs > Number(x[2])) throw new ArgumentError({ argument: 'rope: frequencies', expected, actual });
    if (rows === undefined ? numPairs === numFrequencies : numFrequencies % numPairs === 0) return;
    const whole = rows === undefined ? `${numPairs} frequencies without rows` : `whole rows of ${numPairs} frequencies`;
    throw new ArgumentError({ argument: 'rope: frequencies', expected: whole, actual: String(numFrequencies) });
  },
  bindReference({ inputs: { x, positions, frequencies, rows }, outputs: { y }, attributes }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const layout = attributes['layout'] as RopeLayout;
    const table = frequencies.data as Float32Array;
    const numPairs = numRopePairs(table.length, attributes);
    const rowOf = (row: number): RowRotation =>
      new RowRotation(table.subarray(row * numPairs, (row + 1) * numPairs), layout, attributes['amplitude'] as number);
    return () => {
      let rotation = rowOf(0);
      const [numTokens, numHeads, headDim] = x.shape;
      for (let t = 0; t < numTokens; t++) {
        if (rows !== undefined) rotation = rowOf(rows.data[t]);
        rotation.moveTo(positions.data[t]);
        for (let head = 0; head < numHeads; head++) {
          const begin = (t * numHeads + head) * headDim;
          rotation.apply(xs, begin, ys, begin, headDim);
        }
      }
    };
  },
  flops: ({ x, frequencies }, attributes) => x[0] * numRopePairs(frequencies[0], attributes) * (6 * x[1] + 2),
};

/** Number of rotated pairs per head: the attribute `numPairs`, or 0 for all frequencies. */
export function numRopePairs(numFrequencies: number, attributes: Attributes): number {
  return (attributes['numPairs'] as number) || numFrequencies;
}

/** Which dims form a pair: neighbors, or one of each half. */
export type RopeLayout = 'neighbors' | 'halves';

/** The rotation of rows at one position at a time, as the op rotates them. */
export class RowRotation {
  readonly #frequencies: Float32Array;
  readonly #amplitude: number;
  readonly #stride: number;
  /** From the first dim of a pair to the second. */
  readonly #distance: number;
  readonly #cos: Float64Array;
  readonly #sin: Float64Array;

  constructor(frequencies: Float32Array, layout: RopeLayout, amplitude = 1) {
    const numPairs = frequencies.length;
    this.#frequencies = frequencies;
    this.#amplitude = amplitude;
    [this.#stride, this.#distance] = layout === 'neighbors' ? [2, 1] : [1, numPairs];
    this.#cos = new Float64Array(numPairs);
    this.#sin = new Float64Array(numPairs);
  }

  moveTo(position: number): void {
    for (let i = 0; i < this.#cos.length; i++) {
      const angle = position * this.#frequencies[i];
      this.#cos[i] = Math.cos(angle) * this.#amplitude;
      this.#sin[i] = Math.sin(angle) * this.#amplitude;
    }
  }

  /** Rotates `headDim` values of `x` into `y`, which may be the same. */
  apply(x: Float32Array, xBegin: number, y: Float32Array, yBegin: number, headDim: number): void {
    const numPairs = this.#cos.length;
    for (let i = 0; i < numPairs; i++) {
      const first = i * this.#stride;
      const second = first + this.#distance;
      const a = x[xBegin + first];
      const b = x[xBegin + second];
      y[yBegin + first] = a * this.#cos[i] - b * this.#sin[i];
      y[yBegin + second] = a * this.#sin[i] + b * this.#cos[i];
    }
    for (let i = 2 * numPairs; i < headDim; i++) y[yBegin + i] = x[xBegin + i];
  }
}
