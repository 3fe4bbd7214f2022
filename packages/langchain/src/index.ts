export { ChatWinnow, type ChatWinnowCallOptions } from './chat-winnow.js';
export type { ChatWinnowFields, GenerationFields, WinnowFields, WinnowLLMFields } from './fields.js';
export { Winnow, type WinnowCallOptions } from './winnow.js';
export { WinnowEmbeddings, type WinnowEmbeddingsFields } from './winnow-embeddings.js';
