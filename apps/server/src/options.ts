/** What a server serves and within which limits. */
import type { EmbeddingModel, Model } from '@winnow/engine';

/** What the server needs of a model that generates. */
export type GenerativeModel = Pick<
  Model,
  'name' | 'backend' | 'config' | 'contextSize' | 'tokenizer' | 'chatTemplate' | 'generate' | 'encodePrompt' | 'metrics'
>;

/** What the server needs of a model that embeds. */
export type VectorModel = Pick<EmbeddingModel, 'name' | 'backend' | 'contextSize' | 'dimensions' | 'embedTexts'> &
  Partial<Pick<EmbeddingModel, 'feedForwardMetrics'>>;

export interface ServedModel {
  /** What requests call it. */
  readonly id: string;
  readonly model: GenerativeModel;
  /** Generations at a time, at most the `maxSessions` it was loaded with. Default 4. */
  readonly maxConcurrent?: number;
}

export interface ServedEmbeddingModel {
  readonly id: string;
  readonly model: VectorModel;
}

/** One answered request, for a log. */
export interface RequestRecord {
  readonly requestId: string;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly status: number;
  readonly durationMs: number;
}

export interface ServerLimits {
  /** Requests per model that may wait for a free slot; more get 429. Default 64. */
  readonly maxQueued?: number;
  /** How long a request may wait for a slot before it gets 503. Default 60 000. */
  readonly queueTimeoutMs?: number;
  /** How long one request may take in all. Default 600 000. */
  readonly requestTimeoutMs?: number;
  /** How long a client may leave its stream unread before it is cut off. Default 60 000. */
  readonly stallTimeoutMs?: number;
  /** Quiet time after which a stream gets a comment, so that nobody takes it for dead. Default 10 000. */
  readonly keepAliveMs?: number;
  /** Most bytes of a request's body. Default 4 MiB. */
  readonly maxBodyBytes?: number;
  /** Connections at a time. Default 512. */
  readonly maxConnections?: number;
}

export interface ServerOptions extends ServerLimits {
  readonly models?: readonly ServedModel[];
  readonly embeddingModels?: readonly ServedEmbeddingModel[];
  /** Keys, one of which requests must bring as `Authorization: Bearer`. Default: none is asked for. */
  readonly apiKeys?: readonly string[];
  /** Origins whose pages may call the server; `*` for all. Default: none. */
  readonly corsOrigins?: readonly string[];
  /** Told of every answered request. */
  readonly onRequest?: (record: RequestRecord) => void;
  /** Told of failures that are no fault of a request. */
  readonly onError?: (error: unknown) => void;
}

export const defaultLimits: Required<ServerLimits> = {
  maxQueued: 64,
  queueTimeoutMs: 60_000,
  requestTimeoutMs: 600_000,
  stallTimeoutMs: 60_000,
  keepAliveMs: 10_000,
  maxBodyBytes: 4 * 2 ** 20,
  maxConnections: 512,
};

export const defaultConcurrency = 4;
