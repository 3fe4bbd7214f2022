/** Metrics of sparse FFNs and of FFNs with offloaded experts or neurons. */
import type { NeuronCacheStatistics, NeuronLayerStatistics } from '@winnow/sparse-inference';

/** One offloaded layer, since loading. */
export interface FeedForwardTierMetrics extends NeuronLayerStatistics {
  readonly numSlots: number;
  /** Number of passes; a layer takes several when its slots do not hold all active items. */
  readonly numPasses: number;
  /** How long steps waited for items that were not in slots. */
  readonly waitedMs: number;
}

export interface FeedForwardLayerMetrics {
  readonly layer: number;
  /** Neurons, or experts. */
  readonly numItems: number;
  /** Steps of one token, and their mean share of active items. */
  readonly numSteps: number;
  readonly activeRatio: number;
  /** Steps of several tokens, and the mean share of items that any of their tokens needed. */
  readonly numBatches: number;
  readonly batchActiveRatio: number;
  /** When profiled: time of the whole layer, and of its predictor including prediction for prefetch. */
  readonly profile?: { readonly layerMs: number; readonly predictorMs: number };
  /** If not all items are in the backend's memory. */
  readonly tiers?: FeedForwardTierMetrics;
}

export interface FeedForwardMetrics {
  readonly layers: readonly FeedForwardLayerMetrics[];
  /** With tiers: all layers together. */
  readonly cache?: NeuronCacheStatistics;
  /** With tiers: how long steps waited, and how long the file was being read, which overlaps with computing. */
  readonly waitedMs?: number;
  readonly readMs?: number;
}
