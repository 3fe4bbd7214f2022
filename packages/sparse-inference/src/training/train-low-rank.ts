/** Training of low-rank predictors: binary cross-entropy with class weights, Adam, GEMMs on a backend. */
import { activationFunction } from '@winnow/ops';
import { adamStep, createMoments, type AdamMoments } from './adam.js';
import type { LowRankFactors } from './low-rank-factors.js';
import { transpose, type MatrixProducts } from './matrix-products.js';

const sigmoid = activationFunction('sigmoid');

/** State of training between batches. */
export interface TrainingState {
  readonly factors: LowRankFactors;
  readonly moments: Readonly<Record<'p' | 'q' | 'bias', AdamMoments>>;
  /** Steps so far. */
  numSteps: number;
}

/** One batch. */
export interface TrainingBatch {
  readonly numRows: number;
  readonly x: Float32Array; // [n, E]
  /** 1 for active neurons, else 0. */
  readonly labels: Uint8Array; // [n, F]
}

/** A state before the first step. */
export function createTrainingState(factors: LowRankFactors): TrainingState {
  const { p, q, bias } = factors;
  return {
    factors,
    moments: { p: createMoments(p.length), q: createMoments(q.length), bias: createMoments(bias.length) },
    numSteps: 0,
  };
}

/**
 * One step of Adam on `mean(-w y log s(a) - (1 - y) log(1 - s(a)))` over tokens and neurons, with the logistic function
 * s of the scores `a = Q^T (P^T x) + bias`, labels y and the weight w of active neurons.
 */
export async function trainStep(
  products: MatrixProducts,
  state: TrainingState,
  { numRows: n, x, labels }: TrainingBatch,
  { positiveWeight, learningRate }: { readonly positiveWeight: number; readonly learningRate: number },
): Promise<void> {
  const { factors, moments } = state;
  const { hiddenDim: E, rank: r, ffnDim: F, p, q, bias } = factors;
  const z = new Float32Array(n * r);
  await products.multiply(x, p, z, { numRows: n, numInputs: E, numOutputs: r });
  const scores = new Float32Array(n * F);
  await products.multiply(z, q, scores, { numRows: n, numInputs: r, numOutputs: F });
  const biasGradient = new Float32Array(F);
  lossGradient(scores, bias, labels, positiveWeight, biasGradient); // scores now holds gradients

  const qGradient = new Float32Array(F * r);
  await products.multiply(transpose(scores, n, F), transpose(z, n, r), qGradient, {
    numRows: F,
    numInputs: n,
    numOutputs: r,
  });
  const zGradient = z; // no longer needed
  await products.multiply(scores, transpose(q, F, r), zGradient, { numRows: n, numInputs: F, numOutputs: r });
  const pGradient = new Float32Array(r * E);
  await products.multiply(transpose(zGradient, n, r), transpose(x, n, E), pGradient, {
    numRows: r,
    numInputs: n,
    numOutputs: E,
  });
  state.numSteps += 1;
  adamStep(p, pGradient, moments.p, state.numSteps, learningRate);
  adamStep(q, qGradient, moments.q, state.numSteps, learningRate);
  adamStep(bias, biasGradient, moments.bias, state.numSteps, learningRate);
}

/**
 * Turns scores into the gradient of the loss by them, `w (s(a) - y) / n`, in place. The loss itself, with its
 * logarithm, is not needed.
 */
function lossGradient(
  scores: Float32Array,
  bias: Float32Array,
  labels: Uint8Array,
  positiveWeight: number,
  biasGradient: Float32Array,
): void {
  const F = bias.length;
  const scale = 1 / scores.length;
  const activeScale = positiveWeight * scale;
  for (let at = 0; at < scores.length; at += F) {
    for (let id = 0; id < F; id++) {
      const share = sigmoid(scores[at + id] + bias[id]);
      const gradient = labels[at + id] === 0 ? share * scale : (share - 1) * activeScale;
      scores[at + id] = gradient;
      biasGradient[id] += gradient;
    }
  }
}
