/** The contract: maps texts to vectors of one length. Plain types, so that other libraries can implement it. */

import type { ImageInput } from '@winnow/engine';

/** The role of a text. Some models use a different prompt for each kind. */
export type TextKind = 'query' | 'document';

export interface EmbedTextOptions {
  /** Default `document`. */
  readonly kind?: TextKind;
  readonly signal?: AbortSignal;
}

/**
 * Turns texts into vectors. The vector of a text depends only on the text and its kind, not on the other texts of a
 * batch (within the `tolerance` of the conformance suite).
 */
export interface EmbeddingProvider {
  /** The name of the model. Do not mix vectors of different models in one index. */
  readonly name: string;
  /** Number of values per vector. */
  readonly dimensions: number;
  /** Whether every vector has length 1, so that dot products are cosines. */
  readonly isNormalized: boolean;
  /** Maximum number of tokens of a text, including special tokens. */
  readonly maxTokens: number;
  /**
   * @returns a vector owned by the caller, `[dimensions]`
   * @throws {ArgumentError} for a text without tokens
   * @throws {CapacityError} for a text beyond `maxTokens`, unless the provider has another overflow policy
   * @throws the signal's reason when aborted
   */
  embed(text: string, options?: EmbedTextOptions): Promise<Float32Array>;
  /**
   * A vector for each text, in order; an empty list for an empty batch. @throws as `embed`, before any text is embedded
   */
  embedBatch(texts: readonly string[], options?: EmbedTextOptions): Promise<Float32Array[]>;
  /**
   * A vector for each image, in order, comparable with those of texts; an empty list for an empty batch. Only models that take
   * images have this method.
   * @throws as `EmbeddingModel.embedImages`
   */
  embedImages?(images: readonly ImageInput[], options?: Pick<EmbedTextOptions, 'signal'>): Promise<Float32Array[]>;
}
