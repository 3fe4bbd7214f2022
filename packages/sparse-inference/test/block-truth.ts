/** FFNs and predictors in plain f64 loops, which programs are compared with. */
import { activationFunction } from '@winnow/ops';
import type { ActiveNeurons, FeedForwardWeights, LowRankEstimate, SparseLayer } from '../src/index.js';
import { decodeMatrix } from '../src/sidecar/stored-matrix.js';

/** `sum_i x[i] * matrix[row, i]`. */
function dot(x: ArrayLike<number>, matrix: Float32Array, row: number): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += (x[i] as number) * (matrix[row * x.length + i] as number);
  return sum;
}

/** `act(gate x) * up x`, or `act(up x)`, of every neuron. */
export function trueValues(weights: FeedForwardWeights, x: ArrayLike<number>): Float64Array {
  const { ffnDim, activation, gate, up, upBias } = weights;
  const act = activationFunction(activation);
  return Float64Array.from({ length: ffnDim }, (_, id) => {
    const raised = dot(x, up, id) + (upBias?.[id] ?? 0);
    return gate === undefined ? act(raised) : act(dot(x, gate, id)) * raised;
  });
}

/** The output of one token from all neurons, or only from `ids`. */
export function trueOutput(weights: FeedForwardWeights, x: ArrayLike<number>, ids?: ArrayLike<number>): Float32Array {
  const { hiddenDim, ffnDim, down, downBias } = weights;
  const values = trueValues(weights, x);
  const sums = Float64Array.from({ length: hiddenDim }, (_, e) => downBias?.[e] ?? 0);
  for (const id of ids === undefined ? values.keys() : Array.from(ids)) {
    for (let e = 0; e < hiddenDim; e++) sums[e]! += (values[id] as number) * (down[e * ffnDim + id] as number);
  }
  return Float32Array.from(sums);
}

/** The output from the neurons and inputs that a predictor selects. */
export function trueSparseOutput(weights: FeedForwardWeights, x: Float32Array, chosen: ActiveNeurons): Float32Array {
  return trueOutput(weights, keepOnly(x, chosen.inputs), chosen.ids);
}

/** The selection of a layer's predictor; with `oracle` the neurons whose exact contributions are large enough. */
export function truePrediction(
  { predictor, activation, contributionThreshold, downNorms }: SparseLayer,
  weights: FeedForwardWeights,
  x: Float32Array,
  oracle = false,
): ActiveNeurons {
  if (oracle) {
    const contributions = trueValues(weights, x).map((value, id) => Math.abs(value) * (downNorms[id] as number));
    return above(contributions, new Float32Array(contributions.length).fill(contributionThreshold));
  }
  if (predictor.kind === 'low-rank') return above(estimate(predictor, x), predictor.thresholds);
  const act = activationFunction(activation);
  if (predictor.kind === 'low-rank-product') {
    const up = estimate(predictor.up, x);
    const products = estimate(predictor.gate, x).map((gate, id) => Math.abs(act(gate) * (up[id] as number)));
    return above(products, predictor.thresholds);
  }
  if (predictor.kind === 'input-threshold') {
    const inputs = above(x.map(Math.abs), predictor.inputThresholds).ids;
    return { ...above(trueValues(weights, keepOnly(x, inputs)).map(Math.abs), predictor.thresholds), inputs };
  }
  const { gate, up, upBias } = weights;
  const scores = Float64Array.from(predictor.thresholds, (_, id) =>
    Math.abs(act(gate === undefined ? dot(x, up, id) + (upBias?.[id] ?? 0) : dot(x, gate, id))),
  );
  return above(scores, predictor.thresholds);
}

/** `q (p x) + bias`. */
function estimate({ p, q, bias }: LowRankEstimate, x: ArrayLike<number>): Float64Array {
  const [inner, outer] = [decodeMatrix(p), decodeMatrix(q)];
  const z = Float64Array.from({ length: p.numRows }, (_, k) => dot(x, inner, k));
  return Float64Array.from({ length: q.numRows }, (_, id) => dot(z, outer, id) + (bias?.[id] ?? 0));
}

function keepOnly(x: Float32Array, ids: ArrayLike<number> | undefined): Float32Array {
  if (ids === undefined) return x;
  const kept = new Float32Array(x.length);
  for (const id of Array.from(ids)) kept[id] = x[id] as number;
  return kept;
}

function above(scores: ArrayLike<number>, thresholds: Float32Array): ActiveNeurons {
  const ids = [...thresholds.keys()].filter((id) => !((scores[id] as number) < (thresholds[id] as number)));
  return { ids: Int32Array.from(ids), scores: Float32Array.from(scores) };
}
