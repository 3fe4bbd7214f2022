/** Counters of one layer since creation. An id that occurs twice in one `ensure` counts once. */
export interface NeuronLayerStatistics {
  /** Items requested by `ensure`: `hits + misses`. */
  readonly requests: number;
  /** In a slot, or being loaded into one. */
  readonly hits: number;
  /** Hits that were prefetched and not requested before. */
  readonly prefetchHits: number;
  /** `warmHits + coldReads`. */
  readonly misses: number;
  readonly warmHits: number;
  readonly coldReads: number;
  /** Items evicted from a slot, and from the warm tier. */
  readonly evictions: number;
  readonly warmEvictions: number;
  /** Items that `prefetch` began to load, could not load for lack of slots, and dropped before they arrived. */
  readonly prefetches: number;
  readonly prefetchesRefused: number;
  readonly prefetchesDropped: number;
}

/** Counters of a layer; `misses` and the evictions of the warm tier are derived. */
export class LayerCounters {
  requests = 0;
  hits = 0;
  prefetchHits = 0;
  warmHits = 0;
  coldReads = 0;
  evictions = 0;
  prefetches = 0;
  prefetchesRefused = 0;
  prefetchesDropped = 0;

  reset(): void {
    Object.assign(this, new LayerCounters());
  }

  statistics(warmEvictions: number): NeuronLayerStatistics {
    return { ...this, misses: this.warmHits + this.coldReads, warmEvictions };
  }
}

/** The sums over layers. */
export function sumOf(layers: readonly NeuronLayerStatistics[]): NeuronLayerStatistics {
  const sum: Record<string, number> = { ...new LayerCounters().statistics(0) };
  for (const layer of layers) for (const [name, count] of Object.entries(layer)) sum[name] += count;
  return sum as unknown as NeuronLayerStatistics;
}
