/** The weights of an FFN as arrays, and derived values that need no run. */
import type { ActivationKind } from '@winnow/ops';
import { ShapeError } from '@winnow/tensor';

/** Shape of a block. E = `hiddenDim`, F = `ffnDim`, the number of neurons. */
export interface FeedForwardShape {
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly activation: ActivationKind;
  /** `down(act(gate x) * up x)`; without a gate `down(act(up x))`. */
  readonly isGated: boolean;
}

/** The weights of `y = down(act(gate x) * (up x))`, or of `y = down(act(up x))` without a gate. */
export interface FeedForwardWeights extends Omit<FeedForwardShape, 'isGated'> {
  readonly gate?: Float32Array; // [F, E]
  readonly up: Float32Array; // [F, E]
  readonly upBias?: Float32Array; // [F]
  readonly down: Float32Array; // [E, F]
  readonly downBias?: Float32Array; // [E]
}

/** @throws {ShapeError} when the size of an array does not match the dims */
export function checkFeedForward(weights: FeedForwardWeights): void {
  const { hiddenDim, ffnDim, gate, up, upBias, down, downBias } = weights;
  const sizes: [string, Float32Array | undefined, number][] = [
    ['gate', gate, hiddenDim * ffnDim],
    ['up', up, hiddenDim * ffnDim],
    ['upBias', upBias, ffnDim],
    ['down', down, hiddenDim * ffnDim],
    ['downBias', downBias, hiddenDim],
  ];
  for (const [name, array, expected] of sizes) {
    if (array === undefined || array.length === expected) continue;
    const actual = String(array.length);
    throw new ShapeError({ op: 'feed-forward block', rule: `elements of ${name}`, expected: String(expected), actual });
  }
}

/** Norms of the columns of a matrix `[numRows, numColumns]`. */
export function columnNorms(matrix: Float32Array, numRows: number, numColumns: number): Float32Array {
  const squares = new Float64Array(numColumns);
  for (let row = 0, at = 0; row < numRows; row++) {
    for (let column = 0; column < numColumns; column++, at++) squares[column] += matrix[at] * matrix[at];
  }
  return Float32Array.from(squares, Math.sqrt);
}

/** `|values[t, i]| * factors[i]`. */
export function weightedMagnitudes(values: Float32Array, factors: Float32Array): Float32Array {
  const products = new Float32Array(values.length);
  for (let at = 0; at < values.length; at += factors.length) {
    for (let i = 0; i < factors.length; i++) products[at + i] = Math.abs(values[at + i]) * factors[i];
  }
  return products;
}
