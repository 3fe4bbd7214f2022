/** What happened in FFNs that skip neurons, and in those whose experts or neurons are in tiers. */
import type { NeuronCacheStatistics, NeuronLayerStatistics } from '@winnow/sparse-inference';

/** One layer in tiers, since loading. */
export interface FeedForwardTierMetrics extends NeuronLayerStatistics {
  readonly numSlots: number;
  /** How often the layer computed, in as many pieces as what was chosen needed slots for. */
  readonly numPasses: number;
  /** How long steps waited for what was not in slots. */
  readonly waitedMs: number;
}

export interface FeedForwardLayerMetrics {
  readonly layer: number;
  /** Neurons, or experts. */
  readonly numItems: number;
  /** Steps of one token, and the mean share of the items that they computed. */
  readonly numSteps: number;
  readonly activeRatio: number;
  /** Steps of several tokens, and the same for what any of them needed. */
  readonly numBatches: number;
  readonly batchActiveRatio: number;
  /** When profiled: time of the whole layer, and of what chooses its neurons, that for reading ahead included. */
  readonly profile?: { readonly layerMs: number; readonly predictorMs: number };
  /** Where not all items are in the backend's memory. */
  readonly tiers?: FeedForwardTierMetrics;
}

export interface FeedForwardMetrics {
  readonly layers: readonly FeedForwardLayerMetrics[];
  /** With tiers: all layers together. */
  readonly cache?: NeuronCacheStatistics;
  /** With tiers: how long steps waited, and how long the file was being read, in part while steps computed. */
  readonly waitedMs?: number;
  readonly readMs?: number;
}
