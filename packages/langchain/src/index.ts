export { ChatWinnow, type ChatWinnowCallOptions } from './chat-winnow.js';
export type { ChatWinnowFields, GenerationFields, WinnowFields, WinnowLLMFields } from './fields.js';
export { Winnow, type WinnowCallOptions } from './winnow.js';
export { WinnowReranker, type WinnowRerankerFields } from './winnow-reranker.js';
export { WinnowEmbeddings, type WinnowEmbeddingsFields } from './winnow-embeddings.js';
