/** Asks each server at an interval whether it accepts requests, how many it has, and which models. */
import { isRecord } from '@winnow/tensor';
import type { RouterOptions, UpstreamState } from './options.js';
import { readWhole } from './read-whole.js';
import type { Report, RequestHeaders, Upstream } from './upstream.js';

/** A busy server may answer late; one that is gone never does. */
const answerTimeoutMs = 5000;
/** Checks in a row that time out until a server is down; a refused connection is enough. */
const maxTimeouts = 3;
const maxReportBytes = 4 * 2 ** 20;

export interface HealthCheckOptions {
  readonly upstreams: readonly Upstream[];
  readonly intervalMs: number;
  readonly apiKey: string | undefined;
  readonly onUpstream: RouterOptions['onUpstream'];
  /** Its pages are gone, or may be. */
  readonly onLost: (upstream: Upstream) => void;
}

export class HealthChecks {
  readonly #options: HealthCheckOptions;
  readonly #headers: RequestHeaders;
  readonly #numTimeouts = new Map<Upstream, number>();
  readonly #running = new Map<Upstream, Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  constructor(options: HealthCheckOptions) {
    this.#options = options;
    this.#headers = options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` };
  }

  /** Resolves after the first check of all. */
  async start(): Promise<void> {
    await this.#checkAll();
    const { intervalMs } = this.#options;
    this.#timer = setInterval(() => void this.#checkAll(), intervalMs);
  }

  /** Checks that still run report nothing. */
  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#timer);
  }

  /** A connection failed: the server is down if a check fails, too. */
  async suspect(upstream: Upstream): Promise<void> {
    await this.#check(upstream);
  }

  async #checkAll(): Promise<void> {
    await Promise.all(this.#options.upstreams.map((upstream) => this.#check(upstream)));
  }

  /** One check of a server at a time. */
  #check(upstream: Upstream): Promise<void> {
    const running = this.#running.get(upstream);
    if (running !== undefined) return running;
    const check = this.#run(upstream).finally(() => this.#running.delete(upstream));
    this.#running.set(upstream, check);
    return check;
  }

  async #run(upstream: Upstream): Promise<void> {
    const signal = AbortSignal.timeout(answerTimeoutMs);
    try {
      const { status } = await this.#get(upstream, '/health', signal);
      this.#numTimeouts.delete(upstream);
      if (status !== 200) {
        this.#enter(upstream, status === 503 ? 'draining' : 'down', `/health answered ${status}`);
        return;
      }
      await this.#report(upstream, signal);
      this.#enter(upstream, 'up');
    } catch (error) {
      const numTimeouts = signal.aborted ? (this.#numTimeouts.get(upstream) ?? 0) + 1 : maxTimeouts;
      this.#numTimeouts.set(upstream, numTimeouts);
      if (numTimeouts < maxTimeouts && upstream.state !== 'down') return;
      this.#enter(upstream, 'down', error instanceof Error ? error.message : String(error));
    }
  }

  /** Load and models, of a server that lets us read them. */
  async #report(upstream: Upstream, signal: AbortSignal): Promise<void> {
    const numInFlight = upstream.numInFlight;
    const metrics = await this.#get(upstream, '/metrics', signal);
    const report = metrics.status === 200 ? reportOf(metrics.text) : undefined;
    if (report !== undefined) upstream.note(report, numInFlight);
    const models = await this.#get(upstream, '/v1/models', signal);
    upstream.models = models.status === 200 ? modelNamesOf(models.text) : undefined;
  }

  async #get(upstream: Upstream, path: string, signal: AbortSignal) {
    const response = await upstream.send({ method: 'GET', path, headers: this.#headers, signal }, false);
    const { bytes } = await readWhole(response, maxReportBytes);
    return { status: response.statusCode ?? 0, text: Buffer.concat(bytes).toString('utf8') };
  }

  #enter(upstream: Upstream, state: UpstreamState, reason?: string): void {
    if (this.#isStopped) return;
    const before = upstream.state;
    upstream.state = state;
    if (before === state) return;
    if (state === 'down') {
      upstream.abandon(`${upstream.id} is down: ${reason}`);
      this.#options.onLost(upstream);
    }
    this.#options.onUpstream?.({ upstream: upstream.id, state, ...(reason === undefined ? {} : { reason }) });
  }
}

/** Sums of the gauges over models, by the names of vLLM; undefined without them. */
export function reportOf(exposition: string): Report | undefined {
  const numRunning = sumOf(exposition, 'vllm:num_requests_running');
  const numWaiting = sumOf(exposition, 'vllm:num_requests_waiting');
  if (numRunning === undefined || numWaiting === undefined) return undefined;
  return { numRunning, numWaiting, numSlots: sumOf(exposition, 'winnow_slots') };
}

function sumOf(exposition: string, name: string): number | undefined {
  let sum: number | undefined;
  for (const line of exposition.split('\n')) {
    if (!line.startsWith(name) || !/^[ {]/.test(line.slice(name.length))) continue;
    const value = Number(line.slice(line.lastIndexOf(' ') + 1));
    if (Number.isFinite(value)) sum = (sum ?? 0) + value;
  }
  return sum;
}

/** Ids and aliases of a list of models; undefined when it is none. */
export function modelNamesOf(text: string): ReadonlySet<string> | undefined {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(list) || !Array.isArray(list['data'])) return undefined;
  const names = list['data'].flatMap((model: unknown) =>
    isRecord(model) ? [model['id'], ...(Array.isArray(model['aliases']) ? model['aliases'] : [])] : [],
  );
  return new Set(names.filter((name) => typeof name === 'string'));
}
