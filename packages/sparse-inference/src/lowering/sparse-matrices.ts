/** Which layers of a sidecar leave out neurons, and which of their matrices are read row by row. */
import type { Backend } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import type { Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import type { FeedForwardLoweringOptions } from './feed-forward-lowering.js';

/** A matrix of a feed-forward block. */
export type FeedForwardMatrix = 'gate' | 'up' | 'down';

/**
 * The share of active neurons, from 0 to 1, above which a layer runs dense: a number for all layers, or the break-even ratios
 * that a backend measured (`backend.breakEvenRatio`).
 */
export type MaxActiveRatio = number | Backend['breakEvenRatio'];

/**
 * The share of active neurons above which the dense block of a layer takes less time on a backend: the smallest ratio of the
 * layer's matrices, less the share of the block's bytes that the tables of the predictor take. Only low-rank predictors read
 * interleaved rows of gate and up. A layer without `rows` counts as the dtype that has as many bits per weight.
 * @param breakEvenRatio that of the backend
 */
export function breakEvenOf(layer: SparseLayer, breakEvenRatio: Backend['breakEvenRatio']): number {
  const { predictor, isGated, report } = layer;
  const { dtypes, areInterleaved } = layer.rows ?? { dtypes: [typeByBits(layer)], areInterleaved: isGated };
  const isLowRank = 'rank' in predictor;
  const layout = areInterleaved && isLowRank ? 'interleaved' : 'separate';
  const ratio = Math.min(...dtypes.map((dtype) => breakEvenRatio(dtype, layout)));
  const { activeRatio, denseBytes, sparseBytes } = report;
  // a gate that is computed densely costs nothing extra; tables are read as fast as dense weights
  if (!isLowRank || denseBytes === 0) return ratio;
  const tableShare = sparseBytes / denseBytes - activeRatio;
  return ratio * (1 - Math.min(1, Math.max(0, tableShare)));
}

/** `maxRatio` as a number for one layer. */
export function maxRatioOf(layer: SparseLayer, maxRatio: MaxActiveRatio): number {
  return typeof maxRatio === 'number' ? maxRatio : breakEvenOf(layer, maxRatio);
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
 */
export function runsDense(layer: SparseLayer, maxActiveRatio: MaxActiveRatio): boolean {
  const maxRatio = maxRatioOf(layer, maxActiveRatio);
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
  { maxRatio = 1, oracle = false }: FeedForwardLoweringOptions = {},
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
      // gate and up are stored input by input
      return ['down'];
  }
}
