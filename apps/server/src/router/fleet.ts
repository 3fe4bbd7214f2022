/** The servers behind a router: which one gets a request, and which earlier requests each of them got. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { chooseUpstream, type ChoiceReason } from './choose-upstream.js';
import type { RoutedCall } from './call.js';
import type { DeliveryHost } from './delivery.js';
import type { HealthChecks } from './health-checks.js';
import { Owners } from './owners.js';
import { PrefixTable } from './prefix-table.js';
import { readWhole } from './read-whole.js';
import type { RouterMetrics } from './router-metrics.js';
import type { Upstream } from './upstream.js';

const maxStoredIds = 65_536;
const maxProbeBytes = 2 ** 20;

export interface FleetOptions {
  readonly upstreams: readonly Upstream[];
  readonly metrics: RouterMetrics;
  readonly loadFactor: number;
  readonly sharePrefixes: boolean;
}

export class Fleet {
  readonly upstreams: readonly Upstream[];
  readonly #options: FleetOptions;
  readonly #prefixes = new PrefixTable();
  /** Which server stores a response. */
  readonly #stored = new Owners(maxStoredIds);
  #checks: HealthChecks | undefined;
  #turn = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.upstreams = options.upstreams;
  }

  /** Those that accept requests. */
  get available(): readonly Upstream[] {
    return this.upstreams.filter(({ state }) => state === 'up');
  }

  /** Reports failures of connections to the health checks. */
  watch(checks: HealthChecks): void {
    this.#checks = checks;
  }

  /** Its cached prefixes and stored responses are gone. */
  forget(upstream: Upstream): void {
    this.#prefixes.forget(upstream.id);
    this.#stored.forget(upstream.id);
  }

  /** @param only the one server that can answer, if there is one */
  hostOf(call: RoutedCall, only?: { readonly upstream: Upstream; readonly reason: string }): DeliveryHost {
    const { metrics } = this.#options;
    const key = PrefixTable.keyOf(this.#ownPrompt(call));
    return {
      choose: (tried) => {
        if (only !== undefined) {
          if (tried.has(only.upstream)) return undefined;
          metrics.choices.add(1, { reason: only.reason });
          return only.upstream;
        }
        const found = this.#choose(call, key, tried);
        if (found === undefined) return undefined;
        metrics.choices.add(1, { reason: found.reason });
        this.#prefixes.note(key, found.chosen.id);
        return found.chosen;
      },
      onFailure: async (upstream) => {
        metrics.failures.add(1, { upstream: upstream.id });
        await this.#checks?.suspect(upstream);
      },
      onAnswer: (upstream, response) => this.#noteStored(call, upstream, response),
      onBroken: (upstream) => metrics.broken.add(1, { upstream: upstream.id }),
    };
  }

  /**
   * The server that stores a response: a remembered one, or, for example after a restart of the router, one that
   * answers to have it. Undefined: no server that can be reached.
   */
  async ownerOf(id: string, { headers }: RoutedCall, signal: AbortSignal): Promise<Upstream | undefined> {
    const known = this.#stored.get(id);
    const remembered = this.available.find((upstream) => upstream.id === known);
    if (remembered !== undefined) return remembered;
    const path = `/v1/responses/${encodeURIComponent(id)}`;
    const { 'content-type': _type, 'content-length': _length, ...own } = headers;
    const asked = this.available;
    const has = await Promise.all(
      asked.map(async (upstream) => {
        const response = await upstream
          .send({ method: 'GET', path, headers: own, signal }, false)
          .catch(() => undefined);
        if (response === undefined) return false;
        const { hasMore } = await readWhole(response, maxProbeBytes).catch(() => ({ hasMore: true }));
        if (hasMore) response.destroy();
        return response.statusCode === 200;
      }),
    );
    signal.throwIfAborted();
    const owner = asked[has.indexOf(true)];
    if (owner !== undefined) this.#stored.set(id, owner.id);
    return owner;
  }

  #choose(
    { model }: RoutedCall,
    key: string,
    tried: ReadonlySet<Upstream>,
  ): { readonly chosen: Upstream; readonly reason: ChoiceReason } | undefined {
    const untried = this.available.filter((upstream) => !tried.has(upstream));
    const name = model?.replace(/:latest$/, '');
    const serving = untried.filter(
      ({ models }) => model === undefined || models === undefined || models.has(model) || models.has(name ?? ''),
    );
    const candidates = serving.length > 0 ? serving : untried;
    if (candidates.length === 0) return undefined;
    return chooseUpstream(candidates, this.#prefixes.placeOf(key), this.#options.loadFactor, this.#turn++);
  }

  /** Pages are not shared among API keys, unless the servers share them. */
  #ownPrompt({ prompt, headers }: RoutedCall): string {
    if (prompt === '' || this.#options.sharePrefixes) return prompt;
    const key = [headers['authorization'], headers['x-api-key']].join('\n');
    return key === '\n' ? prompt : `${createHash('sha256').update(key).digest('base64url')}\n${prompt}`;
  }

  /** The id of a response is that of its request, which the headers tell before the answer has arrived. */
  #noteStored({ path, method }: RoutedCall, upstream: Upstream, { headers, statusCode }: IncomingMessage): void {
    const { 'x-request-id': requestId } = headers;
    if (method !== 'POST' || !path.startsWith('/v1/responses') || statusCode !== 200) return;
    if (typeof requestId === 'string') this.#stored.set(`resp_${requestId}`, upstream.id);
  }
}
