/** The phases of a calibration: what each collects from traces and derives from them. */
import type { Backend } from '@winnow/ops';
import { createRng, type Rng } from '@winnow/tensor';
import { columnNorms, weightedMagnitudes } from '../blocks/feed-forward-weights.js';
import { FloatHistogram } from './float-histogram.js';
import { startFactors, type LowRankFactors } from '../training/low-rank-factors.js';
import type { MatrixProducts } from '../training/matrix-products.js';
import { trainStep, type TrainingState } from '../training/train-low-rank.js';
import { neuronValues, type CalibrationSource, type FeedForwardTrace } from './calibration-source.js';
import type { LayerState } from './layer-state.js';
import { batchTokens, type CalibrationPhase } from './options.js';
import { LayerBuffer } from './layer-buffer.js';
import { shuffled } from './shuffled.js';
import { isLowRank, type SidecarConfig } from '../sidecar/sidecar.js';

/** Shared by all phases. */
export interface PhaseContext {
  readonly source: CalibrationSource;
  readonly backend: Backend;
  readonly products: MatrixProducts;
  readonly config: SidecarConfig;
  /** Maximum number of tokens per group. */
  readonly groupTokens: number;
  readonly maxSampleTokens: number;
  /** Total training steps of all groups. */
  readonly totalSteps: number;
  /** Called with the number of tokens that were trained on. */
  readonly onTrained: (numTokens: number) => void;
  readonly signal: AbortSignal | undefined;
}

export interface Phase {
  readonly name: CalibrationPhase;
  /** The part of the samples that it observes. */
  readonly part: 'train' | 'select' | 'verify';
  /** Whether its state between groups is in the arrays of the layers; otherwise an interrupted phase starts over. */
  readonly isResumable: boolean;
  observe(layer: LayerState, trace: FeedForwardTrace): void | Promise<void>;
  /** Called when all samples of a group were observed. */
  finishGroup?(layer: LayerState, group: number): Promise<void>;
  /** Called when all groups were observed, for decisions across layers. */
  beginFinish?(layers: readonly LayerState[]): void;
  finish(layer: LayerState): void | Promise<void>;
}

/** Norms of the columns of `down`, and of gate and up together, which weight the inputs. */
export async function readNorms(source: CalibrationSource, layer: LayerState): Promise<void> {
  const { hiddenDim, ffnDim, isGated, layer: index } = layer.shape;
  const down = await source.readRows(index, 'down', 0, hiddenDim);
  layer.arrays.set('downNorms', columnNorms(down, hiddenDim, ffnDim));
  if (layer.kind !== 'input-threshold') return;
  const norms = columnNorms(await source.readRows(index, 'up', 0, ffnDim), ffnDim, hiddenDim);
  if (isGated) {
    const gateNorms = columnNorms(await source.readRows(index, 'gate', 0, ffnDim), ffnDim, hiddenDim);
    for (let i = 0; i < hiddenDim; i++) norms[i] = Math.hypot(norms[i], gateNorms[i]);
  }
  layer.arrays.set('inputNorms', norms);
}

/** `|value| * ||column of down||` of every neuron of every token. */
export function contributionsOf(layer: LayerState, values: Float32Array): Float32Array {
  return weightedMagnitudes(values, layer.floats('downNorms', layer.shape.ffnDim));
}

/** A histogram whose sums are arrays of the layer. */
export function histogramOf(layer: LayerState, name: string): FloatHistogram {
  const { counts, weights } = new FloatHistogram();
  return new FloatHistogram(layer.sums(`${name}.counts`, counts.length), layer.sums(`${name}.weights`, weights.length));
}

const largestFloat = 3.4028234663852886e38;
const squaresOf = (values: Float32Array): Float32Array => values.map((value) => value * value);

/** Finds the threshold of contributions above which they make up the target share of the energy. */
export function scanPhase({ config }: PhaseContext): Phase {
  const edgeOf = (histogram: FloatHistogram, share: number): number =>
    Math.min(histogram.edgeOfWeight(share * histogram.totalWeight), largestFloat); // if there is no energy
  return {
    name: 'scan',
    part: 'train',
    isResumable: true,
    observe(layer, { x, gate, up }) {
      const { ffnDim, hiddenDim } = layer.shape;
      const contributions = contributionsOf(layer, neuronValues(layer.shape, gate, up));
      histogramOf(layer, 'scan').add(contributions, squaresOf(contributions));
      if (layer.kind === 'gate-threshold' && gate !== undefined) {
        const squares = layer.sums('upSquares', ffnDim);
        for (let i = 0; i < up.length; i++) squares[i % ffnDim] += up[i] * up[i];
        layer.numbers.set('upTokens', layer.number('upTokens') + up.length / ffnDim);
      }
      if (layer.kind === 'input-threshold') {
        const inputs = weightedMagnitudes(x, layer.floats('inputNorms', hiddenDim));
        histogramOf(layer, 'inputs').add(inputs, squaresOf(inputs));
      }
    },
    finish(layer) {
      layer.numbers.set('contributionThreshold', edgeOf(histogramOf(layer, 'scan'), config.energyShare));
      const { count } = histogramOf(layer, 'scan').above(layer.number('contributionThreshold'));
      layer.numbers.set('scannedRatio', count / Math.max(1, histogramOf(layer, 'scan').totalCount));
      if (layer.kind === 'input-threshold') {
        // a missing input affects all neurons, so only a tenth of the share that may be missing
        const share = 1 - (1 - config.energyShare) / 10;
        layer.numbers.set('inputContribution', edgeOf(histogramOf(layer, 'inputs'), share));
        layer.delete('inputs.counts', 'inputs.weights');
      }
      layer.delete('scan.counts', 'scan.weights');
    },
  };
}

/** 1 for neurons whose contribution reaches the threshold. Also counts them for the frequencies. */
export function labelsOf(layer: LayerState, contributions: Float32Array): Uint8Array {
  const { ffnDim } = layer.shape;
  const threshold = layer.number('contributionThreshold');
  const counts = layer.sums('activeCounts', ffnDim);
  const labels = new Uint8Array(contributions.length);
  for (let at = 0; at < contributions.length; at += ffnDim) {
    for (let id = 0; id < ffnDim; id++) {
      if (!(contributions[at + id] >= threshold)) continue;
      labels[at + id] = 1;
      counts[id] += 1;
    }
  }
  layer.numbers.set('labeledTokens', layer.number('labeledTokens') + contributions.length / ffnDim);
  return labels;
}

/**
 * Trains the low-rank predictors, a group of samples at a time; counts how often each neuron is active, for all kinds.
 */
export class TrainPhase implements Phase {
  readonly name = 'train';
  readonly part = 'train';
  readonly isResumable = true;
  readonly #context: PhaseContext;
  readonly #buffers = new Map<LayerState, LayerBuffer>();

  constructor(context: PhaseContext) {
    this.#context = context;
  }

  observe(layer: LayerState, { x, gate, up }: FeedForwardTrace): void {
    const labels = labelsOf(layer, contributionsOf(layer, neuronValues(layer.shape, gate, up)));
    if (!isLowRank(layer.kind) || layer.arrays.has('gate.p')) return; // low-rank products use the first group only
    let buffer = this.#buffers.get(layer);
    if (buffer === undefined) {
      const { hiddenDim, ffnDim } = layer.shape;
      buffer = new LayerBuffer(hiddenDim, ffnDim, this.#context.groupTokens);
      this.#buffers.set(layer, buffer);
    }
    buffer.append(x, labels);
  }

  async finishGroup(layer: LayerState, group: number): Promise<void> {
    const { config } = this.#context;
    const buffer = this.#buffers.get(layer);
    if (buffer === undefined || buffer.numRows === 0) return;
    const rng = createRng(config.seed * 1_000_003 + layer.shape.layer * 8191 + group);
    if (layer.kind === 'low-rank-product') {
      await startProduct(this.#context, layer, buffer, rng);
      this.#buffers.delete(layer);
      return;
    }
    if (!layer.arrays.has('p')) await start(this.#context, layer, buffer, rng);
    const state = trainingState(layer, config.rank);
    // if hardly any neuron is active, predicting none would minimize an unweighted loss
    const ratio = Math.min(Math.max(layer.number('scannedRatio'), 1e-4), 0.5);
    for (let epoch = 0; epoch < config.epochs; epoch++) {
      await this.#trainEpoch(state, buffer, rng, Math.min(10, (1 - ratio) / ratio));
    }
    layer.numbers.set('numSteps', state.numSteps);
    buffer.clear();
  }

  finish(layer: LayerState): void {
    layer.delete(...momentNames.flatMap((name) => [`${name}.first`, `${name}.second`]));
  }

  async #trainEpoch(state: TrainingState, buffer: LayerBuffer, rng: Rng, positiveWeight: number): Promise<void> {
    const { products, config, totalSteps, onTrained, signal } = this.#context;
    const numRows = Math.min(batchTokens, buffer.numRows);
    const order = shuffled(buffer.numRows, rng);
    for (let begin = 0; begin + numRows <= buffer.numRows; begin += numRows) {
      signal?.throwIfAborted();
      const batch = buffer.batch(order.subarray(begin, begin + numRows));
      const learningRate = config.learningRate * decay(state.numSteps / Math.max(1, totalSteps));
      await trainStep(products, state, batch, { positiveWeight, learningRate });
      onTrained(numRows / config.epochs);
    }
  }
}

/** Cosine decay from 1 to 0.05. */
function decay(share: number): number {
  return 0.05 + 0.95 * 0.5 * (1 + Math.cos(Math.PI * Math.min(1, share)));
}

const momentNames = ['p', 'q', 'bias'] as const;

async function start(context: PhaseContext, layer: LayerState, buffer: LayerBuffer, rng: Rng): Promise<void> {
  const { layer: index, hiddenDim, ffnDim, isGated } = layer.shape;
  const part = isGated ? 'gate' : 'up';
  const { p, q, bias } = await startFactors(context.products, {
    hiddenDim,
    rank: context.config.rank,
    ffnDim,
    weight: await context.source.readRows(index, part, 0, ffnDim),
    bias: await context.source.readBias(index, part),
    x: buffer.x,
    numRows: buffer.numRows,
    rng,
  });
  for (const [name, array] of Object.entries({ p, q, bias })) {
    layer.arrays.set(name, array);
    layer.arrays.set(`start.${name}`, array.slice());
  }
}

/** Low-rank estimates of gate and up: the best of their rank for the texts of the first group, without training. */
async function startProduct(
  { source, products, config: { rank } }: PhaseContext,
  layer: LayerState,
  { x, numRows }: LayerBuffer,
  rng: Rng,
): Promise<void> {
  const { layer: index, hiddenDim, ffnDim } = layer.shape;
  for (const part of ['gate', 'up'] as const) {
    const weight = await source.readRows(index, part, 0, ffnDim);
    const start = { hiddenDim, rank, ffnDim, weight, x, numRows, rng, keepsScale: true };
    const { p, q } = await startFactors(products, start);
    layer.arrays.set(`${part}.p`, p).set(`${part}.q`, q);
    const bias = await source.readBias(index, part);
    if (bias !== undefined) layer.arrays.set(`${part}.bias`, bias);
  }
}

/** Factors of a layer by name prefix: none, `start.` for the initial ones, `gate.` or `up.`. */
export function factorsOf(layer: LayerState, rank: number, prefix = ''): LowRankFactors {
  const { hiddenDim, ffnDim } = layer.shape;
  return {
    hiddenDim,
    rank,
    ffnDim,
    p: layer.floats(`${prefix}p`, rank * hiddenDim),
    q: layer.floats(`${prefix}q`, ffnDim * rank),
    bias: layer.floats(`${prefix}bias`, ffnDim),
  };
}

function trainingState(layer: LayerState, rank: number): TrainingState {
  const factors = factorsOf(layer, rank);
  const momentsOf = (name: 'p' | 'q' | 'bias'): { first: Float32Array; second: Float32Array } => ({
    first: layer.floats(`${name}.first`, factors[name].length),
    second: layer.floats(`${name}.second`, factors[name].length),
  });
  const moments = { p: momentsOf('p'), q: momentsOf('q'), bias: momentsOf('bias') };
  return { factors, moments, numSteps: layer.number('numSteps') };
}
