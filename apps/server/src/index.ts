export { createServer, type CloseOptions, type ListenOptions, type WinnowServer } from './create-server.js';
export type {
  AvailableModel,
  LoadedModel,
  ModelCatalog,
  ModelEvent,
  ModelKind,
  PreparedModel,
  UnloadReason,
} from './catalog.js';
export type {
  BatchOptions,
  GenerativeModel,
  OnDemandOptions,
  Rates,
  RequestRecord,
  ServedEmbeddingModel,
  ServedReranker,
  ServedModel,
  ServerLimits,
  ServerOptions,
  VectorModel,
} from './options.js';
export type { InternalRequest, InternalResponse } from './http/internal-calls.js';
export { batchEndpoints, type BatchEndpoint } from './schemas/batches.js';
export { batchResults, type ResultKind } from './batches/batch-results.js';
export { enqueueBatchLines, type EnqueuedLines, type EnqueueLinesOptions } from './batches/enqueue-lines.js';
export { batchQueueOf } from './batches/batch-line.js';
export { batchLineHandler, type LineHandlerOptions } from './batches/line-handler.js';
export { createBlobPromptStore, type BlobPromptStoreOptions } from './prompt-cache/blob-prompt-store.js';
