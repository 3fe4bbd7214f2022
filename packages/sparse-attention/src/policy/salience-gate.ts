/**
 * A learned gate that selects the log-stride tokens to keep: a FastGRNN cell (arXiv:1901.02358) over the keys
 * in order, and a threshold on a read-out of its state. Causal: later tokens never change a decision.
 */
import { activationFunction } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';

const sigmoid = activationFunction('sigmoid');

/** Weights of the gate; the matrices are row-major. */
export interface FastGrnnWeights {
  readonly inputDim: number;
  readonly hiddenDim: number;
  readonly input: Float32Array; // W [hiddenDim, inputDim]
  readonly recurrent: Float32Array; // U [hiddenDim, hiddenDim]
  readonly gateBias: Float32Array; // [hiddenDim]
  readonly updateBias: Float32Array; // [hiddenDim]
  readonly readOut: Float32Array; // [hiddenDim]
  readonly readOutBias: number;
  /** Residual weights of the cell, in [0, 1]. */
  readonly zeta: number;
  readonly nu: number;
}

/** The gate of one sequence. */
export class FastGrnnGate {
  readonly #weights: FastGrnnWeights;
  readonly #threshold: number;
  readonly #hidden: Float64Array;
  readonly #next: Float64Array;
  #keep = new Uint8Array(0);
  #length = 0;

  /**
   * Tokens with a salience (0 to 1) of at least `threshold` are kept. @throws {ArgumentError} for weights of other
   * sizes
   */
  constructor(weights: FastGrnnWeights, threshold = 0.5) {
    const { inputDim, hiddenDim, input, recurrent, gateBias, updateBias, readOut } = weights;
    const sizes = [input.length, recurrent.length, gateBias.length, updateBias.length, readOut.length];
    const expected = [hiddenDim * inputDim, hiddenDim * hiddenDim, hiddenDim, hiddenDim, hiddenDim];
    if (sizes.join() !== expected.join()) {
      throw new ArgumentError({ argument: 'FastGrnnGate', expected: expected.join(), actual: sizes.join() });
    }
    this.#weights = weights;
    this.#threshold = threshold;
    this.#hidden = new Float64Array(hiddenDim);
    this.#next = new Float64Array(hiddenDim);
  }

  get length(): number {
    return this.#length;
  }

  /** Appends the key of the next token, `inputDim` values from `key[offset]`, and returns its salience. */
  append(key: Float32Array, offset = 0): number {
    const { inputDim, hiddenDim, input, recurrent, gateBias, updateBias, readOut, readOutBias, zeta, nu } =
      this.#weights;
    let score = readOutBias;
    for (let row = 0; row < hiddenDim; row++) {
      let sum = 0;
      for (let i = 0; i < inputDim; i++) sum += input[row * inputDim + i] * key[offset + i];
      for (let i = 0; i < hiddenDim; i++) sum += recurrent[row * hiddenDim + i] * this.#hidden[i];
      const gate = sigmoid(sum + gateBias[row]);
      this.#next[row] = (zeta * (1 - gate) + nu) * Math.tanh(sum + updateBias[row]) + gate * this.#hidden[row];
      score += readOut[row] * this.#next[row];
    }
    this.#hidden.set(this.#next);
    const salience = sigmoid(score);
    if (this.#keep.length === this.#length) {
      const grown = new Uint8Array(Math.max(256, 2 * this.#length));
      grown.set(this.#keep);
      this.#keep = grown;
    }
    this.#keep[this.#length++] = salience >= this.#threshold ? 1 : 0;
    return salience;
  }

  /** Whether a token stays a log-stride candidate; pass it as `keepStride`. Tokens that were not appended stay. */
  readonly keeps = (position: number): boolean => position >= this.#length || this.#keep[position] === 1;
}
