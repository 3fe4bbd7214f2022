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
  GenerativeModel,
  OnDemandOptions,
  Rates,
  RequestRecord,
  ServedEmbeddingModel,
  ServedModel,
  ServerLimits,
  ServerOptions,
  VectorModel,
} from './options.js';
