/** Metrics of a router in Prometheus' format. */
import { Counter, expositionOf, Histogram, Observed, type Metric, type Sample } from '../metrics/metrics-registry.js';
import { processMetrics } from '../metrics/process-metrics.js';
import { durationBounds } from '../metrics/duration-bounds.js';
import type { Upstream } from './upstream.js';

export class RouterMetrics {
  readonly requests = new Counter('winnow_router_requests_total', 'Completed requests by route and status.');
  readonly durations = new Histogram(
    'winnow_router_request_duration_seconds',
    'Time from a request to the end of its response.',
    durationBounds,
  );
  readonly firstEvents = new Histogram(
    'winnow_router_time_to_first_event_seconds',
    'Time from a request to the first event of its stream.',
    durationBounds,
  );
  readonly choices = new Counter(
    'winnow_router_choices_total',
    'Chosen servers by reason: prefix (it has the pages), hash (of the first page), load, stored (it has the stored response), batches.',
  );
  readonly failures = new Counter(
    'winnow_router_upstream_failures_total',
    'Requests that a server failed to answer, or to answer to the end, by server.',
  );
  readonly broken = new Counter(
    'winnow_router_streams_broken_total',
    'Streams that ended with an error because their server was lost, by server.',
  );
  readonly #observed: readonly Metric[];

  constructor(upstreams: readonly Upstream[]) {
    const gauge = (name: string, help: string, read: (upstream: Upstream) => number): Metric =>
      new Observed('gauge', name, help, () => upstreams.map((each): Sample => [{ upstream: each.id }, read(each)]));
    this.#observed = [
      gauge('winnow_router_upstream_up', 'Whether the server gets requests.', ({ state }) => (state === 'up' ? 1 : 0)),
      gauge('winnow_router_upstream_in_flight', 'Requests of this router.', ({ numInFlight }) => numInFlight),
      gauge('winnow_router_upstream_load', 'Requests that run or wait, of all clients.', ({ load }) => load),
      gauge('winnow_router_upstream_queue', 'Requests that wait for a slot.', ({ numWaiting }) => numWaiting),
      gauge('winnow_router_upstream_slots', 'Slots of the models of the server.', ({ numSlots }) => numSlots),
      ...processMetrics(),
    ];
  }

  exposition(): string {
    const { requests, durations, firstEvents, choices, failures, broken } = this;
    return expositionOf([requests, durations, firstEvents, choices, failures, broken, ...this.#observed]);
  }
}
