/** Chooses thresholds on text that training did not see. */
import { weightedMagnitudes } from '../blocks/feed-forward-weights.js';
import type { FloatHistogram } from './float-histogram.js';
import { encodeMatrix } from '../sidecar/stored-matrix.js';
import type { LowRankEstimate, PredictorTables, ScoreTables, SidecarConfig } from '../sidecar/sidecar.js';
import { neuronValues, type FeedForwardTrace } from './calibration-source.js';
import type { LayerState } from './layer-state.js';
import { contributionsOf, factorsOf, histogramOf, labelsOf, type Phase, type PhaseContext } from './phases.js';
import { PredictorScores } from './predictor-scores.js';

/** Scores of low-rank predictors as programs compute them, prepared on first use. */
export class LayerScores {
  readonly #context: PhaseContext;
  readonly #scores = new Map<string, PredictorScores>();

  constructor(context: PhaseContext) {
    this.#context = context;
  }

  async of(layer: LayerState, { x }: FeedForwardTrace, prefix: '' | 'start.' = ''): Promise<Float32Array> {
    const key = `${prefix}${layer.shape.layer}`;
    let scores = this.#scores.get(key);
    if (scores === undefined) {
      const { backend, config, maxSampleTokens } = this.#context;
      scores = await PredictorScores.create(
        backend,
        storedFactors(layer, config.rank, prefix),
        layer.shape,
        maxSampleTokens,
      );
      this.#scores.set(key, scores);
    }
    return scores.of(x);
  }

  async dispose(): Promise<void> {
    for (const scores of this.#scores.values()) await scores.close();
    this.#scores.clear();
  }
}

/**
 * The factors of a layer as programs read them. In products q has 4 bits: it has most of the bytes, and its rounding
 * error costs less than a lower rank of the same size would.
 */
function storedFactors(layer: LayerState, rank: number, prefix: '' | 'start.' = ''): ScoreTables {
  const dtypeOfQ = layer.kind === 'low-rank-product' ? 'q4_0' : 'q8_0';
  const stored = (name: string): LowRankEstimate => {
    const { p, q, hiddenDim, ffnDim } = factorsOf(layer, rank, name);
    return { p: encodeMatrix(p, rank, hiddenDim), q: encodeMatrix(q, ffnDim, rank, dtypeOfQ) };
  };
  if (layer.kind !== 'low-rank-product') return { kind: 'low-rank', rank, ...stored(prefix) };
  const estimate = (part: 'gate' | 'up'): LowRankEstimate => {
    const bias = layer.arrays.get(`${part}.bias`);
    return bias instanceof Float32Array ? { ...stored(`${part}.`), bias } : stored(`${part}.`);
  };
  return { kind: 'low-rank-product', rank, gate: estimate('gate'), up: estimate('up') };
}

/**
 * Every kind assigns a margin to each neuron, with one threshold per layer: the score plus the learned bias, or the
 * magnitude of the activation times the usual magnitude of the other factors.
 */
export function selectPhase(context: PhaseContext, scores: LayerScores): Phase {
  return new SelectPhase(context, scores);
}

class SelectPhase implements Phase {
  readonly name = 'select' as const;
  readonly part = 'select' as const;
  readonly isResumable = false;
  readonly #target: SidecarConfig['target'];
  readonly #scores: LayerScores;
  readonly #keptShares = new Map<string, number>();

  constructor({ config }: PhaseContext, scores: LayerScores) {
    this.#target = config.target;
    this.#scores = scores;
  }

  async observe(layer: LayerState, trace: FeedForwardTrace): Promise<void> {
    const { x, gate, up } = trace;
    const { ffnDim, hiddenDim } = layer.shape;
    const values = neuronValues(layer.shape, gate, up);
    const contributions = contributionsOf(layer, values);
    labelsOf(layer, contributions); // counts frequencies
    const worths = this.#worthsOf(contributions, layer.number('contributionThreshold'));
    const histogram = histogramOf(layer, 'margins');
    if (layer.kind === 'input-threshold') {
      histogram.add(contributions, worths);
      const inputs = weightedMagnitudes(x, layer.floats('inputNorms', hiddenDim));
      histogramOf(layer, 'inputs').add(inputs, this.#worthsOf(inputs, layer.number('inputContribution')));
    } else if (layer.kind === 'gate-threshold') {
      const activations = gate === undefined ? values : neuronValues(layer.shape, undefined, gate);
      histogram.add(weightedMagnitudes(activations, activationFactors(layer)), worths);
    } else if (layer.kind === 'low-rank-product') {
      const products = await this.#scores.of(layer, trace);
      histogram.add(weightedMagnitudes(products, layer.floats('downNorms', ffnDim)), worths);
    } else {
      for (const prefix of ['', 'start.'] as const) {
        const margins = await this.#scores.of(layer, trace, prefix);
        const bias = layer.floats(`${prefix}bias`, ffnDim);
        for (let i = 0; i < margins.length; i++) margins[i] += bias[i % ffnDim];
        histogramOf(layer, `${prefix}margins`).add(margins, worths);
      }
    }
  }

  beginFinish(layers: readonly LayerState[]): void {
    const target = this.#target;
    for (const name of ['margins', 'inputs']) {
      const kept = layers.filter(({ arrays }) => arrays.has(`${name}.counts`));
      const share =
        'recall' in target
          ? keptForRecall(target.recall)
          : keptForSparsity(
              kept.map((layer) => histogramOf(layer, name)),
              target.sparsity,
            );
      this.#keptShares.set(name, share);
    }
  }

  async finish(layer: LayerState): Promise<void> {
    const margin = marginOf(histogramOf(layer, 'margins'), this.#keptShares.get('margins'));
    layer.numbers.set('margin', margin);
    if (layer.kind === 'low-rank') {
      const start = histogramOf(layer, 'start.margins');
      const startMargin = marginOf(start, this.#keptShares.get('margins'));
      const numChosen = histogramOf(layer, 'margins').above(margin).count;
      if (start.above(startMargin).count < numChosen) restart(layer, startMargin);
      layer.delete('start.margins.counts', 'start.margins.weights', 'start.p', 'start.q', 'start.bias');
      await this.#scores.dispose(); // including those of rejected factors
    }
    layer.delete('margins.counts', 'margins.weights');
    if (layer.kind !== 'input-threshold') return;
    layer.numbers.set('inputMargin', marginOf(histogramOf(layer, 'inputs'), this.#keptShares.get('inputs')));
    layer.delete('inputs.counts', 'inputs.weights');
  }

  /** The weight of neurons or inputs: 1 if they are needed, or their energy. */
  #worthsOf(magnitudes: Float32Array, threshold: number): Float32Array {
    return magnitudes.map((x) => ('recall' in this.#target ? Number(x >= threshold) : x * x));
  }
}

/** If training did not help on held-out text, the initial predictor is restored. */
function restart(layer: LayerState, margin: number): void {
  layer.numbers.set('margin', margin);
  for (const name of ['p', 'q', 'bias']) {
    const array = layer.arrays.get(`start.${name}`);
    if (array !== undefined) layer.arrays.set(name, array);
  }
}

/** The largest margin that keeps a share of the total weight. */
function marginOf(histogram: FloatHistogram, keptShare = 1): number {
  return histogram.edgeOfWeight(keptShare * histogram.totalWeight);
}

/** Other text differs, so a fifth of the allowed misses is kept as a reserve. */
function keptForRecall(recall: number): number {
  return 1 - 0.8 * (1 - recall);
}

/**
 * The share of its energy that every layer keeps so that the layers skip this share of neurons on average: layers with
 * a few large contributions skip more than others.
 */
function keptForSparsity(histograms: readonly FloatHistogram[], sparsity: number): number {
  const chosenRatio = (keptShare: number): number => {
    const ratios = histograms.map((histogram) => {
      const { count } = histogram.above(marginOf(histogram, keptShare));
      return count / Math.max(1, histogram.totalCount);
    });
    return ratios.reduce((sum, ratio) => sum + ratio, 0) / Math.max(1, ratios.length);
  };
  if (chosenRatio(1) <= 1 - sparsity) return 1; // the rest contributes nothing
  let [enough, tooMuch] = [0, 1];
  for (let step = 0; step < 40; step++) {
    const middle = (enough + tooMuch) / 2;
    if (chosenRatio(middle) <= 1 - sparsity) enough = middle;
    else tooMuch = middle;
  }
  return enough;
}

/** The average factor of the gate's activation: the root mean square of up times the norm of the column of down. */
function activationFactors(layer: LayerState): Float32Array {
  const { ffnDim, isGated } = layer.shape;
  const norms = layer.floats('downNorms', ffnDim);
  if (!isGated) return norms;
  const squares = layer.sums('upSquares', ffnDim);
  const numTokens = Math.max(1, layer.number('upTokens'));
  return norms.map((norm, id) => norm * Math.sqrt(squares[id] / numTokens));
}

/** The predictor as programs read it. */
export function tablesOf(layer: LayerState, rank: number): PredictorTables {
  const { kind, shape } = layer;
  const margin = layer.number('margin');
  const reach = (factors: Float32Array, least: number): Float32Array =>
    factors.map((factor) => (factor > 0 ? least / factor : Infinity));
  switch (kind) {
    case 'low-rank': {
      const thresholds = layer.floats('bias', shape.ffnDim).map((bias) => margin - bias);
      return { ...storedFactors(layer, rank), thresholds };
    }
    case 'low-rank-product':
      return { ...storedFactors(layer, rank), thresholds: reach(layer.floats('downNorms', shape.ffnDim), margin) };
    case 'gate-threshold':
      return { kind, thresholds: reach(activationFactors(layer), margin) };
    default: {
      const inputThresholds = reach(layer.floats('inputNorms', shape.hiddenDim), layer.number('inputMargin'));
      return { kind, inputThresholds, thresholds: reach(layer.floats('downNorms', shape.ffnDim), margin) };
    }
  }
}
