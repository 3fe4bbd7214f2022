export { createServer, type CloseOptions, type ListenOptions, type WinnowServer } from './create-server.js';
export type {
  GenerativeModel,
  Rates,
  RequestRecord,
  ServedEmbeddingModel,
  ServedModel,
  ServerLimits,
  ServerOptions,
  VectorModel,
} from './options.js';
