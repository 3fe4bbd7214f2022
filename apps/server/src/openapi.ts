/** What the OpenAPI document says beyond the routes. */
import type { TSchema } from 'typebox';
import { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from './schemas/chat.js';
import { ErrorBody, Usage } from './schemas/common.js';
import { Completion, CompletionRequest } from './schemas/completions.js';
import { EmbeddingList, EmbeddingRequest } from './schemas/embeddings.js';
import { Health, ModelList, ModelObject, SlotList } from './schemas/status.js';

export const openApiInfo = {
  openapi: '3.1.0',
  info: {
    title: 'Winnow server',
    version: '1',
    description:
      'The API of OpenAI over models on this computer. Parameters that are null count as absent, and parameters of OpenAI ' +
      'that this server does not have may be given at the value that asks for nothing, such as n: 1.',
    license: { name: 'MIT', identifier: 'MIT' },
  },
  components: { securitySchemes: { apiKey: { type: 'http' as const, scheme: 'bearer' } } },
  security: [{ apiKey: [] }, {}], // a server may ask for none
};

export const sharedSchemas: readonly TSchema[] = [
  ErrorBody,
  Usage,
  ChatCompletionRequest,
  ChatCompletion,
  ChatCompletionChunk,
  CompletionRequest,
  Completion,
  EmbeddingRequest,
  EmbeddingList,
  ModelObject,
  ModelList,
  Health,
  SlotList,
];
