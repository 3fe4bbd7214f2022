/** The server: routes over models, with limits, and an end in good order. */
import cors from '@fastify/cors';
import swagger from '@fastify/swagger';
import Fastify, {
  type ConnectionError,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { ArgumentError } from '@winnow/tensor';
import { isLoopback, requireApiKey, requireLoopbackName } from './access.js';
import { ApiError, ClientClosedError, internalError, shuttingDown } from './api-error.js';
import { trackConnections } from './connections.js';
import { engineApiError, frameworkApiError } from './error-mapping.js';
import { ModelRegistry } from './model-registry.js';
import { openApiInfo, sharedSchemas } from './openapi.js';
import { defaultLimits, type ServerLimits, type ServerOptions } from './options.js';
import { meaningfulBody } from './request-body.js';
import { registerEmbeddingRoute } from './routes/embeddings.js';
import { registerGenerationRoutes } from './routes/generation.js';
import { registerStatusRoutes } from './routes/status.js';
import type { ServerContext } from './server-context.js';
import { ServerMetrics } from './server-metrics.js';

export interface ListenOptions {
  /** 0: one that is free. Default 8080. */
  readonly port?: number;
  /** Default `127.0.0.1`: for this machine alone. */
  readonly host?: string;
}

export interface CloseOptions {
  /** How long running requests may take to end before they are broken off. Default 30 000. */
  readonly graceMs?: number;
}

export interface WinnowServer {
  /** Starts to take requests. Resolves to the URL, such as `http://127.0.0.1:8080`. */
  listen(options?: ListenOptions): Promise<string>;
  /**
   * Takes no more requests and waits for those that run; who waits for a slot is refused. The models stay loaded: they are
   * their owner's.
   */
  close(options?: CloseOptions): Promise<void>;
  /** The OpenAPI document. */
  openApi(): object;
  [Symbol.asyncDispose](): Promise<void>;
}

const defaultPort = 8080;
const defaultGraceMs = 30_000;
/** A body has to arrive within this time; clients that send a byte now and then occupy connections otherwise. */
const receiveTimeoutMs = 60_000;

/**
 * Nothing is listened to before `listen`.
 * @throws {ArgumentError} when no model is given, two have the same id, or an API key is empty
 */
export async function createServer(options: ServerOptions): Promise<WinnowServer> {
  const limits: Required<ServerLimits> = { ...defaultLimits };
  for (const name of Object.keys(defaultLimits) as (keyof ServerLimits)[]) limitFrom(options, limits, name);
  const registry = new ModelRegistry(options, limits);
  if (registry.entries().length === 0) {
    throw new ArgumentError({ argument: 'models', expected: 'at least one model', actual: 'none' });
  }
  const { apiKeys = [], corsOrigins = [], onError = (): void => {} } = options;
  if (apiKeys.includes('')) {
    throw new ArgumentError({ argument: 'apiKeys', expected: 'keys', actual: 'an empty text' });
  }
  const metrics = new ServerMetrics(registry);
  const shutdown = new AbortController();
  let isClosing = false;
  let boundHost: string | undefined;
  const context: ServerContext = {
    registry,
    metrics,
    limits,
    shutdown: shutdown.signal,
    isClosing: () => isClosing,
    reportError: onError,
  };

  const app = Fastify({
    bodyLimit: limits.maxBodyBytes,
    requestTimeout: receiveTimeoutMs,
    return503OnClosing: false, // ours has the form of all errors
    routerOptions: { maxParamLength: 500 }, // ids of models may be paths
    clientErrorHandler: refuseConnection,
    frameworkErrors: (error, _request, reply) => {
      const { status = 400, message } = frameworkApiError(error) ?? {};
      const body = new ApiError({ status, message: message ?? 'Bad request' });
      void (reply as FastifyReply).status(status).send(body.toJSON());
    },
    genReqId: () => randomUUID().replaceAll('-', ''),
    // bodies are refused rather than bent into shape
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, useDefaults: false, allowUnionTypes: true } },
  });
  app.server.maxConnections = limits.maxConnections;
  const connections = trackConnections(app.server);
  // schemas of answers are for the document; tests hold answers to them
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  // a page of another site can send text without asking first, but not JSON
  app.removeContentTypeParser('text/plain');

  await app.register(swagger, {
    openapi: openApiInfo,
    refResolver: { buildLocalReference: (json, _base, _fragment, index) => String(json['$id'] ?? `def-${index}`) },
  });
  for (const schema of sharedSchemas) app.addSchema(schema);
  if (corsOrigins.length > 0) {
    await app.register(cors, {
      origin: corsOrigins.includes('*') ? '*' : [...corsOrigins],
      allowedHeaders: ['Authorization', 'Content-Type'],
      exposedHeaders: ['Retry-After', 'X-Request-Id'],
      methods: ['GET', 'POST'],
      maxAge: 600,
    });
  }
  addHooks(app, context, options);
  if (apiKeys.length > 0) requireApiKey(app, apiKeys);
  else requireLoopbackName(app, () => boundHost !== undefined && isLoopback(boundHost));
  registerGenerationRoutes(app, context);
  registerEmbeddingRoute(app, context);
  registerStatusRoutes(app, context);
  await app.ready();

  let closing: Promise<void> | undefined;
  async function end(graceMs: number): Promise<void> {
    isClosing = true;
    registry.close();
    const timer = setTimeout(() => {
      shutdown.abort(shuttingDown(1));
      // what ends by itself has a moment to say so, what does not read is cut off
      setTimeout(connections.destroy, 1000).unref();
    }, graceMs);
    try {
      const closed = app.close();
      connections.drain();
      await closed;
    } finally {
      clearTimeout(timer);
    }
  }
  const close = ({ graceMs = defaultGraceMs }: CloseOptions = {}): Promise<void> => (closing ??= end(graceMs));

  return {
    async listen({ port = defaultPort, host = '127.0.0.1' }: ListenOptions = {}): Promise<string> {
      boundHost = host;
      return app.listen({ port, host });
    },
    close,
    openApi: () => app.swagger(),
    [Symbol.asyncDispose]: () => close(),
  };
}

/** What arrives is no HTTP, or too slow, or has too large headers. */
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
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}

function limitFrom(options: ServerLimits, limits: Record<keyof ServerLimits, number>, name: keyof ServerLimits): void {
  const value = options[name];
  if (value === undefined) return;
  const least = name === 'maxQueued' ? 0 : 1;
  if (!Number.isSafeInteger(value) || value < least) {
    throw new ArgumentError({ argument: name, expected: `an integer from ${least}`, actual: String(value) });
  }
  limits[name] = value;
}

function addHooks(app: FastifyInstance, context: ServerContext, { onRequest }: ServerOptions): void {
  const { metrics, isClosing, reportError } = context;

  app.addHook('onRequest', async (request, reply) => {
    const begin = performance.now(); // Fastify measures only for its own log
    void reply.header('x-request-id', request.id);
    reply.raw.once('close', () => record(request, reply, performance.now() - begin)); // also when the client has left
    if (!isClosing()) return;
    void reply.header('connection', 'close');
    if (request.routeOptions.url !== '/health') throw shuttingDown(1);
  });

  app.addHook('preValidation', async (request) => {
    request.body = meaningfulBody(request.body);
  });

  function record(
    { method, url, routeOptions, id }: FastifyRequest,
    { raw, statusCode }: FastifyReply,
    durationMs: number,
  ): void {
    const route = routeOptions.url ?? 'unknown'; // paths that nobody serves are not to become labels
    const status = raw.writableFinished ? statusCode : new ClientClosedError().status;
    metrics.requests.add(1, { route, status });
    metrics.durations.observe(durationMs / 1000, { route });
    const [path = url] = url.split('?', 1);
    onRequest?.({ requestId: id, method, path, status, durationMs });
  }

  app.setErrorHandler<FastifyError>((error, _request, reply) => {
    let known = engineApiError(error, 'prompt') ?? frameworkApiError(error);
    if (known === undefined) {
      reportError(error);
      known = internalError();
    }
    if (known.retryAfterSeconds !== undefined) void reply.header('retry-after', known.retryAfterSeconds);
    return reply.status(known.status).send(known.toJSON());
  });

  app.setNotFoundHandler((request) => {
    const message = `Unknown request URL: ${request.method} ${request.url.split('?', 1)[0]}`;
    throw new ApiError({ status: 404, message, code: 'unknown_url' });
  });
}
