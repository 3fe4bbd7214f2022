/** The framework with our limits, timeouts and errors. */
import Fastify, { type ConnectionError, type FastifyReply } from 'fastify';
import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from './api-error.js';
import { frameworkApiError } from './error-mapping.js';
import { schemaController } from './validators.js';

/** Timeout for receiving a request; otherwise slow clients would occupy connections. */
const receiveTimeoutMs = 60_000;
/** Its headers must arrive within this time. */
const headersTimeoutMs = 10_000;
/** Interval at which Node checks for late requests. */
const lateCheckMs = 5_000;

export type App = ReturnType<typeof createApp>;

export function createApp(limits: { readonly maxBodyBytes: number }) {
  const app = Fastify({
    bodyLimit: limits.maxBodyBytes,
    requestTimeout: receiveTimeoutMs,
    http: { headersTimeout: headersTimeoutMs, connectionsCheckingInterval: lateCheckMs },
    return503OnClosing: false, // our own error has the standard format
    routerOptions: { maxParamLength: 500 }, // model ids may contain slashes
    clientErrorHandler: refuseConnection,
    frameworkErrors: (error, _request, reply) => {
      const { status = 400, message } = frameworkApiError(error) ?? {};
      const body = new ApiError({ status, message: message ?? 'Bad request' });
      void (reply as FastifyReply).status(status).send(body.toJSON());
    },
    genReqId: () => randomUUID().replaceAll('-', ''),
    schemaController,
  });
  // Response schemas are only for the OpenAPI document; tests check responses against them.
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  return app;
}

/** Handles invalid HTTP, slow headers and headers that are too large. */
function refuseConnection(error: ConnectionError, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed) return;
  const statuses: Readonly<Record<string, number>> = { ERR_HTTP_REQUEST_TIMEOUT: 408, HPE_HEADER_OVERFLOW: 431 };
  const status = statuses[error.code] ?? 400;
  const message = status === 400 ? 'The request is not valid HTTP' : (STATUS_CODES[status] ?? '');
  const body = JSON.stringify(new ApiError({ status, message, code: 'invalid_request' }));
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ];
  // the client may never close its side, so the socket is not left half open
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroySoon());
}
