/** Lowers FFNs to ops that compute only the active neurons of a sidecar. */
import type { FeedForwardLowering, LayerFeedForward, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { checkOptions, type OptionNames, ShapeError } from '@winnow/tensor';
import { appendActive, BlockLowering, type ActiveTensors, type PredictedTensors } from '../blocks/block-lowering.js';
import { bytesOf } from '../bytes.js';
import type { PredictedLayer, ScoreTables, Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import { appendScores, scoreWeights, type PredictorWeight } from './low-rank-scores.js';
import {
  breakEvenOf,
  runsDense,
  sparseMatrices,
  type FeedForwardMatrix,
  type MaxActiveRatio,
} from './sparse-matrices.js';

/** How a sidecar is used. */
export interface FeedForwardLoweringOptions {
  /**
   * Run a layer dense when more than this share of its neurons was active in the calibration, and compute all neurons
   * in steps that exceed it, since a batch needs the union of its tokens' neurons. With the break-even ratios of a
   * backend, steps of one token compute their active neurons only. Default 1: never.
   */
  readonly maxRatio?: MaxActiveRatio;
  /** Select neurons by their exact contributions instead of the predictor (upper bound). Computes gate and up dense. */
  readonly oracle?: boolean;
}

const loweringNames: OptionNames<FeedForwardLoweringOptions> = { maxRatio: true, oracle: true };

/** A lowering that can also report the weights that it will read. */
export interface SparseFeedForwardLowering extends FeedForwardLowering {
  /**
   * Appends the predictor of a layer on other hidden states `[T, E]`, such as those of the previous layer, as a
   * prediction for prefetching. Undefined for layers whose predictor is not a low-rank predictor.
   */
  predict(b: ProgramBuilder, layer: number, x: ProgramTensor): ActiveTensors | undefined;
  /** `sparseMatrices` with the options of the lowering. */
  matrices(layer: number): readonly FeedForwardMatrix[];
  /** The layers of the sidecar that run dense: see `runsDense`. */
  readonly denseLayers: readonly number[];
}

const nameOf = (layer: number, part: string): string => `sparse.${layer}.${part}`;

/** The external weights, of usage `weights`, that programs of `createFeedForwardLowering` with these options read. */
export function predictorWeights(
  sidecar: { readonly layers: readonly PredictedLayer[] },
  { oracle = false }: Pick<FeedForwardLoweringOptions, 'oracle'> = {},
): Map<string, PredictorWeight> {
  const weights = new Map<string, PredictorWeight>();
  for (const sparse of sidecar.layers) {
    const { layer, predictor } = sparse;
    const addFloats = (part: string, values: Float32Array): void => {
      weights.set(nameOf(layer, part), { dtype: 'f32', shape: [values.length], bytes: bytesOf(values) });
    };
    if (oracle) {
      addFloats('oracle', oracleThresholds(sparse));
      continue;
    }
    addFloats('thresholds', predictor.thresholds);
    if (predictor.kind === 'input-threshold') addFloats('inputs', predictor.inputThresholds);
    for (const [name, weight] of scoreWeights(predictor)) weights.set(nameOf(layer, name), weight);
  }
  return weights;
}

/** Thresholds of `|act(gate x) * up x|` that select the truly active neurons. */
function oracleThresholds({ contributionThreshold, downNorms }: PredictedLayer): Float32Array {
  return downNorms.map((norm) => (norm > 0 ? contributionThreshold / norm : Infinity));
}

/**
 * A lowering for programs of the calibrated model. Layers that are not in the sidecar, and those of `runsDense`, are
 * dense. With all neurons active, the result equals the dense block within rounding.
 */
export function createFeedForwardLowering(
  sidecar: Sidecar,
  options: FeedForwardLoweringOptions = {},
): SparseFeedForwardLowering {
  checkOptions(options, loweringNames);
  const { maxRatio = 1, oracle = false } = options;
  const layers = new Map(sidecar.layers.map((layer) => [layer.layer, layer]));
  const isDense = (layer: SparseLayer): boolean => !oracle && runsDense(layer, maxRatio);
  // with one token, fewer rows always take less time; only the union of several tokens can be slower than the dense
  // block
  const stepRatio = (b: ProgramBuilder, layer: SparseLayer): number =>
    typeof maxRatio === 'number' ? maxRatio : b.capacity('T') === 1 ? 1 : breakEvenOf(layer, maxRatio);
  const lower: FeedForwardLowering = (b, request) => {
    const layer = layers.get(request.layer);
    if (layer === undefined) return request.lowerDense();
    checkRequest(layer, request);
    if (isDense(layer)) return request.lowerDense();
    const block = new BlockLowering(b, request);
    const predicted = appendPredictor(b, layer, request, { oracle, maxRatio: stepRatio(b, layer) });
    return !oracle && 'rank' in layer.predictor ? block.fromActive(predicted) : block.fromScores(predicted);
  };
  return Object.assign(lower, {
    predict(b: ProgramBuilder, index: number, x: ProgramTensor): ActiveTensors | undefined {
      const layer = layers.get(index);
      if (oracle || layer === undefined || !('rank' in layer.predictor)) return undefined;
      return appendLowRank(b, layer, x, stepRatio(b, layer));
    },
    matrices: (layer: number) => sparseMatrices(sidecar, layer, options),
    denseLayers: sidecar.layers.filter(isDense).map(({ layer }) => layer),
  });
}

/**
 * Appends the predictor of a layer. It reads only the matrices that its scores are computed from: none for low-rank
 * predictors.
 */
export function appendPredictor(
  b: ProgramBuilder,
  sparse: PredictedLayer,
  request: LayerFeedForward,
  { oracle, maxRatio }: { readonly oracle: boolean; readonly maxRatio: number },
): PredictedTensors {
  const { layer, hiddenDim, ffnDim, predictor } = sparse;
  const block = new BlockLowering(b, request);
  const floats = (part: string, length: number) => (): ProgramTensor =>
    b.external(nameOf(layer, part), 'weights', 'f32', [length]);
  const thresholds = floats('thresholds', ffnDim);
  if (oracle) return block.predictByValues(floats('oracle', ffnDim), maxRatio);
  if ('rank' in predictor) return appendLowRank(b, sparse, request.x, maxRatio);
  if (predictor.kind === 'gate-threshold') return block.predictByGate(thresholds, maxRatio);
  return block.predictByInputs(floats('inputs', hiddenDim), thresholds, maxRatio);
}

/** The low-rank predictor of a layer, on hidden states `[T, E]`. */
export function appendLowRank(
  b: ProgramBuilder,
  { layer, ffnDim, activation, predictor }: PredictedLayer,
  x: ProgramTensor,
  maxRatio: number,
): PredictedTensors {
  const scores = appendScores(b, predictor as ScoreTables, { x, activation }, (name) => nameOf(layer, name));
  const thresholds = b.external(nameOf(layer, 'thresholds'), 'weights', 'f32', [ffnDim]);
  const absolute = predictor.kind === 'low-rank-product';
  return { ...appendActive(b, scores, thresholds, { maxRatio, absolute }), scores };
}

function checkRequest({ layer, hiddenDim, ffnDim, isGated }: SparseLayer, request: LayerFeedForward): void {
  const describe = (gated: boolean, e: number, f: number): string => `${e} x ${f}, ${gated ? 'gated' : 'two matrices'}`;
  const expected = describe(isGated, hiddenDim, ffnDim);
  const actual = describe(request.gate !== undefined, request.hiddenDim, request.ffnDim);
  if (expected === actual) return;
  throw new ShapeError({ op: 'sparse feed-forward', rule: `block of layer ${layer}`, expected, actual });
}
