/** Lowers feed-forward blocks to ops that compute the active neurons of a sidecar only. */
import {
  type LayerFeedForward,
  type FeedForwardLowering,
  type NeuronPass,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import { ShapeError } from '@winnow/tensor';
import { bytesOf } from '../plain/bytes.js';
import { appendScores, scoreWeights, type PredictorWeight } from '../predictors/low-rank-scores.js';
import type { LowRankProductTables, LowRankTables, Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import {
  breakEvenOf,
  runsDense,
  sparseMatrices,
  type FeedForwardMatrix,
  type MaxActiveRatio,
} from './sparse-matrices.js';

/** The active neurons of a step: `ids` `[F]` and `count` `[1]`, both i32. */
export interface ActiveTensors {
  readonly ids: ProgramTensor;
  readonly count: ProgramTensor;
}

/** How a sidecar is used. */
export interface FeedForwardLoweringOptions {
  /**
   * Run a layer dense when more than this share of its neurons was active in the calibration, and compute all neurons in steps in
   * which more are: a batch needs the union of the neurons of its tokens. With the break-even ratios of a backend, steps of one
   * token compute their active neurons only. Default 1: never.
   */
  readonly maxRatio?: MaxActiveRatio;
  /** Choose neurons by their exact contributions instead of the predictor, as a perfect one would. Computes gate and up densely. */
  readonly oracle?: boolean;
}

/** A lowering that also knows what it will ask for. */
export interface SparseFeedForwardLowering extends FeedForwardLowering {
  /**
   * Appends the predictor of a layer on hidden states `[T, E]` of another place, such as the layer before: a prediction for
   * prefetching. Undefined for layers whose predictor is not a low-rank predictor.
   */
  predict(b: ProgramBuilder, layer: number, x: ProgramTensor): ActiveTensors | undefined;
  /** `sparseMatrices` with the options of the lowering. */
  matrices(layer: number): readonly FeedForwardMatrix[];
  /** The layers of the sidecar that compute all neurons: see `runsDense`. */
  readonly denseLayers: readonly number[];
}

const nameOf = (layer: number, part: string): string => `sparse.${layer}.${part}`;

/** The external weights, of usage `weights`, that programs of `createFeedForwardLowering` with these options read. */
export function predictorWeights(
  sidecar: Sidecar,
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

/** Thresholds of `|act(gate x) * up x|` that choose the truly active neurons. */
function oracleThresholds({ contributionThreshold, downNorms }: SparseLayer): Float32Array {
  return downNorms.map((norm) => (norm > 0 ? contributionThreshold / norm : Infinity));
}

/**
 * A lowering for programs of the calibrated model. Layers that are not in the sidecar, and those of `runsDense`, are dense. With
 * all neurons active the result is that of the dense block within rounding.
 */
export function createFeedForwardLowering(
  sidecar: Sidecar,
  options: FeedForwardLoweringOptions = {},
): SparseFeedForwardLowering {
  const { maxRatio = 1, oracle = false } = options;
  const layers = new Map(sidecar.layers.map((layer) => [layer.layer, layer]));
  const isDense = (layer: SparseLayer): boolean => !oracle && runsDense(layer, maxRatio);
  // fewer rows always take less time: only the union of several tokens can be slower than the dense block
  const stepRatio = (b: ProgramBuilder, layer: SparseLayer): number =>
    typeof maxRatio === 'number' ? maxRatio : b.capacity('T') === 1 ? 1 : breakEvenOf(layer, maxRatio);
  const lower: FeedForwardLowering = (b, request) => {
    const layer = layers.get(request.layer);
    if (layer === undefined) return request.lowerDense();
    checkRequest(layer, request);
    if (isDense(layer)) return request.lowerDense();
    const block = new BlockLowering(b, request, stepRatio(b, layer));
    if (oracle) return block.addDownBias(block.fromValues(block.denseValues(), 'oracle'));
    const { predictor } = layer;
    switch (predictor.kind) {
      case 'low-rank':
      case 'low-rank-product':
        return block.addDownBias(block.lowRank(appendPredictor(b, layer, predictor, request.x, stepRatio(b, layer))));
      case 'gate-threshold':
        return block.addDownBias(block.gateThreshold());
      default:
        return block.addDownBias(block.fromValues(block.inputThreshold(), 'thresholds'));
    }
  };
  return Object.assign(lower, {
    predict(b: ProgramBuilder, index: number, x: ProgramTensor): ActiveTensors | undefined {
      const layer = layers.get(index);
      if (oracle || layer === undefined || !('rank' in layer.predictor)) return undefined;
      return appendPredictor(b, layer, layer.predictor, x, stepRatio(b, layer));
    },
    matrices: (layer: number) => sparseMatrices(sidecar, layer, options),
    denseLayers: sidecar.layers.filter(isDense).map(({ layer }) => layer),
  });
}

/** The low-rank predictor of a layer, on hidden states `[T, E]`. */
function appendPredictor(
  b: ProgramBuilder,
  { layer, ffnDim, activation }: SparseLayer,
  predictor: LowRankTables | LowRankProductTables,
  x: ProgramTensor,
  maxRatio: number,
): ActiveTensors {
  const scores = appendScores(b, predictor, { x, activation }, (name) => nameOf(layer, name));
  const thresholds = b.external(nameOf(layer, 'thresholds'), 'weights', 'f32', [ffnDim]);
  return active(b, scores, thresholds, { maxRatio, absolute: predictor.kind === 'low-rank-product' });
}

function active(
  b: ProgramBuilder,
  scores: ProgramTensor,
  thresholds: ProgramTensor,
  attributes: { readonly maxRatio: number; readonly absolute?: boolean },
): ActiveTensors {
  const { ids, count } = b.append('active-neurons', { scores, thresholds }, attributes);
  return { ids: ids as ProgramTensor, count: count as ProgramTensor };
}

function checkRequest({ layer, hiddenDim, ffnDim, isGated }: SparseLayer, request: LayerFeedForward): void {
  const describe = (gated: boolean, e: number, f: number): string => `${e} x ${f}, ${gated ? 'gated' : 'two matrices'}`;
  const expected = describe(isGated, hiddenDim, ffnDim);
  const actual = describe(request.gate !== undefined, request.hiddenDim, request.ffnDim);
  if (expected === actual) return;
  throw new ShapeError({ op: 'sparse feed-forward', rule: `block of layer ${layer}`, expected, actual });
}

/** The ops of one block. */
class BlockLowering {
  readonly #b: ProgramBuilder;
  readonly #request: LayerFeedForward;
  readonly #maxRatio: number;

  constructor(b: ProgramBuilder, request: LayerFeedForward, maxRatio: number) {
    this.#b = b;
    this.#request = request;
    this.#maxRatio = maxRatio;
  }

  /** The rows of active neurons of every matrix. */
  lowRank({ ids, count }: ActiveTensors): ProgramTensor {
    const { gate, gateBias, neurons } = this.#request;
    if (neurons !== undefined) return this.#fused({ ids, count }, neurons);
    return this.#passes({ ids, count }, (pass) => {
      const up = this.#chosenUp(pass);
      const gated = gate && this.#chosen(gate(), pass, gateBias?.());
      return this.#activate(up, gated, pass.count);
    });
  }

  /** The same in one op per pass. */
  #fused({ ids, count }: ActiveTensors, neurons: () => ProgramTensor): ProgramTensor {
    const { x, activation: kind } = this.#request;
    let sum: ProgramTensor | undefined;
    for (const { rows, count: ofPass } of this.#request.passes?.(ids, count) ?? [{ rows: ids, count }]) {
      const inputs = { x, weight: neurons(), rows, count: ofPass, previous: sum };
      sum = this.#b.activation('sparse-feed-forward', inputs, { kind });
    }
    return sum as ProgramTensor;
  }

  /** The gate as a whole (or up, where there is none); only the active rows of the others. */
  gateThreshold(): ProgramTensor {
    const { x, gate, gateBias, up, upBias, layer, ffnDim, activation } = this.#request;
    const b = this.#b;
    const first = gate === undefined ? { weight: up(), bias: upBias?.() } : { weight: gate(), bias: gateBias?.() };
    const whole = b.activation('matmul', { x, ...first });
    const scores = b.activation('activation', { x: whole }, { kind: activation });
    const thresholds = b.external(nameOf(layer, 'thresholds'), 'weights', 'f32', [ffnDim]);
    const chosen = active(b, scores, thresholds, { maxRatio: this.#maxRatio, absolute: true });
    return this.#passes(chosen, (pass) => {
      const { ids, count } = pass;
      if (gate === undefined) return b.activation('gather-columns', { x: scores, ids, count });
      const gated = b.activation('gather-columns', { x: whole, ids, count });
      return this.#activate(this.#chosenUp(pass), gated, count);
    });
  }

  /** `act(gate x) * up x` `[T, F]` from the inputs above their thresholds. */
  inputThreshold(): ProgramTensor {
    const { x, layer, hiddenDim, gate, gateBias, gateColumns, upBias, upColumns } = this.#request;
    const b = this.#b;
    if (upColumns === undefined || (gate !== undefined && gateColumns === undefined)) return this.denseValues();
    const thresholds = b.external(nameOf(layer, 'inputs'), 'weights', 'f32', [hiddenDim]);
    const { ids, count } = active(b, x, thresholds, { maxRatio: 1, absolute: true });
    const h = b.activation('gather-columns', { x, ids, count });
    const product = (weight: ProgramTensor, bias: ProgramTensor | undefined): ProgramTensor =>
      this.#addBias(b.activation('sparse-combine', { h, weight, rows: ids, count }), bias);
    const raised = product(upColumns(), upBias?.());
    return this.#activate(raised, gateColumns === undefined ? undefined : product(gateColumns(), gateBias?.()));
  }

  /** `act(gate x) * up x` `[T, F]` from everything. */
  denseValues(): ProgramTensor {
    const { x, gate, gateBias, up, upBias } = this.#request;
    const b = this.#b;
    const raised = b.activation('matmul', { x, weight: up(), bias: upBias?.() });
    const gated = gate && b.activation('matmul', { x, weight: gate(), bias: gateBias?.() });
    return this.#activate(raised, gated);
  }

  /** Down from the values `[T, F]` that are large enough. */
  fromValues(values: ProgramTensor, part: 'thresholds' | 'oracle'): ProgramTensor {
    const { layer, ffnDim } = this.#request;
    const b = this.#b;
    const thresholds = b.external(nameOf(layer, part), 'weights', 'f32', [ffnDim]);
    const chosen = active(b, values, thresholds, { maxRatio: this.#maxRatio, absolute: true });
    return this.#passes(chosen, ({ ids, count }) => b.activation('gather-columns', { x: values, ids, count }));
  }

  addDownBias(y: ProgramTensor): ProgramTensor {
    return this.#addBias(y, this.#request.downBias?.());
  }

  /** The sum over all passes of down for what `values` gives: `[T, F]`, neuron j of the pass in column j. */
  #passes({ ids, count }: ActiveTensors, values: (pass: NeuronPass) => ProgramTensor): ProgramTensor {
    const b = this.#b;
    let sum: ProgramTensor | undefined;
    for (const pass of this.#request.passes?.(ids, count) ?? [{ ids, rows: ids, count }]) {
      const h = values(pass);
      const { rows, count: ofPass } = pass;
      const weight = this.#request.downRows();
      sum = b.activation('sparse-combine', { h, weight, rows, count: ofPass, previous: sum });
    }
    return sum as ProgramTensor;
  }

  #chosen(weight: ProgramTensor, { ids, rows, count }: NeuronPass, bias: ProgramTensor | undefined): ProgramTensor {
    const biased = bias === undefined ? {} : { bias, ids };
    return this.#b.activation('sparse-matmul', { x: this.#request.x, weight, rows, count, ...biased });
  }

  #chosenUp(pass: NeuronPass): ProgramTensor {
    return this.#chosen(this.#request.up(), pass, this.#request.upBias?.());
  }

  /** With a count, only the columns below it. */
  #activate(up: ProgramTensor, gate?: ProgramTensor, count?: ProgramTensor): ProgramTensor {
    const kind = this.#request.activation;
    if (gate === undefined) return this.#b.activation('activation', { x: up, count }, { kind });
    return this.#b.activation('gated-activation', { gate, up, count }, { kind });
  }

  /** A row for each token from the one row of the bias: the host leaves the indices at 0. */
  #addBias(y: ProgramTensor, bias: ProgramTensor | undefined): ProgramTensor {
    if (bias === undefined) return y;
    const b = this.#b;
    const [width] = bias.shape;
    const table = b.reshape(bias, [1, width as number]);
    const tokens = zeroRows(b);
    return b.activation('add', { a: y, b: b.activation('embedding-lookup', { table, tokens }) });
  }
}

const zeros = new WeakMap<ProgramBuilder, ProgramTensor>();

/** Indices `[T]` that are all 0, one scalar for all blocks of a program. */
function zeroRows(b: ProgramBuilder): ProgramTensor {
  let tensor = zeros.get(b);
  if (tensor === undefined) zeros.set(b, (tensor = b.scalar('sparseZeros', ['T'])));
  return tensor;
}
