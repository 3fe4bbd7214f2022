/** The parts of the OpenAPI document besides the routes. */
import type { TSchema } from 'typebox';
import { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from './chat.js';
import { ErrorBody, Usage } from './common.js';
import { Completion, CompletionRequest } from './completions.js';
import { EmbeddingList, EmbeddingRequest } from './embeddings.js';
import { Health, ModelList, ModelObject, SlotList } from './status.js';

export const openApiInfo = {
  openapi: '3.1.0',
  info: {
    title: 'Winnow server',
    version: '1',
    description:
      'OpenAI-compatible API for local models. Parameters that are null count as absent, and OpenAI parameters ' +
      'that this server does not support may be given with their neutral value, such as best_of: 1.',
    license: { name: 'MIT', identifier: 'MIT' },
  },
  components: { securitySchemes: { apiKey: { type: 'http' as const, scheme: 'bearer' } } },
  security: [{ apiKey: [] }, {}], // a server may require none
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
