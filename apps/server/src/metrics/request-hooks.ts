/** What happens to every request: an id, a record of how it ended, and a refusal while the server closes. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ClientClosedError, shuttingDown } from '../http/api-error.js';
import type { RequestRecord } from '../options.js';
import type { Counter, Histogram } from './metrics-registry.js';

export interface RequestHooks {
  readonly requests: Counter;
  readonly durations: Histogram;
  readonly isClosing: () => boolean;
  readonly onRequest: ((record: RequestRecord) => void) | undefined;
  readonly onStart?: (request: FastifyRequest, reply: FastifyReply) => void;
}

export function addRequestHooks(
  app: FastifyInstance,
  { requests, durations, isClosing, onRequest, onStart }: RequestHooks,
): void {
  app.addHook('onRequest', async (request, reply) => {
    const begin = performance.now(); // Fastify measures only for its own log
    void reply.header('x-request-id', request.id);
    onStart?.(request, reply);
    reply.raw.once('close', () => record(request, reply, performance.now() - begin)); // also when the client has disconnected
    if (!isClosing()) return;
    void reply.header('connection', 'close');
    if (request.routeOptions.url !== '/health') throw shuttingDown(1);
  });

  function record(
    { method, url, routeOptions, id }: FastifyRequest,
    { raw, statusCode }: FastifyReply,
    durationMs: number,
  ): void {
    const route = routeOptions.url ?? 'unknown'; // unknown paths must not become labels
    const status = raw.writableFinished ? statusCode : new ClientClosedError().status;
    requests.add(1, { route, status });
    durations.observe(durationMs / 1000, { route });
    const [path = url] = url.split('?', 1);
    onRequest?.({ requestId: id, method, path, status, durationMs, endedAt: new Date().toISOString() });
  }
}
