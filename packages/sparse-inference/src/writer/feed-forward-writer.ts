/** From a sidecar to the records of a program that computes the active neurons only. */
import {
  type FeedForwardSite,
  type FeedForwardWriter,
  type NeuronPass,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import { ShapeError } from '@winnow/tensor';
import { bytesOf } from '../plain/bytes.js';
import { appendScores, guessWeights, type PredictorWeight } from '../predictors/low-rank-scores.js';
import type { LowRankProductTables, LowRankTables, Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import { breakEvenOf, runsDense, sparseMatrices, type FeedForwardMatrix } from './sparse-matrices.js';

/** The active neurons of a step: `ids` `[F]` and `count` `[1]`, both i32. */
export interface ActiveTensors {
  readonly ids: ProgramTensor;
  readonly count: ProgramTensor;
}

/** How a sidecar is used. */
export interface FeedForwardWriterOptions {
  /**
   * Layers of which more is active on average, as the calibration measured, compute all neurons, with matrices as dense blocks
   * want them; and so do steps in which more is, without those: a batch needs the union of what its tokens need. Default:
   * `breakEvenOf`, for layers and for steps of several tokens; a step of one token never takes more than it needs. 1: never.
   */
  readonly maxRatio?: number;
  /** Choose by the exact contributions instead of the predictor: what a perfect one would lose. Computes gate and up densely. */
  readonly oracle?: boolean;
}

/** A writer that also knows what it will ask for. */
export interface SparseFeedForwardWriter extends FeedForwardWriter {
  /**
   * Appends the predictor of a layer to hidden states `[T, E]` of another place, such as the layer before: a guess for
   * prefetching. Undefined for layers whose predictor is not of low rank.
   */
  predict(b: ProgramBuilder, layer: number, x: ProgramTensor): ActiveTensors | undefined;
  /** `sparseMatrices` with the options of the writer. */
  matrices(layer: number): readonly FeedForwardMatrix[];
  /** The layers of the sidecar that compute all neurons: see `runsDense`. */
  readonly denseLayers: readonly number[];
}

const nameOf = (layer: number, part: string): string => `sparse.${layer}.${part}`;

/** The external weights, of usage `weights`, that programs of `createFeedForwardWriter` with these options read. */
export function predictorWeights(
  sidecar: Sidecar,
  { oracle = false }: Pick<FeedForwardWriterOptions, 'oracle'> = {},
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
    for (const [name, weight] of guessWeights(predictor)) weights.set(nameOf(layer, name), weight);
  }
  return weights;
}

/** Thresholds of `|act(gate x) * up x|` that choose the truly active neurons. */
function oracleThresholds({ contributionThreshold, downNorms }: SparseLayer): Float32Array {
  return downNorms.map((norm) => (norm > 0 ? contributionThreshold / norm : Infinity));
}

/**
 * A writer for programs of the calibrated model. Layers that the sidecar does not have, and those of `runsDense`, are written
 * densely. With all neurons
 * active the result is that of the dense block within rounding.
 */
export function createFeedForwardWriter(
  sidecar: Sidecar,
  options: FeedForwardWriterOptions = {},
): SparseFeedForwardWriter {
  const { maxRatio, oracle = false } = options;
  const layers = new Map(sidecar.layers.map((layer) => [layer.layer, layer]));
  const isDense = (layer: SparseLayer): boolean => !oracle && runsDense(layer, maxRatio);
  // with rows neuron by neuron, fewer of them always take less time: only unions are worth giving up
  const stepRatio = (b: ProgramBuilder, layer: SparseLayer): number =>
    maxRatio ?? (b.capacity('T') === 1 ? 1 : breakEvenOf(layer));
  const write: FeedForwardWriter = (b, site) => {
    const layer = layers.get(site.layer);
    if (layer === undefined) return site.writeDense();
    checkSite(layer, site);
    if (isDense(layer)) return site.writeDense();
    const block = new BlockWriter(b, site, stepRatio(b, layer));
    if (oracle) return block.addDownBias(block.fromValues(block.denseValues(), 'oracle'));
    const { predictor } = layer;
    switch (predictor.kind) {
      case 'low-rank':
      case 'low-rank-product':
        return block.addDownBias(block.lowRank(appendGuess(b, layer, predictor, site.x, stepRatio(b, layer))));
      case 'gate-threshold':
        return block.addDownBias(block.gateThreshold());
      default:
        return block.addDownBias(block.fromValues(block.inputThreshold(), 'thresholds'));
    }
  };
  return Object.assign(write, {
    predict(b: ProgramBuilder, index: number, x: ProgramTensor): ActiveTensors | undefined {
      const layer = layers.get(index);
      if (oracle || layer === undefined || !('rank' in layer.predictor)) return undefined;
      return appendGuess(b, layer, layer.predictor, x, stepRatio(b, layer));
    },
    matrices: (layer: number) => sparseMatrices(sidecar, layer, options),
    denseLayers: sidecar.layers.filter(isDense).map(({ layer }) => layer),
  });
}

/** The predictor of low rank of a layer, on hidden states `[T, E]`. */
function appendGuess(
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

function checkSite({ layer, hiddenDim, ffnDim, isGated }: SparseLayer, site: FeedForwardSite): void {
  const describe = (gated: boolean, e: number, f: number): string => `${e} x ${f}, ${gated ? 'gated' : 'two matrices'}`;
  const expected = describe(isGated, hiddenDim, ffnDim);
  const actual = describe(site.gate !== undefined, site.hiddenDim, site.ffnDim);
  if (expected === actual) return;
  throw new ShapeError({ op: 'sparse feed-forward', rule: `block of layer ${layer}`, expected, actual });
}

/** The records of one block. */
class BlockWriter {
  readonly #b: ProgramBuilder;
  readonly #site: FeedForwardSite;
  readonly #maxRatio: number;

  constructor(b: ProgramBuilder, site: FeedForwardSite, maxRatio: number) {
    this.#b = b;
    this.#site = site;
    this.#maxRatio = maxRatio;
  }

  /** Only the rows of active neurons, of every matrix. */
  lowRank({ ids, count }: ActiveTensors): ProgramTensor {
    const { gate, gateBias, neurons } = this.#site;
    if (neurons !== undefined) return this.#sideBySide({ ids, count }, neurons);
    return this.#passes({ ids, count }, (pass) => {
      const up = this.#chosenUp(pass);
      const gated = gate && this.#chosen(gate(), pass, gateBias?.());
      return this.#activate(up, gated, pass.count);
    });
  }

  /** The same in one record for each pass. */
  #sideBySide({ ids, count }: ActiveTensors, neurons: () => ProgramTensor): ProgramTensor {
    const { x, activation: kind } = this.#site;
    let sum: ProgramTensor | undefined;
    for (const { rows, count: ofPass } of this.#site.passes?.(ids, count) ?? [{ rows: ids, count }]) {
      const inputs = { x, weight: neurons(), rows, count: ofPass, previous: sum };
      sum = this.#b.activation('sparse-feed-forward', inputs, { kind });
    }
    return sum as ProgramTensor;
  }

  /** The gate as a whole (or up, where there is none); only the active rows of the others. */
  gateThreshold(): ProgramTensor {
    const { x, gate, gateBias, up, upBias, layer, ffnDim, activation } = this.#site;
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

  /** `act(gate x) * up x` `[T, F]` from the inputs that count. */
  inputThreshold(): ProgramTensor {
    const { x, layer, hiddenDim, gate, gateBias, gateColumns, up, upBias, upColumns } = this.#site;
    const b = this.#b;
    if (upColumns === undefined || (gate !== undefined && gateColumns === undefined)) return this.denseValues();
    const thresholds = b.external(nameOf(layer, 'inputs'), 'weights', 'f32', [hiddenDim]);
    const { ids, count } = active(b, x, thresholds, { maxRatio: 1, absolute: true });
    const h = b.activation('gather-columns', { x, ids, count });
    const product = (weight: ProgramTensor, bias: ProgramTensor | undefined): ProgramTensor =>
      this.#addBias(b.activation('sparse-combine', { h, weight, rows: ids, count }), bias);
    void up;
    const raised = product(upColumns(), upBias?.());
    return this.#activate(raised, gateColumns === undefined ? undefined : product(gateColumns(), gateBias?.()));
  }

  /** `act(gate x) * up x` `[T, F]` from everything. */
  denseValues(): ProgramTensor {
    const { x, gate, gateBias, up, upBias } = this.#site;
    const b = this.#b;
    const raised = b.activation('matmul', { x, weight: up(), bias: upBias?.() });
    const gated = gate && b.activation('matmul', { x, weight: gate(), bias: gateBias?.() });
    return this.#activate(raised, gated);
  }

  /** Down from the values `[T, F]` that are large enough. */
  fromValues(values: ProgramTensor, part: 'thresholds' | 'oracle'): ProgramTensor {
    const { layer, ffnDim } = this.#site;
    const b = this.#b;
    const thresholds = b.external(nameOf(layer, part), 'weights', 'f32', [ffnDim]);
    const chosen = active(b, values, thresholds, { maxRatio: this.#maxRatio, absolute: true });
    return this.#passes(chosen, ({ ids, count }) => b.activation('gather-columns', { x: values, ids, count }));
  }

  addDownBias(y: ProgramTensor): ProgramTensor {
    return this.#addBias(y, this.#site.downBias?.());
  }

  /** The sum over all passes of down for what `values` gives: `[T, F]`, neuron j of the pass in column j. */
  #passes({ ids, count }: ActiveTensors, values: (pass: NeuronPass) => ProgramTensor): ProgramTensor {
    const b = this.#b;
    let sum: ProgramTensor | undefined;
    for (const pass of this.#site.passes?.(ids, count) ?? [{ ids, rows: ids, count }]) {
      const h = values(pass);
      const { rows, count: ofPass } = pass;
      const weight = this.#site.downRows();
      sum = b.activation('sparse-combine', { h, weight, rows, count: ofPass, previous: sum });
    }
    return sum as ProgramTensor;
  }

  #chosen(weight: ProgramTensor, { ids, rows, count }: NeuronPass, bias: ProgramTensor | undefined): ProgramTensor {
    const biased = bias === undefined ? {} : { bias, ids };
    return this.#b.activation('sparse-matmul', { x: this.#site.x, weight, rows, count, ...biased });
  }

  #chosenUp(pass: NeuronPass): ProgramTensor {
    return this.#chosen(this.#site.up(), pass, this.#site.upBias?.());
  }

  /** With a count, of the columns below it. */
  #activate(up: ProgramTensor, gate?: ProgramTensor, count?: ProgramTensor): ProgramTensor {
    const kind = this.#site.activation;
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
