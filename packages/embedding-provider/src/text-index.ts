/** Semantic search: a provider and a store combined. */
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { checkCount } from './checks.js';
import type { EmbeddingProvider } from './provider.js';
import type { VectorMatch, VectorStore } from './vector-store.js';

export interface TextIndexOptions {
  readonly provider: EmbeddingProvider;
  readonly store: VectorStore;
  /** Maximum number of texts that are embedded before they are stored. Default 64. */
  readonly batchSize?: number;
}

export interface IndexedText {
  readonly id: string;
  readonly text: string;
}

export interface TextIndex {
  /**
   * Embeds texts as documents and stores them, batch by batch: on failure or abort, the previous batches remain stored.
   * A text with a known id replaces the stored one.
   * @throws as the provider and the store
   */
  insert(texts: Iterable<IndexedText>, options?: IndexOptions): Promise<void>;
  /** The texts closest to a query, closest first. Default limit 5. */
  search(query: string, options?: IndexOptions & { readonly limit?: number }): Promise<VectorMatch[]>;
}

export interface IndexOptions {
  readonly signal?: AbortSignal;
}

const indexNames: OptionNames<IndexOptions> = { signal: true };
const searchNames: OptionNames<IndexOptions & { readonly limit?: number }> = { signal: true, limit: true };

/**
 * @throws {UnknownOptionError} for an option that does not exist
 * @throws {ArgumentError} when the dimensions of store and provider differ
 */
export function createTextIndex(indexOptions: TextIndexOptions): TextIndex {
  checkOptions(indexOptions, { provider: true, store: true, batchSize: true });
  const { provider, store, batchSize = 64 } = indexOptions;
  checkCount('batchSize', batchSize);
  if (provider.dimensions !== store.dimensions) {
    const expected = `a store of ${provider.dimensions} dimensions, like ${provider.name}`;
    throw new ArgumentError({ argument: 'store', expected, actual: String(store.dimensions) });
  }

  async function insertBatch(batch: readonly IndexedText[], options: IndexOptions): Promise<void> {
    if (batch.length === 0) return;
    const texts = batch.map(({ text }) => text);
    const vectors = await provider.embedBatch(texts, { ...options, kind: 'document' });
    await store.insert(batch.map(({ id, text }, i) => ({ id, text, vector: vectors[i] as Float32Array })));
  }

  return {
    async insert(texts, options = {}) {
      checkOptions(options, indexNames);
      let batch: IndexedText[] = [];
      for (const text of texts) {
        batch.push(text);
        if (batch.length < batchSize) continue;
        await insertBatch(batch, options);
        batch = [];
      }
      await insertBatch(batch, options);
    },
    async search(query, options = {}) {
      checkOptions(options, searchNames);
      const { limit = 5, signal } = options;
      checkCount('limit', limit);
      const abort = signal === undefined ? {} : { signal };
      return store.search(await provider.embed(query, { ...abort, kind: 'query' }), limit);
    },
  };
}
