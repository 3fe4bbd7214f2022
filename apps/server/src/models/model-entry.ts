/** A model that requests can use, with its slots. */
import type { GenerativeModel, RankingModel, VectorModel } from '../options.js';
import type { Slots } from './slots.js';

export interface GenerativeEntry {
  readonly kind: 'generative';
  readonly id: string;
  readonly model: GenerativeModel;
  readonly slots: Slots;
}

export interface EmbeddingEntry {
  readonly kind: 'embedding';
  readonly id: string;
  readonly model: VectorModel;
  readonly slots: Slots;
}

export interface RerankingEntry {
  readonly kind: 'reranking';
  readonly id: string;
  readonly model: RankingModel;
  readonly slots: Slots;
}

export type ModelEntry = GenerativeEntry | EmbeddingEntry | RerankingEntry;
