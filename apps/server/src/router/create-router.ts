/** The router: one address for several servers. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ArgumentError, checkOptions } from '@winnow/tensor';
import { isLoopback, requireApiKey, requireLoopbackName } from '../http/access.js';
import { shuttingDown } from '../http/api-error.js';
import { Connections } from '../http/connections.js';
import { createApp, type App } from '../http/create-app.js';
import { openAiProtocol, setErrorBody } from '../http/protocol.js';
import { anthropicProtocol } from '../protocols/anthropic/errors.js';
import { ollamaProtocol } from '../protocols/ollama/errors.js';
import { refuseUnknownUrls } from '../protocols/protocol-of.js';
import { addRequestHooks } from '../metrics/request-hooks.js';
import { openScope } from '../requests/request-scope.js';
import { callOf } from './call.js';
import { noBatches } from './errors.js';
import { Fleet } from './fleet.js';
import { HealthChecks } from './health-checks.js';
import { mergedList } from './model-lists.js';
import { limitsOf, routerOptionNames, upstreamUrl, type RouterLimits, type RouterOptions } from './options.js';
import { relay } from './relay.js';
import { RouterMetrics } from './router-metrics.js';
import { routeEntries, type RouteEntry } from './routes.js';
import { Upstream } from './upstream.js';

export interface WinnowRouter {
  /** Starts to accept requests, on port 8080 of `127.0.0.1` by default. Resolves to the URL. */
  listen(options?: { readonly port?: number; readonly host?: string }): Promise<string>;
  /** Stops accepting requests, and waits for running ones as long as the grace period, 30 000 ms by default. */
  close(options?: { readonly graceMs?: number }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Checks all servers once. The router does not listen before `listen` is called.
 * @throws {UnknownOptionError} for an option that does not exist
 * @throws {ArgumentError} for an address that is not the URL of a server or appears twice, for no address, for an empty
 *   API key, and for an invalid limit
 */
export async function createRouter(options: RouterOptions): Promise<WinnowRouter> {
  checkOptions(options, routerOptionNames);
  const limits = limitsOf(options);
  const { loadFactor = 1.25, apiKeys = [] } = options;
  if (!(loadFactor >= 1)) {
    throw new ArgumentError({ argument: 'loadFactor', expected: 'a number from 1', actual: String(loadFactor) });
  }
  if (apiKeys.includes('')) {
    throw new ArgumentError({ argument: 'apiKeys', expected: 'keys', actual: 'an empty string' });
  }
  const upstreams = options.upstreams.map((text) => new Upstream(upstreamUrl('upstreams', text)));
  const ids = new Set(upstreams.map(({ id }) => id));
  if (upstreams.length === 0 || ids.size < upstreams.length) {
    const actual = upstreams.length === 0 ? 'none' : 'one of them twice';
    throw new ArgumentError({ argument: 'upstreams', expected: 'at least one server, each once', actual });
  }
  const router = new HttpRouter(options, limits, upstreams, loadFactor);
  await router.prepare();
  return router;
}

class HttpRouter implements WinnowRouter {
  readonly #options: RouterOptions;
  readonly #limits: RouterLimits;
  readonly #app: App;
  readonly #connections: Connections;
  readonly #metrics: RouterMetrics;
  readonly #fleet: Fleet;
  readonly #checks: HealthChecks;
  readonly #batchUpstream: Upstream | undefined;
  readonly #shutdown = new AbortController();
  #boundHost: string | undefined;
  #isClosing = false;
  #closing: Promise<void> | undefined;

  constructor(options: RouterOptions, limits: RouterLimits, upstreams: readonly Upstream[], loadFactor: number) {
    const { batchUpstream, upstreamApiKey: apiKey, sharePrefixes = false, onUpstream } = options;
    this.#options = options;
    this.#limits = limits;
    this.#app = createApp(limits);
    this.#connections = new Connections(this.#app.server, limits.maxConnections);
    this.#metrics = new RouterMetrics(upstreams);
    this.#fleet = new Fleet({ upstreams, metrics: this.#metrics, loadFactor, sharePrefixes });
    const onLost = (upstream: Upstream): void => this.#fleet.forget(upstream);
    this.#checks = new HealthChecks({ upstreams, intervalMs: limits.checkIntervalMs, apiKey, onUpstream, onLost });
    this.#fleet.watch(this.#checks);
    if (batchUpstream !== undefined) this.#batchUpstream = new Upstream(upstreamUrl('batchUpstream', batchUpstream));
  }

  async prepare(): Promise<void> {
    const app = this.#app;
    const { apiKeys = [], onRequest, onError: reportError = () => {} } = this.#options;
    const { requests, durations } = this.#metrics;
    addRequestHooks(app, { requests, durations, isClosing: () => this.#isClosing, onRequest });
    setErrorBody(app, openAiProtocol.errorBody, reportError);
    refuseUnknownUrls(app);
    if (apiKeys.length > 0) requireApiKey(app, apiKeys, () => false);
    else requireLoopbackName(app, () => isLoopback(this.#boundHost));
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
    this.#registerStatus();
    const errorBodies = {
      ollama: ollamaProtocol,
      anthropic: anthropicProtocol,
      openai: openAiProtocol,
      responses: openAiProtocol,
    };
    for (const [api, { errorBody }] of Object.entries(errorBodies)) {
      void app.register(async (scope) => {
        setErrorBody(scope, errorBody, reportError);
        for (const entry of routeEntries) if (entry.api === api) this.#register(scope as unknown as App, entry);
      });
    }
    await app.ready();
    await this.#checks.start();
  }

  async listen({
    port = 8080,
    host = '127.0.0.1',
  }: { readonly port?: number; readonly host?: string } = {}): Promise<string> {
    this.#boundHost = host;
    return this.#app.listen({ port, host });
  }

  async close({ graceMs = 30_000 }: { readonly graceMs?: number } = {}): Promise<void> {
    await (this.#closing ??= this.#end(graceMs));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #registerStatus(): void {
    this.#app.get('/health', { config: { isPublic: true } }, (_request, reply) => {
      const numUp = this.#fleet.available.length;
      const status = this.#isClosing ? 'closing' : numUp === 0 ? 'no server is up' : 'ok';
      return reply
        .status(status === 'ok' ? 200 : 503)
        .send({ status, upstreams: this.#fleet.upstreams.length, up: numUp });
    });
    this.#app.get('/metrics', (_request, reply) =>
      reply.type('text/plain; version=0.0.4; charset=utf-8').send(this.#metrics.exposition()),
    );
  }

  #register(scope: App, entry: RouteEntry): void {
    const { method, url } = entry;
    const options = { method, url, exposeHeadRoute: false };
    const handler = (request: FastifyRequest, reply: FastifyReply): Promise<unknown> =>
      this.#answer(entry, request, reply);
    if (url !== '/v1/files' || method !== 'POST') {
      scope.route({ ...options, handler });
      return;
    }
    // uploads are passed on as they arrive
    void scope.register(async (uploads) => {
      uploads.removeAllContentTypeParsers();
      uploads.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
      uploads.route({ ...options, handler });
    });
  }

  async #answer(entry: RouteEntry, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    const scope = openScope(reply, this.#limits.requestTimeoutMs, this.#shutdown.signal);
    reply.raw.once('close', () => scope.end());
    const { signal } = scope;
    const call = callOf(request, entry);
    if (entry.kind === 'list') return mergedList(call, this.#fleet.available, reply, signal);
    const host = this.#fleet.hostOf(call, await this.#onlyServer(entry, request, call, signal));
    const reportError = this.#options.onError ?? ((): void => {});
    const context = { limits: this.#limits, metrics: this.#metrics, reportError };
    return relay(context, call, host, entry.api, reply, signal);
  }

  /** The one server that can answer, if there is one. */
  async #onlyServer(
    { kind }: RouteEntry,
    { params }: FastifyRequest,
    call: ReturnType<typeof callOf>,
    signal: AbortSignal,
  ): Promise<{ readonly upstream: Upstream; readonly reason: string } | undefined> {
    if (kind === 'batches') {
      if (this.#batchUpstream === undefined) throw noBatches();
      return { upstream: this.#batchUpstream, reason: 'batches' };
    }
    const id = kind === 'stored' ? (params as { readonly id: string }).id : call.previousResponseId;
    const upstream = id === undefined ? undefined : await this.#fleet.ownerOf(id, call, signal);
    return upstream && { upstream, reason: 'stored' };
  }

  async #end(graceMs: number): Promise<void> {
    this.#isClosing = true;
    const timer = setTimeout(() => {
      this.#shutdown.abort(shuttingDown(1));
      // aborted requests get a moment to send their error
      setTimeout(() => this.#connections.destroy(), 1000).unref();
    }, graceMs);
    try {
      const closed = this.#app.close();
      this.#connections.drain();
      await closed;
    } finally {
      clearTimeout(timer);
      this.#checks.stop();
      for (const upstream of this.#fleet.upstreams) upstream.close();
      this.#batchUpstream?.close();
    }
  }
}
