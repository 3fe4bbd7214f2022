export { createEmbeddingProvider, type EmbeddingProviderOptions } from './create-embedding-provider.js';
export type { EmbeddingProvider, EmbedTextOptions, TextKind } from './provider.js';
export { createRuvectorStore, type RuvectorDatabase } from './ruvector-store.js';
export {
  createSqliteVecStore,
  type SqliteDatabase,
  type SqliteStatement,
  type SqliteVecOptions,
} from './sqlite-vec-store.js';
export {
  createTextIndex,
  type IndexedText,
  type IndexOptions,
  type TextIndex,
  type TextIndexOptions,
} from './text-index.js';
export type { VectorMatch, VectorRecord, VectorStore } from './vector-store.js';
