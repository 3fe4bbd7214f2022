export { ChatWinnow, type ChatWinnowCallOptions, type ChatWinnowFields } from './chat-winnow.js';
export type { GenerationFields, WinnowFields } from './fields.js';
export { Winnow, type WinnowCallOptions, type WinnowLLMFields } from './winnow.js';
export { WinnowEmbeddings, type WinnowEmbeddingsFields } from './winnow-embeddings.js';
