/** What a text index needs of a vector database. An adapter is a few lines over an open database of the caller. */

/** A vector with the text it stands for. */
export interface VectorRecord {
  readonly id: string;
  readonly vector: Float32Array;
  readonly text: string;
}

/** A stored text and how close it is. */
export interface VectorMatch {
  readonly id: string;
  readonly text: string;
  /** Cosine of the two vectors: 1 for the same direction, 0 for unrelated ones. */
  readonly similarity: number;
}

export interface VectorStore {
  /** Values of a vector. */
  readonly dimensions: number;
  /** Stores records; those with a known id replace what was there. */
  insert(records: readonly VectorRecord[]): Promise<void>;
  /** At most `limit` records, closest first. Approximate indices may miss some. */
  search(vector: Float32Array, limit: number): Promise<VectorMatch[]>;
  /** @returns whether there was one */
  delete(id: string): Promise<boolean>;
  count(): Promise<number>;
}
