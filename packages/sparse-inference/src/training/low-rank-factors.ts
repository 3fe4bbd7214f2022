/** The factors of a low-rank predictor during training, and their initialization. */
import { dotProduct } from '@winnow/ops';
import type { Rng } from '@winnow/tensor';
import { orthonormalizeRows } from './orthonormalize.js';
import { transpose, type MatrixProducts } from './matrix-products.js';

/** `score = Q^T (P^T x) + bias`: E inputs, r components, F neurons. */
export interface LowRankFactors {
  readonly hiddenDim: number;
  readonly rank: number;
  readonly ffnDim: number;
  readonly p: Float32Array; // [r, E]
  readonly q: Float32Array; // [F, r]
  readonly bias: Float32Array; // [F]
}

/** Inputs of the initialization. */
export interface FactorStart {
  readonly hiddenDim: number;
  readonly rank: number;
  readonly ffnDim: number;
  /** The matrix before the activation: gate, or up if there is none. */
  readonly weight: Float32Array; // [F, E]
  readonly bias?: Float32Array | undefined; // [F]
  /** Inputs of the block. */
  readonly x: Float32Array; // [n, E]
  readonly numRows: number;
  readonly rng: Rng;
  /** Keep the scale of the weights instead of normalizing scores. Default false. */
  readonly keepsScale?: boolean;
}

const numIterations = 8;

/**
 * The data-aware truncated SVD of the weights: of all matrices of this rank, `P Q` has the smallest mean square of `x
 * W^T - x P Q` over the inputs. With `C = X^T X / n` it is `P = W^T V`, `Q = V^T` for the first r eigenvectors V of `W
 * C W^T` (with `C = R R^T`, the truncated SVD of `R^T W^T` and R^-1 give the same matrix). V comes from subspace
 * iteration, whose GEMMs run on the backend; it does not separate directions with nearly equal eigenvalues.
 *
 * Scores are scaled to a root mean square of 2 for each neuron, and components to one of 1, where the gradients of the
 * logistic loss are neither flat nor steep; neither changes which neurons a threshold per neuron can separate.
 */
export async function startFactors(products: MatrixProducts, start: FactorStart): Promise<LowRankFactors> {
  const { hiddenDim: E, rank: r, ffnDim: F, weight, bias, rng, keepsScale = false } = start;
  const moments = await secondMoments(products, start);
  const weightT = transpose(weight, F, E);
  const v = Float32Array.from({ length: r * F }, () => rng.nextGaussian()); // [r, F]
  orthonormalizeRows(v, r, F, rng);
  const u = new Float32Array(r * E);
  const uc = new Float32Array(r * E);
  for (let iteration = 0; iteration < numIterations; iteration++) {
    await products.multiply(v, weightT, u, { numRows: r, numInputs: F, numOutputs: E });
    await products.multiply(u, moments, uc, { numRows: r, numInputs: E, numOutputs: E });
    await products.multiply(uc, weight, v, { numRows: r, numInputs: E, numOutputs: F });
    orthonormalizeRows(v, r, F, rng);
  }
  await products.multiply(v, weightT, u, { numRows: r, numInputs: F, numOutputs: E }); // P^T
  await products.multiply(u, moments, uc, { numRows: r, numInputs: E, numOutputs: E });
  const componentScale = rootMeanSquares(u, uc, r, E);
  const wc = new Float32Array(F * E);
  await products.multiply(weight, moments, wc, { numRows: F, numInputs: E, numOutputs: E });
  const scoreScale = rootMeanSquares(weight, wc, F, E);
  const q = transpose(v, r, F);
  const biases = new Float32Array(F);
  for (let id = 0; id < F; id++) {
    const scaled = scoreScale[id] > 0 ? 2 / scoreScale[id] : 0;
    const factor = keepsScale ? 1 : scaled;
    for (let k = 0; k < r; k++) q[id * r + k] *= factor * componentScale[k];
    biases[id] = factor * (bias?.[id] ?? 0);
  }
  for (let k = 0; k < r; k++) {
    const factor = componentScale[k] > 0 ? 1 / componentScale[k] : 0;
    for (let e = 0; e < E; e++) u[k * E + e] *= factor;
  }
  return { hiddenDim: E, rank: r, ffnDim: F, p: u, q, bias: biases };
}

/** `X^T X / n`, `[E, E]`. */
async function secondMoments(products: MatrixProducts, start: FactorStart): Promise<Float32Array> {
  const { x, numRows, hiddenDim } = start;
  const xT = transpose(x, numRows, hiddenDim);
  const moments = new Float32Array(hiddenDim * hiddenDim);
  await products.multiply(xT, xT, moments, { numRows: hiddenDim, numInputs: numRows, numOutputs: hiddenDim });
  for (let i = 0; i < moments.length; i++) moments[i] /= numRows;
  return moments;
}

/** `sqrt(a_row . b_row)` of each row. */
function rootMeanSquares(a: Float32Array, b: Float32Array, numRows: number, length: number): Float32Array {
  const roots = new Float32Array(numRows);
  for (let row = 0; row < numRows; row++) {
    roots[row] = Math.sqrt(Math.max(0, dotProduct(a, row * length, b, row * length, length)));
  }
  return roots;
}
