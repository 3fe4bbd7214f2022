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
  readonly #scores = new Map<string, PredictorScores>();

  constructor(context: PhaseContext) {
    this.#context = context;
  }

  async of(layer: LayerState, { x, numTokens }: FeedForwardTrace, prefix: '' | 'start.' = ''): Promise<Float32Array> {
    const key = `${prefix}${layer.shape.layer}`;
    let scores = this.#scores.get(key);
    if (scores === undefined) {
      const { backend, config, maxSampleTokens } = this.#context;
      scores = await createPredictorScores(backend, storedFactors(layer, config.rank, prefix), maxSampleTokens);
      this.#scores.set(key, scores);
    }
    return scores.scores(x, numTokens);
  }

  async dispose(): Promise<void> {
    for (const scores of this.#scores.values()) await scores.dispose();
    this.#scores.clear();
  }
}

function storedFactors(
  layer: LayerState,
  rank: number,
  prefix: '' | 'start.' = '',
): { readonly p: StoredMatrix; readonly q: StoredMatrix } {
  const { p, q, hiddenDim, ffnDim } = factorsOf(layer, rank, prefix);
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
        for (const prefix of ['', 'start.'] as const) {
          const margins = await scores.of(layer, trace, prefix);
          const bias = layer.floats(`${prefix}bias`, ffnDim);
          for (let i = 0; i < margins.length; i++) margins[i] += bias[i % ffnDim];
          histogramOf(layer, `${prefix}margins`).add(margins, labels);
        }
      }
    },
    async finish(layer) {
      const chosen = chooseMargin(histogramOf(layer, 'margins'), config);
      layer.numbers.set('margin', chosen.margin);
      layer.delete('margins.counts', 'margins.weights');
      if (layer.kind === 'low-rank') {
        const start = chooseMargin(histogramOf(layer, 'start.margins'), config);
        const isBetter =
          'recall' in config.target ? start.numChosen < chosen.numChosen : start.numFound > chosen.numFound;
        if (isBetter) restart(layer, start.margin);
        layer.delete('start.margins.counts', 'start.margins.weights', 'start.p', 'start.q', 'start.bias');
        await scores.dispose(); // of what was not chosen, too
      }
      if (layer.kind !== 'input-threshold') return;
      layer.numbers.set('inputMargin', chooseMargin(histogramOf(layer, 'inputs'), config).margin);
      layer.delete('inputs.counts', 'inputs.weights');
    },
  };
}

/** Where training did not help on other text, the predictor stays what it started as. */
function restart(layer: LayerState, margin: number): void {
  layer.numbers.set('margin', margin);
  for (const name of ['p', 'q', 'bias']) {
    const array = layer.arrays.get(`start.${name}`);
    if (array !== undefined) layer.arrays.set(name, array);
  }
}

/** A margin and what it does on the text that it was chosen on. */
interface Choice {
  readonly margin: number;
  readonly numChosen: number;
  readonly numFound: number;
}

/**
 * The largest margin that finds enough of the active neurons, or the smallest that leaves enough neurons out. The text of the
 * report is another one: a tenth of what may be missed is kept in hand.
 */
function chooseMargin(histogram: FloatHistogram, { target }: SidecarConfig): Choice {
  const margin =
    'recall' in target
      ? histogram.edgeOfWeight((1 - 0.9 * (1 - target.recall)) * histogram.totalWeight)
      : histogram.edgeBelowCount((1 - target.sparsity) * histogram.totalCount);
  const { count, weight } = histogram.above(margin);
  return { margin, numChosen: count, numFound: weight };
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
