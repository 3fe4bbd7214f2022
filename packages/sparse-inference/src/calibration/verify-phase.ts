/** Measures the predictors on text that neither training nor thresholds saw. */
import { invariant } from '@winnow/tensor';
import type { SparseLayer } from '../sidecar/sidecar.js';
import { isLowRank } from '../sidecar/sidecar.js';
import { LayerMeasurement } from './layer-measurement.js';
import type { LayerState } from './layer-state.js';
import type { Phase, PhaseContext } from './phases.js';
import { tablesOf, type LayerScores } from './select-phase.js';

/** A phase whose result is the layers of a sidecar. */
export interface VerifyPhase extends Phase {
  /** When the phase is finished. */
  sparseLayer(layer: LayerState): SparseLayer;
}

interface Measured {
  readonly layer: Omit<SparseLayer, 'report'>;
  readonly measurement: LayerMeasurement;
}

/** @param numTokens of its texts */
export function verifyPhase(context: PhaseContext, scores: LayerScores, numTokens: number): VerifyPhase {
  const measured = new Map<LayerState, Measured>();
  const results = new Map<LayerState, SparseLayer>();
  const begin = (layer: LayerState): Measured => {
    let entry = measured.get(layer);
    if (entry === undefined) {
      const sparse = sparseLayerOf(layer, context.config.rank);
      entry = { layer: sparse, measurement: new LayerMeasurement(layer.shape, sparse, numTokens) };
      measured.set(layer, entry);
    }
    return entry;
  };
  return {
    name: 'verify',
    part: 'verify',
    isResumable: false,
    async observe(layer, trace) {
      const { measurement } = begin(layer);
      measurement.observe(trace, isLowRank(layer.kind) ? await scores.of(layer, trace) : undefined);
    },
    async finish(layer) {
      const { layer: sparse, measurement } = begin(layer);
      const { rows } = layer.shape;
      const report = await measurement.report(context.source, context.products);
      results.set(layer, { ...sparse, report, ...(rows === undefined ? {} : { rows }) });
    },
    sparseLayer(layer) {
      const result = results.get(layer);
      invariant(result, 'a report of every layer');
      return result;
    },
  };
}

function sparseLayerOf(layer: LayerState, rank: number): Omit<SparseLayer, 'report'> {
  const { layer: index, hiddenDim, ffnDim, activation, isGated } = layer.shape;
  const numTokens = Math.max(1, layer.number('labeledTokens'));
  return {
    layer: index,
    hiddenDim,
    ffnDim,
    activation,
    isGated,
    predictor: tablesOf(layer, rank),
    contributionThreshold: layer.number('contributionThreshold'),
    downNorms: layer.floats('downNorms', ffnDim),
    frequencies: Float32Array.from(layer.sums('activeCounts', ffnDim), (count) => count / numTokens),
  };
}
