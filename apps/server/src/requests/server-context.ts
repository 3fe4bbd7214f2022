/** State shared by the routes of a server. */
import type { FastifyRequest } from 'fastify';
import type { ModelRegistry } from '../models/model-registry.js';
import type { ServerLimits } from '../options.js';
import type { ReadQueues } from '../metrics/queue-metrics.js';
import type { ServerMetrics } from '../metrics/server-metrics.js';

export interface ServerContext {
  readonly registry: ModelRegistry;
  readonly metrics: ServerMetrics;
  readonly limits: Required<ServerLimits>;
  /** Aborted when running requests must end. */
  readonly shutdown: AbortSignal;
  /** Requests with different salts do not share cached prefixes. */
  readonly cacheSaltOf: (request: FastifyRequest) => string | undefined;
  /** The owner of what a request stores: a hash of its API key, if there are keys. */
  readonly ownerOf: (request: FastifyRequest) => string | undefined;
  /** Whether the server makes the request itself: requests of clients go first. */
  readonly isInternal: (request: FastifyRequest) => boolean;
  /** The listener to call when the prompt of a request has been computed. */
  readonly promptListenerOf: (request: FastifyRequest) => (() => void) | undefined;
  /** Counts the tokens of a request for the rates of its API key. */
  readonly chargeTokens: (request: FastifyRequest, numTokens: number) => void;
  /** The queues of the store of batches. Undefined on a server without one. */
  readonly readQueues: () => Promise<{ readonly read: ReadQueues } | undefined>;
  /** Whether new requests are rejected. */
  readonly isClosing: () => boolean;
  readonly reportError: (error: unknown) => void;
}
