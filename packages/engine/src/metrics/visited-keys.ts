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
 * Since loading. Tokens count when a step computes one of their sequence: generated tokens, unless they are verified as
 * drafts, and unless pages of their context are offloaded. Tokens of a step that is repeated after a lost device count
 * twice.
 */
export interface VisitedKeysMetrics {
  readonly numTokens: number;
  readonly layers: readonly VisitedLayerMetrics[];
}
