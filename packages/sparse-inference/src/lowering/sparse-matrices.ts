/** Which layers of a sidecar leave out neurons, and which of their matrices are read row by row. */
import { breakEvenRatio } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import type { Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import type { FeedForwardLoweringOptions } from './feed-forward-lowering.js';

/** A matrix of a feed-forward block. */
export type FeedForwardMatrix = 'gate' | 'up' | 'down';

/**
 * The share of active neurons above which the dense block takes less time: the smallest `breakEvenRatio` of @winnow/ops of the
 * layer's matrices, less the share of the block's bytes that the tables of the predictor take. Only low-rank predictors read rows
 * of gate and up side by side. A layer without `rows` counts as the dtype that has as many bits per weight.
 */
export function breakEvenOf(layer: SparseLayer): number {
  const { predictor, isGated, report } = layer;
  const { dtypes, areSideBySide } = layer.rows ?? { dtypes: [typeByBits(layer)], areSideBySide: isGated };
  const isLowRank = 'rank' in predictor;
  const ratio = Math.min(...dtypes.map((dtype) => breakEvenRatio(dtype, areSideBySide && isLowRank)));
  const { activeRatio, denseBytes, sparseBytes } = report;
  // a gate that is computed densely costs nothing extra; tables are read as fast as dense weights
  if (!isLowRank || denseBytes === 0) return ratio;
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
  { maxRatio, oracle = false }: FeedForwardLoweringOptions = {},
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
