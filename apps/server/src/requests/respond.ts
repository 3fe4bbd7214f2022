/** Responds to a generation at once or as a stream, in any protocol. */
import type { FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import type { PrepareOptions } from '@winnow/engine';
import { internalError } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import { openEventStream, streamHeaders, type StreamFormat } from '../http/event-stream.js';
import type { GenerationJob } from './generation-job.js';
import { openScope } from './request-scope.js';
import type { ServerContext } from './server-context.js';

/** The two kinds of responses to a request. */
export interface Answer<T> {
  readonly whole: () => Promise<T>;
  readonly parts: () => AsyncGenerator<string, void, void>;
}

export interface ResponseKind {
  readonly isStream: boolean;
  /** Name of the prompt parameter, for errors. */
  readonly promptParam: string;
  readonly format: StreamFormat;
}

/** @throws {ApiError} for errors of the engine, before a stream has begun */
export async function respond<T>(
  { limits, reportError }: ServerContext,
  job: GenerationJob,
  reply: FastifyReply,
  { isStream, promptParam, format }: ResponseKind,
  { whole, parts }: Answer<T>,
): Promise<T | Readable> {
  try {
    if (!isStream) {
      try {
        return await whole();
      } finally {
        job.end();
      }
    }
    const stream = await openEventStream(parts(), {
      ...limits,
      keepAlive: format.keepAlive,
      onBlocked: job.setBlocked,
      lastEvent: (error) => {
        const known = engineApiError(error, promptParam);
        if (known === undefined) reportError(error);
        return format.lastEvent(known ?? internalError(error));
      },
    });
    void reply.headers(streamHeaders(format));
    return stream;
  } catch (error) {
    throw engineApiError(error, promptParam) ?? error;
  }
}

/** What is done before the request waits for a slot, until its client disconnects. */
export async function beforeSlot<T>(
  { limits, shutdown }: ServerContext,
  reply: FastifyReply,
  prepare: (options: PrepareOptions & { readonly signal: AbortSignal }) => Promise<T>,
): Promise<T> {
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  try {
    return await prepare({ signal: scope.signal, compileTimeoutMs: limits.compileTimeoutMs });
  } finally {
    scope.end();
  }
}
