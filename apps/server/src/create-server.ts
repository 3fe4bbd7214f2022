/** The server: routes over models, limits, and graceful shutdown. */
import swagger from '@fastify/swagger';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { isLoopback, keyHash, requireApiKey, requireLoopbackName } from './http/access.js';
import { shuttingDown } from './http/api-error.js';
import { Connections } from './http/connections.js';
import { registerCors } from './http/cors.js';
import { createApp, type App } from './http/create-app.js';
import { checkCount, ModelRegistry } from './models/model-registry.js';
import { loadApiError } from './models/pool/load-errors.js';
import { openApiInfo, sharedSchemas } from './openapi.js';
import type { ModelEvent } from './catalog.js';
import {
  defaultConcurrency,
  defaultLimits,
  serverOptionNames,
  type ServerLimits,
  type ServerOptions,
} from './options.js';
import { openAiProtocol, registerProtocol, setErrorBody } from './http/protocol.js';
import { InternalCalls, type InternalRequest, type InternalResponse } from './http/internal-calls.js';
import { RateLimiter } from './http/rate-limits.js';
import { addJsonParser } from './http/request-body.js';
import { refuseUnknownUrls } from './protocols/protocol-of.js';
import { anthropicProtocol } from './protocols/anthropic/errors.js';
import { registerAnthropicRoutes } from './protocols/anthropic/routes.js';
import { ollamaProtocol } from './protocols/ollama/errors.js';
import { registerOllamaRoutes } from './protocols/ollama/routes.js';
import { registerResponseRoutes, responsesProtocol } from './protocols/responses/routes.js';
import { BatchService } from './batches/batch-service.js';
import { registerBatchRoutes } from './routes/batches.js';
import { registerFileRoutes } from './routes/files.js';
import { registerEmbeddingRoute } from './routes/embeddings.js';
import { registerRerankRoutes } from './routes/rerank.js';
import { registerGenerationRoutes } from './routes/generation.js';
import { registerOperatorPage } from './routes/operator/routes.js';
import { readPage, registerPageRoutes } from './routes/page.js';
import { registerStatusRoutes } from './routes/status.js';
import { registerTokenRoutes } from './routes/tokens.js';
import type { ServerContext } from './requests/server-context.js';
import { addRequestHooks } from './metrics/request-hooks.js';
import { ServerMetrics } from './metrics/server-metrics.js';
import { recordLoadSpan, startRequestSpan } from './metrics/spans.js';

export interface ListenOptions {
  /** 0 selects a free port. Default 8080. */
  readonly port?: number;
  /** Default `127.0.0.1`: only this machine. */
  readonly host?: string;
}

export interface CloseOptions {
  /** Grace period in milliseconds after which running requests are aborted. Default 30 000. */
  readonly graceMs?: number;
}

export interface WinnowServer {
  /** Starts to accept requests. Resolves to the URL, such as `http://127.0.0.1:8080`. */
  listen(options?: ListenOptions): Promise<string>;
  /**
   * Stops accepting requests and waits for running ones; requests waiting for a slot or a model are rejected. Models of
   * the catalog are unloaded, others stay loaded: the caller owns them.
   */
  close(options?: CloseOptions): Promise<void>;
  /**
   * Answers a POST request without a connection, also before `listen`. It needs no API key, counts for no rate, and waits for
   * a slot until no request of a client does.
   * @throws the reason of its signal
   */
  call(request: InternalRequest): Promise<InternalResponse>;
  /** The OpenAPI document. */
  openApi(): object;
  [Symbol.asyncDispose](): Promise<void>;
}

const listenOptionNames: OptionNames<ListenOptions> = { port: true, host: true };
const closeOptionNames: OptionNames<CloseOptions> = { graceMs: true };

const defaultPort = 8080;
const defaultGraceMs = 30_000;
/** OpenAI's limit of files for batches. */
const defaultFileBytes = 200 * 2 ** 20;
/**
 * The server does not listen before `listen` is called.
 * @throws {UnknownOptionError} for an option that does not exist
 * @throws {ArgumentError} when neither a model nor a catalog is given and `batches.concurrency` is not 0, two models
 *   have the same id, an API key is empty, a limit is not valid, `page` has no page, or one of `pageOrigins` is not an
 *   origin
 */
export async function createServer(options: ServerOptions): Promise<WinnowServer> {
  checkOptions(options, serverOptionNames);
  const limits: Required<ServerLimits> = { ...defaultLimits };
  for (const name of Object.keys(defaultLimits) as (keyof ServerLimits)[]) limitFrom(options, limits, name);
  for (const name of ['requestsPerMinute', 'tokensPerMinute'] as const) checkRate(name, options[name]);
  for (const name of ['memoryBytes', 'maxLoadedModels', 'unloadAfterMs'] as const) {
    const value = options[name];
    if (value !== undefined && value !== Infinity) checkCount(name, value, name === 'maxLoadedModels' ? 1 : 0);
  }
  const listener = new ModelListener(options);
  const registry = new ModelRegistry(options, limits, listener);
  const answersNothing = options.batches?.concurrency === 0;
  if (registry.given().length === 0 && registry.pool === undefined && !answersNothing) {
    throw new ArgumentError({ argument: 'models', expected: 'at least one model', actual: 'none' });
  }
  if (options.apiKeys?.includes('') === true) {
    throw new ArgumentError({ argument: 'apiKeys', expected: 'keys', actual: 'an empty string' });
  }
  const server = new HttpServer(registry, limits, options, listener);
  await server.prepare(options);
  return server;
}

/** Whether the failure is the server's fault rather than the request's. */
function isInternal({ model, kind, error }: Extract<ModelEvent, { readonly event: 'failed' }>): boolean {
  return loadApiError(model, kind, error).code === 'model_load_failed';
}

/** Passes what happens to models on to the caller and to the metrics. */
class ModelListener {
  metrics: ServerMetrics | undefined;
  readonly reportError: (error: unknown) => void;
  readonly #options: ServerOptions;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.reportError = options.onError ?? (() => {});
  }

  readonly onEvent = (event: ModelEvent): void => {
    this.metrics?.recordModel(event);
    recordLoadSpan(event);
    const { onModelEvent } = this.#options;
    if (onModelEvent !== undefined) onModelEvent(event);
    else if (event.event === 'failed' && isInternal(event)) this.reportError(event.error); // no other code reports it
  };
}

class HttpServer implements WinnowServer {
  readonly #app: App;
  readonly #context: ServerContext;
  readonly #limiter: RateLimiter;
  readonly #connections: Connections;
  readonly #calls = new InternalCalls();
  #batches: BatchService | undefined;
  readonly #shutdown = new AbortController();
  #boundHost: string | undefined;
  #isClosing = false;
  #closing: Promise<void> | undefined;

  constructor(
    registry: ModelRegistry,
    limits: Required<ServerLimits>,
    options: ServerOptions,
    listener: ModelListener,
  ) {
    const { apiKeys = [], sharePrefixes = false } = options;
    const metrics = new ServerMetrics(registry);
    listener.metrics = metrics;
    const calls = this.#calls;
    const keyOf = (request: FastifyRequest): string | undefined => {
      const caller = calls.callerOf(request);
      if (caller !== undefined) return caller.owner;
      return apiKeys.length === 0 ? undefined : keyHash(request);
    };
    this.#limiter = new RateLimiter(options, () => performance.now());
    this.#context = {
      registry,
      metrics,
      limits,
      shutdown: this.#shutdown.signal,
      cacheSaltOf: sharePrefixes ? () => undefined : keyOf,
      ownerOf: keyOf,
      isInternal: (request) => calls.callerOf(request) !== undefined,
      promptListenerOf: (request) => calls.callerOf(request)?.onPrompt,
      chargeTokens: (request, numTokens) => {
        if (calls.callerOf(request) === undefined) this.#limiter.charge(keyOf(request) ?? '', numTokens);
      },
      readQueues: async () => (this.#batches === undefined ? undefined : { read: await this.#batches.queues() }),
      isClosing: () => this.#isClosing,
      reportError: listener.reportError,
    };
    this.#app = createApp(limits);
    // A page of another site can send text without a preflight, but not JSON.
    this.#app.removeContentTypeParser('text/plain');
    addJsonParser(this.#app);
    this.#connections = new Connections(this.#app.server, limits.maxConnections);
  }

  /** Registers plugins, hooks and routes. */
  async prepare(options: ServerOptions): Promise<void> {
    const app = this.#app;
    const context = this.#context;
    const { apiKeys = [], corsOrigins = [] } = options;
    await registerDocument(app);
    if (corsOrigins.length > 0) await registerCors(app, corsOrigins);
    this.#calls.register(app);
    addHooks(app, context, options);
    if (apiKeys.length > 0) requireApiKey(app, apiKeys, context.isInternal);
    else requireLoopbackName(app, (request) => !context.isInternal(request) && isLoopback(this.#boundHost));
    // after the key was checked, so that no rates are kept for wrong keys
    app.addHook('onRequest', async (request, reply) => {
      if (request.method !== 'POST' || context.isInternal(request)) return;
      void reply.headers(this.#limiter.admit(context.ownerOf(request) ?? ''));
    });
    registerRoutes(app, context);
    this.#batches = this.#registerBatches(options);
    if (options.page !== undefined) registerPageRoutes(app, await readPage(options.page), options.pageOrigins);
    await app.ready();
    await this.#batches?.start();
  }

  async listen(options: ListenOptions = {}): Promise<string> {
    checkOptions(options, listenOptionNames);
    const { port = defaultPort, host = '127.0.0.1' } = options;
    this.#boundHost = host;
    return this.#app.listen({ port, host });
  }

  async close(options: CloseOptions = {}): Promise<void> {
    checkOptions(options, closeOptionNames);
    const { graceMs = defaultGraceMs } = options;
    await (this.#closing ??= this.#end(graceMs));
  }

  call(request: InternalRequest): Promise<InternalResponse> {
    return this.#calls.call(this.#app, request);
  }

  openApi(): object {
    return this.#app.swagger();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #registerBatches({ batches, models = [], corsOrigins = [], page }: ServerOptions): BatchService | undefined {
    if (batches === undefined) return undefined;
    const { jobs, blobs, maxFileBytes = defaultFileBytes } = batches;
    checkCount('batches.maxFileBytes', maxFileBytes);
    const numSlots = Math.max(2, ...models.map(({ maxSessions = defaultConcurrency }) => maxSessions));
    const { concurrency = numSlots - 1, queues } = batches;
    checkCount('batches.concurrency', concurrency, 0);
    const { ownerOf, reportError } = this.#context;
    const call = (request: InternalRequest): Promise<InternalResponse> => this.call(request);
    const service = new BatchService({ jobs, blobs, concurrency, queues, call, reportError });
    registerProtocol(this.#app, openAiProtocol, reportError, (scope) => {
      registerFileRoutes(scope, { files: service.files, ownerOf, maxFileBytes, corsOrigins });
      registerBatchRoutes(scope, service, ownerOf);
      if (page !== undefined) registerOperatorPage(scope);
    });
    return service;
  }

  async #end(graceMs: number): Promise<void> {
    this.#isClosing = true;
    this.#context.registry.close();
    const timer = setTimeout(() => {
      this.#batches?.abort();
      this.#shutdown.abort(shuttingDown(1));
      // Aborted requests get a moment to send their error; clients that do not read are disconnected.
      setTimeout(() => this.#connections.destroy(), 1000).unref();
    }, graceMs);
    try {
      await this.#batches?.close(); // its lines are requests of the server
      const closed = this.#app.close();
      this.#connections.drain();
      await closed;
      await this.#context.registry.dispose();
    } finally {
      clearTimeout(timer);
    }
  }
}

async function registerDocument(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: openApiInfo,
    refResolver: { buildLocalReference: (json, _base, _fragment, index) => String(json['$id'] ?? `def-${index}`) },
  });
  for (const schema of sharedSchemas) app.addSchema(schema);
}

function limitFrom(options: ServerLimits, limits: Record<keyof ServerLimits, number>, name: keyof ServerLimits): void {
  const value = options[name];
  if (value === undefined) return;
  const least = name === 'maxQueued' || name === 'maxStoredBytes' ? 0 : 1;
  if (!Number.isSafeInteger(value) || value < least) {
    throw new ArgumentError({ argument: name, expected: `an integer from ${least}`, actual: String(value) });
  }
  limits[name] = value;
}

function checkRate(argument: string, rate: number | undefined): void {
  if (rate === undefined || (Number.isSafeInteger(rate) && rate >= 1)) return;
  throw new ArgumentError({ argument, expected: 'an integer from 1', actual: String(rate) });
}

function addHooks(
  app: FastifyInstance,
  { metrics, isClosing, reportError }: ServerContext,
  { onRequest }: ServerOptions,
): void {
  const { requests, durations } = metrics;
  addRequestHooks(app, { requests, durations, isClosing, onRequest, onStart: startRequestSpan });
  setErrorBody(app, openAiProtocol.errorBody, reportError);
  refuseUnknownUrls(app);
}

function registerRoutes(app: FastifyInstance, context: ServerContext): void {
  const { reportError } = context;
  registerProtocol(app, openAiProtocol, reportError, (scope) => {
    registerGenerationRoutes(scope, context);
    registerEmbeddingRoute(scope, context);
    registerRerankRoutes(scope, context);
    registerStatusRoutes(scope, context);
    registerTokenRoutes(scope, context);
  });
  registerProtocol(app, responsesProtocol, reportError, (scope) => registerResponseRoutes(scope, context));
  registerProtocol(app, anthropicProtocol, reportError, (scope) => registerAnthropicRoutes(scope, context));
  registerProtocol(app, ollamaProtocol, reportError, (scope) => registerOllamaRoutes(scope, context));
}
