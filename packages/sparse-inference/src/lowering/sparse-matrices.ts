/** Which layers of a sidecar run sparse, and which of their matrices are read row by row. */
import type { Backend } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import type { Sidecar, SparseLayer } from '../sidecar/sidecar.js';
import type { FeedForwardLoweringOptions } from './feed-forward-lowering.js';

/** A matrix of a feed-forward block. */
export type FeedForwardMatrix = 'gate' | 'up' | 'down';

/**
 * The share of active neurons, from 0 to 1, above which a layer runs dense: a number for all layers, or the break-even
 * ratios that a backend measured (`backend.breakEvenRatio`).
 */
export type MaxActiveRatio = number | Backend['breakEvenRatio'];

/**
 * The share of active neurons above which the dense block of a layer is faster on a backend: the smallest ratio of the
 * layer's matrices, minus the predictor's share of the block's bytes. Only low-rank predictors read interleaved rows of
 * gate and up. A layer without `rows` counts as the dtype with the same number of bits per weight.
 * @param breakEvenRatio from the backend
 */
export function breakEvenOf(layer: SparseLayer, breakEvenRatio: Backend['breakEvenRatio']): number {
  const { predictor, isGated, report } = layer;
  const { dtypes, areInterleaved } = layer.rows ?? { dtypes: [typeByBits(layer)], areInterleaved: isGated };
  const isLowRank = 'rank' in predictor;
  const layout = areInterleaved && isLowRank ? 'interleaved' : 'separate';
  const ratio = Math.min(...dtypes.map((dtype) => breakEvenRatio(dtype, layout)));
  const { activeRatio, denseBytes, sparseBytes } = report;
  // a dense gate costs nothing extra; tables are read as fast as dense weights
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
 * Whether a layer with a predictor runs dense: on average, more of its neurons (or of its weights, if inputs are
 * skipped) were active during calibration than the break-even.
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
 * The matrices of a layer of which only the rows of active neurons are read, so that they need not be entirely in
 * memory (`down` by neurons). Empty for a layer that is not in the sidecar or runs dense.
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
      // gate and up are stored by input
      return ['down'];
  }
}
