export { embeddingModel, type EmbeddingModelSettings } from './embedding-model.js';
export { languageModel } from './language-model.js';
export { createWinnow, type WinnowProvider, type WinnowProviderOptions } from './provider.js';
export { rerankingModel, type RerankingModelSettings } from './reranking-model.js';
export type { LanguageModelSettings } from './settings.js';
