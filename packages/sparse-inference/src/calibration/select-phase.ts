/** Thresholds from text that training did not see. */
import type { FloatHistogram } from '../plain/float-histogram.js';
import { encodeMatrix } from '../sidecar/stored-matrix.js';
import type { PredictorTables, SidecarConfig, StoredMatrix } from '../sidecar/sidecar.js';
import { neuronValues, type FeedForwardTrace } from './calibration-source.js';
import type { LayerState } from './layer-state.js';
import {
  contributionsOf,
  factorsOf,
  histogramOf,
  labelsOf,
  weighedMagnitudes,
  type Phase,
  type PhaseContext,
} from './phases.js';
import { createPredictorScores, type PredictorScores } from './predictor-scores.js';

/** Scores of low-rank predictors as programs compute them; made when they are first asked for. */
export class LayerScores {
  readonly #context: PhaseContext;
  readonly #scores = new Map<LayerState, PredictorScores>();

  constructor(context: PhaseContext) {
    this.#context = context;
  }

  async of(layer: LayerState, { x, numTokens }: FeedForwardTrace): Promise<Float32Array> {
    let scores = this.#scores.get(layer);
    if (scores === undefined) {
      const { backend, config, maxSampleTokens } = this.#context;
      scores = await createPredictorScores(backend, storedFactors(layer, config.rank), maxSampleTokens);
      this.#scores.set(layer, scores);
    }
    return scores.scores(x, numTokens);
  }

  async dispose(): Promise<void> {
    for (const scores of this.#scores.values()) await scores.dispose();
    this.#scores.clear();
  }
}

function storedFactors(layer: LayerState, rank: number): { readonly p: StoredMatrix; readonly q: StoredMatrix } {
  const { p, q, hiddenDim, ffnDim } = factorsOf(layer, rank);
  return { p: encodeMatrix(p, rank, hiddenDim), q: encodeMatrix(q, ffnDim, rank) };
}

/**
 * Every kind gives a neuron a margin, and all neurons of a layer are compared with one number: the score with what the neuron
 * learned as its bias; the magnitude of its activation, weighed with what its other factors usually are.
 */
export function selectPhase(context: PhaseContext, scores: LayerScores): Phase {
  const { config } = context;
  return {
    name: 'select',
    part: 'select',
    isResumable: false,
    async observe(layer, trace) {
      const { x, gate, up } = trace;
      const { ffnDim, hiddenDim } = layer.shape;
      const values = neuronValues(layer.shape, gate, up);
      const contributions = contributionsOf(layer, values);
      const labels = labelsOf(layer, contributions);
      const histogram = histogramOf(layer, 'margins');
      if (layer.kind === 'input-threshold') {
        histogram.add(contributions, labels);
        const inputs = weighedMagnitudes(x, layer.floats('inputNorms', hiddenDim));
        const threshold = layer.number('inputContribution');
        histogramOf(layer, 'inputs').add(
          inputs,
          inputs.map((input) => (input >= threshold ? 1 : 0)),
        );
      } else if (layer.kind === 'gate-threshold') {
        const activations = gate === undefined ? values : neuronValues(layer.shape, undefined, gate);
        histogram.add(weighedMagnitudes(activations, activationFactors(layer)), labels);
      } else {
        const margins = await scores.of(layer, trace);
        const bias = layer.floats('bias', ffnDim);
        for (let i = 0; i < margins.length; i++) margins[i] += bias[i % ffnDim];
        histogram.add(margins, labels);
      }
    },
    finish(layer) {
      layer.numbers.set('margin', marginOf(histogramOf(layer, 'margins'), config));
      layer.delete('margins.counts', 'margins.weights');
      if (layer.kind !== 'input-threshold') return;
      layer.numbers.set('inputMargin', marginOf(histogramOf(layer, 'inputs'), config));
      layer.delete('inputs.counts', 'inputs.weights');
    },
  };
}

/**
 * The largest margin that finds enough of the active neurons, or the smallest that leaves enough neurons out. The text of the
 * report is another one: a tenth of what may be missed is kept in hand.
 */
function marginOf(histogram: FloatHistogram, { target }: SidecarConfig): number {
  if ('recall' in target) {
    return histogram.edgeOfWeight((1 - 0.9 * (1 - target.recall)) * histogram.totalWeight);
  }
  return histogram.edgeBelowCount((1 - target.sparsity) * histogram.totalCount);
}

/** What the activation of the gate is multiplied with on average: the root mean square of up times the length of the column. */
function activationFactors(layer: LayerState): Float32Array {
  const { ffnDim, isGated } = layer.shape;
  const norms = layer.floats('downNorms', ffnDim);
  if (!isGated) return norms;
  const squares = layer.sums('upSquares', ffnDim);
  const numTokens = Math.max(1, layer.number('upTokens'));
  return norms.map((norm, id) => norm * Math.sqrt(squares[id] / numTokens));
}

/** The predictor as programs have it. */
export function tablesOf(layer: LayerState, rank: number): PredictorTables {
  const { kind, shape } = layer;
  const margin = layer.number('margin');
  const reach = (factors: Float32Array, least: number): Float32Array =>
    factors.map((factor) => (factor > 0 ? least / factor : Infinity));
  switch (kind) {
    case 'low-rank': {
      const thresholds = layer.floats('bias', shape.ffnDim).map((bias) => margin - bias);
      return { kind, rank, ...storedFactors(layer, rank), thresholds };
    }
    case 'gate-threshold':
      return { kind, thresholds: reach(activationFactors(layer), margin) };
    default: {
      const inputThresholds = reach(layer.floats('inputNorms', shape.hiddenDim), layer.number('inputMargin'));
      return { kind, inputThresholds, thresholds: reach(layer.floats('downNorms', shape.ffnDim), margin) };
    }
  }
}
