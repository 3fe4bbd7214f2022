/** Texts by meaning: a provider and a store together. */
import { ArgumentError } from '@winnow/tensor';
import { checkCount } from './checks.js';
import type { EmbeddingProvider } from './provider.js';
import type { VectorMatch, VectorStore } from './vector-store.js';

export interface TextIndexOptions {
  readonly provider: EmbeddingProvider;
  readonly store: VectorStore;
  /** Most texts that are embedded before they are stored. Default 64. */
  readonly batchSize?: number;
}

export interface IndexedText {
  readonly id: string;
  readonly text: string;
}

export interface TextIndex {
  /**
   * Embeds texts as documents and stores them, batch by batch: when it fails or is aborted, the batches before are stored.
   * Texts with a known id replace what was there.
   * @throws as the provider and the store do
   */
  insert(texts: Iterable<IndexedText>, options?: IndexOptions): Promise<void>;
  /** The texts closest to a query, closest first. Default limit 5. */
  search(query: string, options?: IndexOptions & { readonly limit?: number }): Promise<VectorMatch[]>;
}

export interface IndexOptions {
  readonly signal?: AbortSignal;
}

/** @throws {ArgumentError} for a store of other dimensions than the provider */
export function createTextIndex({ provider, store, batchSize = 64 }: TextIndexOptions): TextIndex {
  checkCount('batchSize', batchSize);
  if (provider.dimensions !== store.dimensions) {
    const expected = `a store of ${provider.dimensions} dimensions, as ${provider.name} has them`;
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
      let batch: IndexedText[] = [];
      for (const text of texts) {
        batch.push(text);
        if (batch.length < batchSize) continue;
        await insertBatch(batch, options);
        batch = [];
      }
      await insertBatch(batch, options);
    },
    async search(query, { limit = 5, signal } = {}) {
      checkCount('limit', limit);
      const abort = signal === undefined ? {} : { signal };
      return store.search(await provider.embed(query, { ...abort, kind: 'query' }), limit);
    },
  };
}
