/** The models of a server and its limits. */
import type { EmbeddingModel, Model, Reranker } from '@winnow/engine';
import type { OptionNames } from '@winnow/tensor';
import type { BlobStore, JobStore } from '@winnow/jobs';
import type { ModelCatalog, ModelEvent } from './catalog.js';

/** What the server requires of a generative model. */
export type GenerativeModel = Pick<
  Model,
  'name' | 'backend' | 'config' | 'contextSize' | 'tokenizer' | 'chatTemplate' | 'generate' | 'tokenize' | 'metrics'
> &
  Partial<Pick<Model, 'logprobs' | 'plan' | 'imageToken' | 'insertImages'>>;

/** What the server requires of an embedding model. */
export type VectorModel = Pick<EmbeddingModel, 'name' | 'backend' | 'contextSize' | 'dimensions' | 'embedTexts'> &
  Partial<Pick<EmbeddingModel, 'feedForwardMetrics'>>;

/** What the server requires of a reranker. */
export type RankingModel = Pick<Reranker, 'name' | 'backend' | 'contextSize' | 'rerank'>;

export interface ServedModel {
  /** Model id in requests. */
  readonly id: string;
  readonly model: GenerativeModel;
  /** Maximum number of concurrent requests, each with a session: at most the `maxSessions` that the model was loaded with. Default 4. */
  readonly maxSessions?: number;
}

export interface ServedEmbeddingModel {
  readonly id: string;
  readonly model: VectorModel;
}

export interface ServedReranker {
  readonly id: string;
  readonly model: RankingModel;
}

/** A completed request, for a log. */
export interface RequestRecord {
  readonly requestId: string;
  readonly method: string;
  /** Without the query string. */
  readonly path: string;
  readonly status: number;
  readonly durationMs: number;
  /** When the response ended, as RFC 3339 says. */
  readonly endedAt: string;
}

export interface ServerLimits {
  /** Maximum number of requests per model that wait for a slot; more get 429. Default 64. */
  readonly maxQueued?: number;
  /** Maximum time in milliseconds that a request waits for a slot before it gets 503. Default 60 000. */
  readonly queueTimeoutMs?: number;
  /** Maximum time in milliseconds to compile a grammar or schema of a request; a slower one gets 400. Default 10 000. */
  readonly compileTimeoutMs?: number;
  /** Maximum total time of a request in milliseconds. Default 600 000. */
  readonly requestTimeoutMs?: number;
  /** Maximum time in milliseconds that a client may stall its stream before it is disconnected. Default 60 000. */
  readonly stallTimeoutMs?: number;
  /** Idle time in milliseconds after which a stream gets a keep-alive comment. Default 10 000. */
  readonly keepAliveMs?: number;
  /** Maximum size of a request body in bytes. Default 4 MiB. */
  readonly maxBodyBytes?: number;
  /** Maximum number of connections. Default 512. */
  readonly maxConnections?: number;
  /** Maximum size in bytes of the conversations that `/v1/responses` stores; 0: none. Default 64 MiB. */
  readonly maxStoredBytes?: number;
}

/** Rates of each API key, or of all requests together when there are no keys. */
export interface Rates {
  /** Maximum number of POST requests per minute; more get 429. Default: none. */
  readonly requestsPerMinute?: number;
  /** Maximum number of prompt, generated, embedded and reranked tokens per minute; then requests get 429. Default: none. */
  readonly tokensPerMinute?: number;
}

/** Models that the server loads when they are first asked for, and unloads when others need their memory. */
export interface OnDemandOptions {
  /** What can be loaded. Default: nothing. */
  readonly catalog?: ModelCatalog;
  /**
   * Maximum memory of these models together in bytes, by their memory plans. The least recently used one that has no
   * request makes room for the next. Default: the memory of the computer.
   */
  readonly memoryBytes?: number;
  /** Maximum number of these models in memory. Default: as many as fit. */
  readonly maxLoadedModels?: number;
  /** Idle time in milliseconds after which they are unloaded; 0: at once. Default: never. */
  readonly unloadAfterMs?: number;
  /** Called when one of them is loaded or unloaded, or could not be loaded. */
  readonly onModelEvent?: (event: ModelEvent) => void;
}

/** Where files and batches are. The server works on them, and the caller closes the store after it. */
export interface BatchOptions {
  /** Lines of batches until they are done. Workers in other processes and other servers may share it. */
  readonly jobs: JobStore;
  /** Files of requests and of results, for this server alone. It must list. */
  readonly blobs: BlobStore;
  /** Maximum size of an uploaded file in bytes. Default 200 MiB. */
  readonly maxFileBytes?: number;
  /**
   * Maximum number of lines at once; 0: workers in other processes answer them. Default: one less than the slots of the model with
   * the most, so that clients find one free.
   */
  readonly concurrency?: number;
  /**
   * Models whose lines this server answers, as `batchQueueOf` names them. Default: all lines, also those for models that it does not
   * have, which fail.
   */
  readonly queues?: readonly string[];
}

export interface ServerOptions extends ServerLimits, Rates, OnDemandOptions {
  /**
   * Models for chat and completions. Default: none; at least one model of any kind, or a catalog, is required, unless
   * `batches.concurrency` is 0.
   */
  readonly models?: readonly ServedModel[];
  /** Models for embeddings. Default: none. */
  readonly embeddingModels?: readonly ServedEmbeddingModel[];
  /** Models for reranking. Default: none. */
  readonly rerankers?: readonly ServedReranker[];
  /** API keys; requests must send one as `Authorization: Bearer` or `x-api-key`. Default: none required. */
  readonly apiKeys?: readonly string[];
  /**
   * Whether requests with different API keys share cached prefixes. Then `cached_tokens` and the time to the first token
   * reveal to each the prompts of the others. Default: false.
   */
  readonly sharePrefixes?: boolean;
  /** Allowed CORS origins; `*` for all. Default: none. */
  readonly corsOrigins?: readonly string[];
  /** Serves `/v1/files` and `/v1/batches`. Default: not served. */
  readonly batches?: BatchOptions;
  /** Folder of a page that browsers get at `/`, such as `pageUrl` of `@winnow/playground`. Default: none. */
  readonly page?: URL;
  /** Other origins that the page may contact, such as `https://example.com` of an MCP server. Default: none. */
  readonly pageOrigins?: readonly string[];
  /** Called after every request. */
  readonly onRequest?: (record: RequestRecord) => void;
  /** Called for internal errors, except for failed loads that `onModelEvent` is called for. */
  readonly onError?: (error: unknown) => void;
}

const limitNames: OptionNames<ServerLimits> = {
  maxQueued: true,
  queueTimeoutMs: true,
  compileTimeoutMs: true,
  requestTimeoutMs: true,
  stallTimeoutMs: true,
  keepAliveMs: true,
  maxBodyBytes: true,
  maxConnections: true,
  maxStoredBytes: true,
};
const servedModelNames: OptionNames<ServedModel> = { id: true, model: true, maxSessions: true };
const servedEmbeddingModelNames: OptionNames<ServedEmbeddingModel> = { id: true, model: true };
const servedRerankerNames: OptionNames<ServedReranker> = { id: true, model: true };

const batchOptionNames: OptionNames<BatchOptions> = {
  jobs: true,
  blobs: true,
  maxFileBytes: true,
  concurrency: true,
  queues: true,
};

export const serverOptionNames: OptionNames<ServerOptions> = {
  ...limitNames,
  requestsPerMinute: true,
  tokensPerMinute: true,
  models: servedModelNames,
  embeddingModels: servedEmbeddingModelNames,
  rerankers: servedRerankerNames,
  apiKeys: true,
  sharePrefixes: true,
  corsOrigins: true,
  batches: batchOptionNames,
  page: true,
  pageOrigins: true,
  onRequest: true,
  onError: true,
  catalog: true,
  memoryBytes: true,
  maxLoadedModels: true,
  unloadAfterMs: true,
  onModelEvent: true,
};

export const defaultLimits: Required<ServerLimits> = {
  maxQueued: 64,
  queueTimeoutMs: 60_000,
  compileTimeoutMs: 10_000,
  requestTimeoutMs: 600_000,
  stallTimeoutMs: 60_000,
  keepAliveMs: 10_000,
  maxBodyBytes: 4 * 2 ** 20,
  maxConnections: 512,
  maxStoredBytes: 64 * 2 ** 20,
};

export const defaultConcurrency = 4;
