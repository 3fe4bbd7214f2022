/** How many keys attention visited, with `trace.visitedKeys`. */

/** One layer, summed over the counted tokens. */
export interface VisitedLayerMetrics {
  readonly layer: number;
  /** Keys that a token may attend to: of the sequence so far, within the layer's window. */
  readonly numVisibleKeys: number;
  /**
   * Keys of each query head, landmarks included, by KV head; a single number where all heads visit equally many. Dense
   * attention visits all visible keys.
   */
  readonly numVisitedKeys: readonly number[];
}

/**
 * Since loading. A token counts if its step computes no other token of its sequence. So generated tokens count, except
 * those that are verified as drafts and those whose context has offloaded pages. Tokens of a step that is repeated
 * after a lost device count twice.
 */
export interface VisitedKeysMetrics {
  readonly numTokens: number;
  readonly layers: readonly VisitedLayerMetrics[];
}
