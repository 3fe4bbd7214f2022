/** A feed-forward block on plain arrays, with all neurons or some of them: the truth that programs are compared with. */
import { activationFunction, type ActivationKind } from '@winnow/ops';
import { ShapeError } from '@winnow/tensor';

/** Shape of a block. E = `hiddenDim`, F = `ffnDim`, the number of neurons. */
export interface FeedForwardShape {
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly activation: ActivationKind;
  /** `down(act(gate x) * up x)`; without a gate `down(act(up x))`. */
  readonly isGated: boolean;
}

/** The weights of `y = down(act(gate x) * (up x))`, or of `y = down(act(up x))` where there is no gate. */
export interface FeedForwardWeights extends Omit<FeedForwardShape, 'isGated'> {
  readonly gate?: Float32Array; // [F, E]
  readonly up: Float32Array; // [F, E]
  readonly upBias?: Float32Array; // [F]
  readonly down: Float32Array; // [E, F]
  readonly downBias?: Float32Array; // [E]
}

/** @throws {ShapeError} when an array does not have the size that the dims say */
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
    if (array !== undefined) checkLength('feed-forward block', name, array, expected);
  }
}

/** @throws {ShapeError} */
export function checkLength(op: string, name: string, array: ArrayLike<number>, expected: number): void {
  if (array.length === expected) return;
  throw new ShapeError({ op, rule: `elements of ${name}`, expected: String(expected), actual: String(array.length) });
}

/** `sum_i x[i] * matrix[row, i]` of a matrix with rows of `length`, in f64. */
export function rowDot(x: Float32Array, matrix: Float32Array, row: number, length: number): number {
  let sum = 0;
  for (let i = 0, at = row * length; i < length; i++) sum += x[i] * matrix[at + i];
  return sum;
}

/** What neuron `id` multiplies its column of `down` with: `act(gate x) * up x`, or `act(up x)`. */
function neuronValue(
  { hiddenDim, gate, up, upBias }: FeedForwardWeights,
  act: (x: number) => number,
  x: Float32Array,
  id: number,
): number {
  const raised = rowDot(x, up, id, hiddenDim) + (upBias?.[id] ?? 0);
  return gate === undefined ? act(raised) : act(rowDot(x, gate, id, hiddenDim)) * raised;
}

/**
 * `y` `[E]` of one token, from all neurons or only from `ids`, whose order does not matter much: sums are in f64. What other
 * neurons would add is left out.
 * @param x `[E]`, normed
 */
export function feedForward(weights: FeedForwardWeights, x: Float32Array, ids?: ArrayLike<number>): Float32Array {
  checkFeedForward(weights);
  const { hiddenDim, ffnDim, activation, down, downBias } = weights;
  checkLength('feed-forward block', 'x', x, hiddenDim);
  const act = activationFunction(activation);
  const sums = new Float64Array(hiddenDim);
  if (downBias !== undefined) sums.set(downBias);
  const numActive = ids?.length ?? ffnDim;
  for (let index = 0; index < numActive; index++) {
    const id = ids?.[index] ?? index;
    const h = neuronValue(weights, act, x, id);
    for (let e = 0; e < hiddenDim; e++) sums[e] += h * down[e * ffnDim + id];
  }
  return Float32Array.from(sums);
}

/**
 * The norm of what each neuron adds to the output: `|act(gate x) * up x| * ||column of down||`, `[F]`. A SiLU neuron is never
 * exactly 0, so this and not its activation says whether it matters.
 * @param downNorms `columnNorms(down, E, F)`
 */
export function neuronContributions(
  weights: FeedForwardWeights,
  x: Float32Array,
  downNorms: Float32Array,
): Float32Array {
  const act = activationFunction(weights.activation);
  return Float32Array.from(downNorms, (norm, id) => Math.abs(neuronValue(weights, act, x, id)) * norm);
}

/** Norms of the columns of a matrix `[numRows, numColumns]`. */
export function columnNorms(matrix: Float32Array, numRows: number, numColumns: number): Float32Array {
  const squares = new Float64Array(numColumns);
  for (let row = 0, at = 0; row < numRows; row++) {
    for (let column = 0; column < numColumns; column++, at++) squares[column] += matrix[at] * matrix[at];
  }
  return Float32Array.from(squares, Math.sqrt);
}
