/** The server's own metrics, and those read from its models when scraped. */
import { formatPrometheusModels, type LabeledMetrics, type ModelMetrics } from '@winnow/engine';
import type { ModelEvent } from '../catalog.js';
import type { ModelEntry } from '../models/model-entry.js';
import type { ModelRegistry } from '../models/model-registry.js';
import { durationBounds } from './duration-bounds.js';
import { processMetrics } from './process-metrics.js';
import { loadMetrics, queueMetrics, type ReadQueues } from './queue-metrics.js';
import { Counter, expositionOf, Histogram, Observed, type Metric, type Sample } from './metrics-registry.js';

export class ServerMetrics {
  readonly requests = new Counter('winnow_http_requests_total', 'Completed requests by route and status.');
  readonly durations = new Histogram(
    'winnow_http_request_duration_seconds',
    'Time from a request to the end of its response.',
    durationBounds,
  );
  readonly firstTokens = new Histogram(
    'winnow_time_to_first_token_seconds',
    'Time from acquiring a slot to the first token.',
    durationBounds,
  );
  readonly promptTokens = new Counter('winnow_prompt_tokens_total', 'Prompt tokens.');
  readonly cachedTokens = new Counter('winnow_prompt_tokens_cached_total', 'Prompt tokens found in the cache.');
  readonly generatedTokens = new Counter('winnow_generated_tokens_total', 'Generated tokens.');
  readonly embeddedTokens = new Counter('winnow_embedded_tokens_total', 'Embedded tokens.');
  readonly rerankedTokens = new Counter('winnow_reranked_tokens_total', 'Tokens of reranked queries and documents.');
  readonly canceled = new Counter('winnow_requests_canceled_total', 'Generations whose client disconnected.');
  readonly modelLoads = new Counter('winnow_model_loads_total', 'Loads of models on demand by result.');
  readonly modelUnloads = new Counter('winnow_model_unloads_total', 'Unloaded models by reason.');
  readonly loadDurations = new Histogram(
    'winnow_model_load_duration_seconds',
    'Time to load a model, with its download and the wait for memory.',
    durationBounds,
  );
  readonly #observed: readonly Metric[];
  readonly #registry: ModelRegistry;

  constructor(registry: ModelRegistry) {
    this.#registry = registry;
    this.#observed = [
      ...slotMetrics(registry),
      ...stepMetrics(registry),
      ...poolMetrics(registry),
      ...promptCacheMetrics(registry),
      ...loadMetrics(registry),
      ...processMetrics(),
    ];
  }

  /** Names of models are no labels here: those of failed loads come from clients. */
  recordModel(event: ModelEvent): void {
    if (event.event === 'loading') return;
    if (event.event === 'unloaded') this.modelUnloads.add(1, { reason: event.reason });
    else this.modelLoads.add(1, { result: event.event });
    if (event.event === 'loaded') this.loadDurations.observe(event.durationMs / 1000);
  }

  /** @param queues of batches, on a server that has them */
  exposition(queues?: { readonly read: ReadQueues }): string {
    const own = [
      this.requests,
      this.durations,
      this.firstTokens,
      this.promptTokens,
      this.cachedTokens,
      this.generatedTokens,
      this.embeddedTokens,
      this.rerankedTokens,
      this.canceled,
      this.modelLoads,
      this.modelUnloads,
      this.loadDurations,
    ];
    const batches = queues === undefined ? [] : queueMetrics(queues.read);
    return (
      expositionOf([...own, ...this.#observed, ...batches]) +
      formatPrometheusModels(this.#registry.entries().map(engineMetrics))
    );
  }
}

function gauge(name: string, help: string, read: () => Iterable<Sample>): Metric {
  return new Observed('gauge', name, help, read);
}

function counter(name: string, help: string, read: () => Iterable<Sample>): Metric {
  return new Observed('counter', name, help, read);
}

/** A sample per generating model that has the value. */
function perGenerative(registry: ModelRegistry, read: (metrics: ModelMetrics) => number | undefined): () => Sample[] {
  return () =>
    registry.entries().flatMap((entry): Sample[] => {
      const value = entry.kind === 'generative' ? read(entry.model.metrics()) : undefined;
      return value === undefined ? [] : [[{ model: entry.id }, value]];
    });
}

function slotMetrics(registry: ModelRegistry): Metric[] {
  const perModel = (read: (entry: ModelEntry) => number): (() => Sample[]) => {
    return () => registry.entries().map((entry) => [{ model: entry.id }, read(entry)]);
  };
  return [
    gauge('winnow_model_info', 'Always 1. The backend that runs the model, with the level of its native kernels.', () =>
      registry.entries().map(({ id, model: { backend } }): Sample => [{ model: id, backend }, 1]),
    ),
    gauge(
      'winnow_slots_busy',
      'Slots with a running request.',
      perModel(({ slots }) => slots.numRunning),
    ),
    gauge(
      'winnow_slots',
      'Slots of the model.',
      perModel(({ slots }) => slots.activities.length),
    ),
    gauge(
      'winnow_requests_queued',
      'Requests that wait for a slot.',
      perModel(({ slots }) => slots.numQueued),
    ),
    gauge(
      'winnow_sessions',
      'Open sessions of the engine.',
      perGenerative(registry, (metrics) => metrics.numSessions),
    ),
    gauge('winnow_cache_blocks', 'KV cache blocks by state.', () => blockSamples(registry)),
  ];
}

function stepMetrics(registry: ModelRegistry): Metric[] {
  return [
    counter(
      'winnow_cache_shared_tokens_total',
      'Prompt tokens shared with other sequences.',
      perGenerative(registry, ({ cache }) => cache.numSharedTokens),
    ),
    counter(
      'winnow_steps_total',
      'Steps of the engine.',
      perGenerative(registry, ({ steps }) => steps.numSteps),
    ),
    counter(
      'winnow_step_seconds_total',
      'Total time of steps.',
      perGenerative(registry, ({ steps }) => steps.stepMs / 1000),
    ),
    gauge(
      'winnow_tokens_per_second',
      'Tokens of prompts and answers divided by the time of steps.',
      perGenerative(registry, ({ steps }) => steps.tokensPerSecond),
    ),
    counter(
      'winnow_shared_steps_total',
      'Steps that computed tokens of several requests.',
      perGenerative(registry, ({ steps }) => steps.numSharedSteps),
    ),
    counter(
      'winnow_preemptions_total',
      'Preempted requests.',
      perGenerative(registry, ({ steps }) => steps.numPreemptions),
    ),
  ];
}

/** Pages of prompts in files, of models that keep them. */
function promptCacheMetrics(registry: ModelRegistry): Metric[] {
  return [
    counter(
      'winnow_prompt_cache_read_tokens_total',
      'Prompt tokens whose pages were read from stores.',
      perGenerative(registry, ({ promptCache }) => promptCache?.numReadTokens),
    ),
    counter(
      'winnow_prompt_cache_stored_pages_total',
      'Pages of prompts that were written.',
      perGenerative(registry, ({ promptCache }) => promptCache?.numStoredPages),
    ),
    counter(
      'winnow_prompt_cache_damaged_pages_total',
      'Pages that were damaged.',
      perGenerative(registry, ({ promptCache }) => promptCache?.numDamagedPages),
    ),
    counter(
      'winnow_prompt_cache_failures_total',
      'Pages that could not be read or written because their store failed.',
      perGenerative(registry, ({ promptCache }) => promptCache?.numFailures),
    ),
    gauge(
      'winnow_prompt_cache_bytes',
      'Size of all pages of the stores of the model.',
      perGenerative(registry, ({ promptCache }) => promptCache?.sizeBytes),
    ),
  ];
}

/** Models that the server loads itself. */
function poolMetrics({ pool }: ModelRegistry): Metric[] {
  if (pool === undefined) return [];
  return [
    gauge('winnow_models_loaded', 'Models that were loaded on demand.', () => [[{}, pool.loaded().length]]),
    gauge('winnow_models_memory_bytes', 'Planned memory of these models.', () => [[{}, pool.usedBytes]]),
    gauge('winnow_models_memory_limit_bytes', 'Maximum memory of these models.', () => [[{}, pool.memoryBytes]]),
  ];
}

/** What the engine formats itself: speculation, visited keys, activation sparsity, KV and weight offload, and planned memory. */
function engineMetrics(entry: ModelEntry): LabeledMetrics {
  const labels = { model: entry.id };
  if (entry.kind === 'reranking') return { labels, metrics: {} };
  if (entry.kind === 'embedding') {
    const feedForward = entry.model.feedForwardMetrics?.();
    return { labels, metrics: { ...(feedForward && { feedForward }) } };
  }
  const { speculation, visitedKeys, feedForward, tiers } = entry.model.metrics();
  const { plan } = entry.model;
  const own = { ...(visitedKeys && { visitedKeys }), ...(feedForward && { feedForward }), ...(tiers && { tiers }) };
  return { labels, metrics: { speculation, ...own, ...(plan && { plan }) } };
}

function blockSamples(registry: ModelRegistry): Sample[] {
  return registry.entries().flatMap((entry): Sample[] => {
    if (entry.kind !== 'generative') return [];
    const { numUsedBlocks, numCachedBlocks, numFreeBlocks } = entry.model.metrics().cache;
    const model = entry.id;
    return [
      [{ model, use: 'used' }, numUsedBlocks],
      [{ model, use: 'cached' }, numCachedBlocks],
      [{ model, use: 'free' }, numFreeBlocks],
    ];
  });
}
