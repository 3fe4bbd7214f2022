/**
 * The interface of a vector database that a text index needs. An adapter is a few lines over a database that the caller
 * opens.
 */

/** A vector with its text. */
export interface VectorRecord {
  readonly id: string;
  readonly vector: Float32Array;
  readonly text: string;
}

/** A stored text and its similarity. */
export interface VectorMatch {
  readonly id: string;
  readonly text: string;
  /** Cosine of the two vectors: 1 for the same direction, 0 for unrelated ones. */
  readonly similarity: number;
}

export interface VectorStore {
  /** Number of values of a vector. */
  readonly dimensions: number;
  /** Inserts records; a record with a known id replaces the stored one. */
  insert(records: readonly VectorRecord[]): Promise<void>;
  /** At most `limit` records, closest first. Approximate indices may miss some. */
  search(vector: Float32Array, limit: number): Promise<VectorMatch[]>;
  /** @returns whether it existed */
  delete(id: string): Promise<boolean>;
  count(): Promise<number>;
}
