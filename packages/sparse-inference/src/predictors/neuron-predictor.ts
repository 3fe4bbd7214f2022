/** Predictors of active neurons on plain arrays, behind one contract. `createFeedForwardLowering` does the same in programs. */
import { activationFunction, type ActivationKind } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { checkFeedForward, checkLength, rowDot, type FeedForwardWeights } from '../plain/feed-forward.js';
import type {
  GateThresholdTables,
  InputThresholdTables,
  LowRankEstimate,
  LowRankProductTables,
  LowRankTables,
  PredictorKind,
  SparseLayer,
} from '../sidecar/sidecar.js';
import { decodeMatrix } from '../sidecar/stored-matrix.js';

/** The prediction for one hidden state. */
export interface ActiveNeurons {
  /** In ascending order. */
  readonly ids: Int32Array;
  /** Scores that were compared with the thresholds: `[F]`. */
  readonly scores: Float32Array;
  /** Inputs that are used, in ascending order; only for `input-threshold`. */
  readonly inputs?: Int32Array;
}

/** Predicts the neurons worth computing from the normalized hidden state that enters the block. */
export interface NeuronPredictor {
  readonly kind: PredictorKind | 'oracle';
  readonly hiddenDim: number;
  readonly ffnDim: number;
  /** @param x `[E]` */
  predict(x: Float32Array): ActiveNeurons;
}

/** The predictor of a calibrated layer. Low-rank predictors do not need the weights of the block. */
export function createPredictor(layer: SparseLayer, weights?: FeedForwardWeights): NeuronPredictor {
  const { predictor } = layer;
  if (predictor.kind === 'low-rank') return createLowRankPredictor(predictor);
  if (predictor.kind === 'low-rank-product') return createLowRankProductPredictor(predictor, layer.activation);
  if (weights === undefined) {
    throw new ArgumentError({
      argument: 'weights',
      expected: `those of the block, for ${predictor.kind}`,
      actual: 'none',
    });
  }
  if (predictor.kind === 'gate-threshold') return createGateThresholdPredictor(predictor, weights);
  return createInputThresholdPredictor(predictor, weights);
}

/** `score = q (p x)`. */
export function createLowRankPredictor(tables: LowRankTables): NeuronPredictor {
  const [hiddenDim, ffnDim] = [tables.p.numColumns, tables.q.numRows];
  const estimate = estimateOf(tables);
  return {
    kind: 'low-rank',
    hiddenDim,
    ffnDim,
    predict(x) {
      checkLength('predictor', 'x', x, hiddenDim);
      return above(estimate(x), tables.thresholds);
    },
  };
}

/** `score = |act(estimate of gate) * (estimate of up)|`. */
export function createLowRankProductPredictor(
  { gate, up, thresholds }: LowRankProductTables,
  activation: ActivationKind,
): NeuronPredictor {
  const [hiddenDim, ffnDim] = [gate.p.numColumns, gate.q.numRows];
  const [gated, raised] = [estimateOf(gate), estimateOf(up)];
  const act = activationFunction(activation);
  return {
    kind: 'low-rank-product',
    hiddenDim,
    ffnDim,
    predict(x) {
      checkLength('predictor', 'x', x, hiddenDim);
      const factors = raised(x);
      return above(
        gated(x).map((value, id) => Math.abs(act(value) * factors[id])),
        thresholds,
      );
    },
  };
}

/** `q (p x) + bias`, `[F]`. */
function estimateOf({ p, q, bias }: LowRankEstimate): (x: Float32Array) => Float32Array {
  const [{ numRows: rank, numColumns: hiddenDim }, ffnDim] = [p, q.numRows];
  const [inner, outer] = [decodeMatrix(p), decodeMatrix(q)];
  return (x) => {
    const z = Float32Array.from({ length: rank }, (_, k) => rowDot(x, inner, k, hiddenDim));
    return Float32Array.from({ length: ffnDim }, (_, id) => rowDot(z, outer, id, rank) + (bias?.[id] ?? 0));
  };
}

/** `score = |act(gate x)|`, or `|act(up x)|` where there is no gate (CATS, arXiv:2404.08763 section 3, with a threshold per neuron). */
export function createGateThresholdPredictor(
  { thresholds }: Pick<GateThresholdTables, 'thresholds'>,
  weights: FeedForwardWeights,
): NeuronPredictor {
  checkFeedForward(weights);
  const { hiddenDim, ffnDim, gate, up, upBias, activation } = weights;
  const act = activationFunction(activation);
  const score = (x: Float32Array, id: number): number =>
    gate === undefined
      ? Math.abs(act(rowDot(x, up, id, hiddenDim) + (upBias?.[id] ?? 0)))
      : Math.abs(act(rowDot(x, gate, id, hiddenDim)));
  return {
    kind: 'gate-threshold',
    hiddenDim,
    ffnDim,
    predict(x) {
      checkLength('predictor', 'x', x, hiddenDim);
      return above(
        Float32Array.from({ length: ffnDim }, (_, id) => score(x, id)),
        thresholds,
      );
    },
  };
}

/** Inputs are used where `|x|` is large enough, neurons where their value from these inputs is (TEAL, arXiv:2408.14690). */
export function createInputThresholdPredictor(
  { inputThresholds, thresholds }: Pick<InputThresholdTables, 'inputThresholds' | 'thresholds'>,
  weights: FeedForwardWeights,
): NeuronPredictor {
  const values = valuesOf(weights);
  const { hiddenDim, ffnDim } = weights;
  return {
    kind: 'input-threshold',
    hiddenDim,
    ffnDim,
    predict(x) {
      checkLength('predictor', 'x', x, hiddenDim);
      const { ids: inputs } = above(x.map(Math.abs), inputThresholds);
      const used = new Float32Array(hiddenDim);
      for (const i of inputs) used[i] = x[i];
      return { ...above(values(used).map(Math.abs), thresholds), inputs };
    },
  };
}

/** Chooses by the exact contributions: it computes everything and shows the best that any predictor can do. */
export function createOraclePredictor(
  { contributionThreshold, downNorms }: Pick<SparseLayer, 'contributionThreshold' | 'downNorms'>,
  weights: FeedForwardWeights,
): NeuronPredictor {
  const values = valuesOf(weights);
  const { hiddenDim, ffnDim } = weights;
  const thresholds = new Float32Array(ffnDim).fill(contributionThreshold);
  return {
    kind: 'oracle',
    hiddenDim,
    ffnDim,
    predict(x) {
      checkLength('predictor', 'x', x, hiddenDim);
      return above(
        values(x).map((value, id) => Math.abs(value) * downNorms[id]),
        thresholds,
      );
    },
  };
}

/** `act(gate x) * up x` of all neurons. */
function valuesOf(weights: FeedForwardWeights): (x: Float32Array) => Float32Array {
  checkFeedForward(weights);
  const { hiddenDim, ffnDim, gate, up, upBias, activation } = weights;
  const act = activationFunction(activation);
  return (x) =>
    Float32Array.from({ length: ffnDim }, (_, id) => {
      const raised = rowDot(x, up, id, hiddenDim) + (upBias?.[id] ?? 0);
      return gate === undefined ? act(raised) : act(rowDot(x, gate, id, hiddenDim)) * raised;
    });
}

/** As the op `active-neurons`: a neuron is active unless its score is below its threshold. */
function above(scores: Float32Array, thresholds: Float32Array): ActiveNeurons {
  const ids: number[] = [];
  for (let id = 0; id < scores.length; id++) if (!(scores[id] < thresholds[id])) ids.push(id);
  return { ids: Int32Array.from(ids), scores };
}
