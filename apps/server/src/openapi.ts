/** The parts of the OpenAPI document besides the routes. */
import type { TSchema } from 'typebox';
import {
  BatchList,
  BatchObject,
  BatchRequest,
  DeletedFile,
  FileList,
  FileObject,
  JobOverview,
} from './schemas/batches.js';
import { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from './schemas/chat.js';
import { ErrorBody, Usage } from './schemas/common.js';
import { Completion, CompletionRequest } from './schemas/completions.js';
import { EmbeddingList, EmbeddingRequest } from './schemas/embeddings.js';
import { RerankRequest, RerankResult } from './schemas/rerank.js';
import { Health, ModelList, ModelObject, SlotList } from './schemas/status.js';
import {
  CountTokensRequest,
  CountTokensResponse,
  Message,
  MessageError,
  MessageRequest,
  MessageStreamEvent,
} from './protocols/anthropic/schemas.js';
import {
  DeletedResponse,
  ResponseObject,
  ResponseRequest,
  ResponseStreamEvent,
} from './protocols/responses/schemas.js';
import {
  ApplyTemplateRequest,
  ApplyTemplateResponse,
  DetokenizeRequest,
  DetokenizeResponse,
  TokenizeRequest,
  TokenizeResponse,
} from './schemas/tokens.js';
import {
  OllamaChatRequest,
  OllamaChatResponse,
  OllamaEmbedRequest,
  OllamaEmbedResponse,
  OllamaError,
  OllamaGenerateRequest,
  OllamaGenerateResponse,
  OllamaModelList,
  OllamaShowRequest,
  OllamaShowResponse,
  OllamaVersion,
} from './protocols/ollama/schemas.js';

export const openApiInfo = {
  openapi: '3.1.0',
  info: {
    title: 'Winnow server',
    version: '1',
    description:
      'Local models with the APIs of OpenAI, Anthropic and Ollama. Parameters that are null count as absent, and OpenAI parameters ' +
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
  RerankRequest,
  RerankResult,
  ModelObject,
  ModelList,
  Health,
  SlotList,
  JobOverview,
  MessageRequest,
  Message,
  MessageError,
  MessageStreamEvent,
  CountTokensRequest,
  CountTokensResponse,
  OllamaChatRequest,
  OllamaChatResponse,
  OllamaGenerateRequest,
  OllamaGenerateResponse,
  OllamaEmbedRequest,
  OllamaEmbedResponse,
  OllamaModelList,
  OllamaShowRequest,
  OllamaShowResponse,
  OllamaVersion,
  OllamaError,
  ResponseRequest,
  ResponseObject,
  ResponseStreamEvent,
  DeletedResponse,
  TokenizeRequest,
  TokenizeResponse,
  DetokenizeRequest,
  DetokenizeResponse,
  ApplyTemplateRequest,
  ApplyTemplateResponse,
  FileObject,
  FileList,
  DeletedFile,
  BatchRequest,
  BatchObject,
  BatchList,
];
