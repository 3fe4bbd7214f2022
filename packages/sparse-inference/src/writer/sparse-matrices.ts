/** Which layers of a sidecar leave out neurons, and which of their matrices are read row by row. */
import { breakEvenRatio } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import type { Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import type { FeedForwardWriterOptions } from './feed-forward-writer.js';

/** A matrix of a feed-forward block. */
export type FeedForwardMatrix = 'gate' | 'up' | 'down';

/**
 * The share of active neurons above which all of a layer's take less time, its predictor counted: the least `breakEvenRatio` of
 * @winnow/ops of its matrices, of which the predictor leaves what its tables' share of the block's bytes does not take. Only guesses
 * of gate and up read rows side by side. A layer without `rows` counts as of the type that has as many bits as its weights had.
 */
export function breakEvenOf(layer: SparseLayer): number {
  const { predictor, isGated, report } = layer;
  const { dtypes, areSideBySide } = layer.rows ?? { dtypes: [typeByBits(layer)], areSideBySide: isGated };
  const isGuessed = 'rank' in predictor;
  const ratio = Math.min(...dtypes.map((dtype) => breakEvenRatio(dtype, areSideBySide && isGuessed)));
  const { activeRatio, denseBytes, sparseBytes } = report;
  // a gate that is computed as a whole is no cost of its own; tables are read as fast as dense weights
  if (!isGuessed || denseBytes === 0) return ratio;
  const tableShare = sparseBytes / denseBytes - activeRatio;
  return ratio * (1 - Math.min(1, Math.max(0, tableShare)));
}

function typeByBits({ hiddenDim, ffnDim, isGated, report }: SparseLayer): DType {
  const bits = (8 * report.denseBytes) / ((isGated ? 3 : 2) * hiddenDim * ffnDim);
  if (bits >= 32) return 'f32';
  if (bits >= 16) return 'f16';
  return bits >= 8 ? 'q8_0' : 'q4_0';
}

/**
 * Whether a layer computes all neurons although it has a predictor: more of its neurons (of its weights, where inputs are
 * skipped) were active on average when it was calibrated, and skipping the rest takes longer.
 * @param maxRatio instead of `breakEvenOf`
 */
export function runsDense(layer: SparseLayer, maxRatio: number = breakEvenOf(layer)): boolean {
  const { predictor, isGated, report } = layer;
  const { activeRatio, inputRatio } = report;
  if (predictor.kind !== 'input-threshold') return activeRatio > maxRatio;
  const numByInputs = isGated ? 2 : 1;
  return (numByInputs * inputRatio + activeRatio) / (numByInputs + 1) > maxRatio;
}

/**
 * The matrices of a layer whose rows are read for active neurons only, which need not be in memory as a whole: `down` by
 * neurons. None for a layer that is not in the sidecar, or that computes all neurons.
 */
export function sparseMatrices(
  sidecar: Sidecar,
  layer: number,
  { maxRatio, oracle = false }: FeedForwardWriterOptions = {},
): readonly FeedForwardMatrix[] {
  const sparse = sidecar.layers.find((entry) => entry.layer === layer);
  if (sparse === undefined) return [];
  if (oracle) return ['down'];
  if (runsDense(sparse, maxRatio)) return [];
  switch (sparse.predictor.kind) {
    case 'low-rank':
    case 'low-rank-product':
      return sparse.isGated ? ['gate', 'up', 'down'] : ['up', 'down'];
    case 'gate-threshold':
      return sparse.isGated ? ['up', 'down'] : ['down'];
    default:
      // gate and up lie input by input
      return ['down'];
  }
}
