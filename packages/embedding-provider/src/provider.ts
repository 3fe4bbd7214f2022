/** The contract: texts in, vectors of one length out. Plain types, so that other libraries can implement it. */

/** What a text is for. Some models put another prompt before each kind. */
export type TextKind = 'query' | 'document';

export interface EmbedTextOptions {
  /** Default `document`. */
  readonly kind?: TextKind;
  readonly signal?: AbortSignal;
}

/**
 * Turns texts into vectors. The vector of a text depends on the text and its kind only, not on the texts beside it
 * (`tolerance` of the conformance suite says how exactly).
 */
export interface EmbeddingProvider {
  /** Which model it is. Vectors of different models do not belong into one index. */
  readonly name: string;
  /** Values of every vector. */
  readonly dimensions: number;
  /** Whether every vector has length 1, so that dot products are cosines. */
  readonly isNormalized: boolean;
  /** Most tokens of a text, special ones included. */
  readonly maxTokens: number;
  /**
   * @returns a vector of its own, `[dimensions]`
   * @throws {ArgumentError} for a text without any token
   * @throws {CapacityError} for a text beyond `maxTokens`, unless the provider was told what to do with it
   * @throws the signal's reason when aborted
   */
  embed(text: string, options?: EmbedTextOptions): Promise<Float32Array>;
  /** A vector for each text, in their order; none for none. @throws as `embed`, before any text is embedded */
  embedBatch(texts: readonly string[], options?: EmbedTextOptions): Promise<Float32Array[]>;
}
