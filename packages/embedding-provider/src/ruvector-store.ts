/** A vector store on a `@ruvector/core` database, which the caller opens: an HNSW graph in memory over a file. */
import { FormatError, checkOptions } from '@winnow/tensor';
import { checkCount, checkVector } from './checks.js';
import type { VectorMatch, VectorStore } from './vector-store.js';

/** The parts of the class `VectorDb` in use. Its declarations omit `metadata`, a string that it stores unchanged. */
export interface RuvectorDatabase {
  insertBatch(entries: { id: string; vector: Float32Array; metadata: string }[]): Promise<string[]>;
  search(query: { vector: Float32Array; k: number }): Promise<{ id: string; score: number; metadata?: string }[]>;
  delete(id: string): Promise<boolean>;
  len(): Promise<number>;
}

/**
 * @param database opened with `distanceMetric: 'Cosine'` and these dimensions. The file keeps the dimensions that it
 *   was created with, regardless of later requests, and each open database has its own graph: open a file only once.
 * @throws {UnknownOptionError} for an option that does not exist
 */
export function createRuvectorStore(database: RuvectorDatabase, options: { readonly dimensions: number }): VectorStore {
  checkOptions(options, { dimensions: true });
  const { dimensions } = options;
  checkCount('dimensions', dimensions);
  return {
    dimensions,
    async insert(records) {
      for (const { vector } of records) checkVector(vector, dimensions);
      if (records.length === 0) return;
      await database.insertBatch(
        records.map(({ id, vector, text }) => ({ id, vector, metadata: JSON.stringify({ text }) })),
      );
    },
    async search(vector, limit) {
      checkVector(vector, dimensions);
      checkCount('limit', limit);
      const found = await database.search({ vector, k: limit });
      // its score is a distance, 1 - cosine
      return found.map(({ id, score, metadata }): VectorMatch => ({
        id,
        similarity: 1 - score,
        text: textOf(id, metadata),
      }));
    },
    delete: (id) => database.delete(id),
    count: () => database.len(),
  };
}

function textOf(id: string, metadata: string | undefined): string {
  const problem = { source: 'ruvector', field: `metadata of ${id}`, message: 'expected a JSON object with a text' };
  let value: unknown;
  try {
    value = JSON.parse(metadata ?? 'null');
  } catch (cause) {
    throw new FormatError(problem, { cause });
  }
  const text = (value as { text?: unknown } | null)?.text;
  if (typeof text !== 'string') throw new FormatError(problem);
  return text;
}
