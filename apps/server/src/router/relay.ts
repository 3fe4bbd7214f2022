/** Passes the answer of a server on: streams event by event, other answers as they arrive. */
import type { FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import { ApiError, internalError } from '../http/api-error.js';
import { openEventStream, streamHeaders } from '../http/event-stream.js';
import { forwardedHeaders, type RoutedCall } from './call.js';
import { Delivery, type Answer, type DeliveryHost } from './delivery.js';
import type { RouterLimits } from './options.js';
import type { RouterMetrics } from './router-metrics.js';
import { streamEndOf, type ApiName } from './stream-formats.js';

export interface RelayContext {
  readonly limits: RouterLimits;
  readonly metrics: RouterMetrics;
  readonly reportError: (error: unknown) => void;
}

/** @throws {ApiError} 502 or 503 when no server answers, before anything was sent */
export async function relay(
  context: RelayContext,
  call: RoutedCall,
  host: DeliveryHost,
  api: ApiName,
  reply: FastifyReply,
  signal: AbortSignal,
): Promise<unknown> {
  const begin = performance.now();
  const delivery = new Delivery(call, host, signal);
  const answer = await delivery.open();
  if (answer.syntax === undefined) return wholeBody(answer, withHead(reply, answer));
  const end = streamEndOf(api);
  const { keepAlive, lastEvent } = end.format;
  const { limits, metrics, reportError } = context;
  const stream = await openEventStream(delivery.events(answer, end), {
    ...limits,
    keepAlive,
    onBlocked: () => {},
    lastEvent: (error) => {
      if (!(error instanceof ApiError)) reportError(error);
      return lastEvent(error instanceof ApiError ? error : internalError(error));
    },
  });
  metrics.firstEvents.observe((performance.now() - begin) / 1000, { api });
  const { 'cache-control': caching, 'x-accel-buffering': buffering } = streamHeaders(end.format);
  if (signal.aborted) stream.destroy();
  signal.throwIfAborted();
  return withHead(reply, answer).headers({ 'cache-control': caching, 'x-accel-buffering': buffering }).send(stream);
}

/** Only when there is something to send: errors have a head of their own. */
function withHead(reply: FastifyReply, { response }: Answer): FastifyReply {
  return reply.status(response.statusCode ?? 502).headers(forwardedHeaders(response.headers));
}

/** When the server is lost, the connection of the client ends before the announced length. */
function wholeBody({ response, bytes, hasMore }: Answer, reply: FastifyReply): Buffer | Readable {
  if (!hasMore) return Buffer.concat(bytes);
  const { 'content-length': length } = response.headers;
  if (length !== undefined) void reply.header('content-length', length);
  for (const chunk of bytes.toReversed()) response.unshift(chunk);
  return response;
}
