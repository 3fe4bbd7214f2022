/** Metrics of a model in the text format of Prometheus. */
import type { FeedForwardMetrics } from './feed-forward.js';
import type { ModelMetrics } from './model-metrics.js';
import type { VisitedKeysMetrics } from './visited-keys.js';

type Labels = Readonly<Record<string, string | number>>;
type Sample = readonly [labels: Labels, value: number];

const prefix = 'winnow_';

interface Family {
  readonly name: string;
  readonly kind: 'counter' | 'gauge';
  readonly help: string;
  readonly samples: Sample[];
}

/** Samples by name, grouped across models as the format requires. */
class Families {
  readonly #byName = new Map<string, Family>();

  /** Returns a function that adds samples with these labels. */
  labeled(labels: Labels): AddSamples {
    return (name, kind, help, samples) => {
      if (samples.length === 0) return;
      const full = `${prefix}${name}${kind === 'counter' ? '_total' : ''}`;
      const family = this.#byName.get(full) ?? { name: full, kind, help, samples: [] };
      this.#byName.set(full, family);
      for (const [own, value] of samples) family.samples.push([{ ...labels, ...own }, value]);
    };
  }

  toString(): string {
    return Array.from(this.#byName.values(), (family) => linesOf(family).join('')).join('');
  }
}

type AddSamples = (name: string, kind: Family['kind'], help: string, samples: readonly Sample[]) => void;

function linesOf({ name, kind, help, samples }: Family): string[] {
  const lines = samples.map(([labels, value]) => {
    const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escaped(text)}"`);
    return `${name}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}\n`;
  });
  return [`# HELP ${name} ${help}\n`, `# TYPE ${name} ${kind}\n`, ...lines];
}

function escaped(text: string | number): string {
  return String(text).replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

/**
 * The metrics that `formatPrometheus` accepts; for an embedding model, `{ feedForward: model.feedForwardMetrics() }`.
 * With `plan: model.plan`, the planned memory is among them.
 */
export type PrometheusMetrics = Pick<ModelMetrics, 'feedForward'> &
  Partial<ModelMetrics> & { readonly plan?: Readonly<Record<'weightsBytes' | 'kvBytes' | 'activationBytes', number>> };

/** One of several models. */
export interface LabeledMetrics {
  readonly metrics: PrometheusMetrics;
  /** Labels of each sample, such as the model's name. */
  readonly labels: Readonly<Record<string, string | number>>;
}

/**
 * Formats all of `metrics` as `text/plain; version=0.0.4`, with the same labels on each sample, such as the model's
 * name. Ratios are from 0 to 1, times in seconds.
 */
export function formatPrometheus(metrics: PrometheusMetrics, labels: Labels = {}): string {
  return formatPrometheusModels([{ metrics, labels }]);
}

/** As `formatPrometheus`, for several models, which their labels distinguish. */
export function formatPrometheusModels(models: Iterable<LabeledMetrics>): string {
  const families = new Families();
  for (const { metrics, labels } of models) addModel(families.labeled(labels), metrics);
  return families.toString();
}

function addModel(add: AddSamples, metrics: PrometheusMetrics): void {
  const one = (value: number | undefined): Sample[] => (value === undefined ? [] : [[{}, value]]);
  const { steps, cache, tiers, feedForward, speculation, plan, visitedKeys } = metrics;
  add('sessions', 'gauge', 'Open sessions.', one(metrics.numSessions));
  add('steps', 'counter', 'Steps that have run.', one(steps?.numSteps));
  add('tokens', 'counter', 'Prompt and answer tokens that were computed.', one(steps?.numTokens));
  add('step_seconds', 'counter', 'Total time of steps.', one(steps && steps.stepMs / 1000));
  add('tokens_per_second', 'gauge', 'Prompt and answer tokens per second of step time.', [
    ...one(steps?.tokensPerSecond),
  ]);
  add('steps_shared', 'counter', 'Steps of several sessions.', one(steps?.numSharedSteps));
  add('drafted_tokens', 'counter', 'Tokens that speculative decoding drafted.', one(speculation?.numDraftedTokens));
  add('accepted_tokens', 'counter', 'Drafted tokens that became output; each saved a step.', [
    ...one(speculation?.numAcceptedTokens),
  ]);
  add('preemptions', 'counter', 'Sessions that were preempted.', one(steps?.numPreemptions));
  add('device_losses', 'counter', 'Devices that were lost and replaced.', one(steps?.numDeviceLosses));
  add('fallback_records', 'gauge', 'Records that run on the reference.', one(metrics.numFallbackRecords));
  add('waiting', 'gauge', 'Sessions that wait for cache blocks.', one(steps?.numWaiting));
  add(
    'kv_blocks',
    'gauge',
    'Blocks of the cache by state.',
    by('state', cache && { used: cache.numUsedBlocks, cached: cache.numCachedBlocks, free: cache.numFreeBlocks }),
  );
  add('kv_block_bytes', 'gauge', 'Bytes of a block of the cache.', one(cache?.blockBytes));
  add('kv_shared_tokens', 'counter', 'Prompt tokens found in blocks of other sessions.', one(cache?.numSharedTokens));
  add('kv_evicted_tokens', 'counter', 'Tokens dropped from full contexts.', one(cache?.numEvictedTokens));
  add(
    'kv_tier_bytes',
    'gauge',
    'Bytes of keys and values by tier.',
    by('tier', tiers && { hot: tiers.hotBytes, warm: tiers.warmBytes, cold: tiers.coldBytes }),
  );
  add(
    'kv_tier_pages',
    'gauge',
    "Pages outside the pool, each of one layer's keys or values, by tier.",
    by('tier', tiers && { warm: tiers.numWarmPages, cold: tiers.numColdPages }),
  );
  add(
    'planned_bytes',
    'gauge',
    'Planned memory by what it holds.',
    by('part', plan && { weights: plan.weightsBytes, 'kv-cache': plan.kvBytes, activations: plan.activationBytes }),
  );
  add('kv_tier_read_bytes', 'counter', 'Bytes of keys and values read from files.', one(tiers?.bytesRead));
  if (visitedKeys !== undefined) addVisitedKeys(add, visitedKeys);
  if (feedForward !== undefined) addFeedForward(add, feedForward);
}

function addVisitedKeys(add: AddSamples, { numTokens, layers }: VisitedKeysMetrics): void {
  add('attention_tokens', 'counter', 'Generated tokens whose keys were counted.', [[{}, numTokens]]);
  add(
    'attention_visible_keys',
    'counter',
    'Keys that these tokens may attend to.',
    layers.map(({ layer, numVisibleKeys }) => [{ layer }, numVisibleKeys]),
  );
  add(
    'attention_visited_keys',
    'counter',
    'Keys that each query head of a KV head visited.',
    layers.flatMap(({ layer, numVisitedKeys }) =>
      numVisitedKeys.map((value, head): Sample => [
        numVisitedKeys.length === 1 ? { layer } : { layer, kv_head: head },
        value,
      ]),
    ),
  );
}

/** A sample per value, with its name as a label. */
function by(label: string, values: Readonly<Record<string, number>> | undefined): Sample[] {
  return Object.entries(values ?? {}).map(([name, value]) => [{ [label]: name }, value]);
}

function addFeedForward(add: AddSamples, { layers, cache, waitedMs, readMs }: FeedForwardMetrics): void {
  const each = (valueOf: (layer: (typeof layers)[number]) => number | undefined): Sample[] =>
    layers.flatMap((layer): Sample[] => {
      const value = valueOf(layer);
      return value === undefined ? [] : [[{ layer: layer.layer }, value]];
    });
  const seconds = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : ms / 1000);
  add('ffn_active_ratio', 'gauge', 'Share of the neurons or experts that a token computes.', [
    ...each(({ numSteps, activeRatio }) => (numSteps === 0 ? undefined : activeRatio)),
  ]);
  add('ffn_batch_active_ratio', 'gauge', 'Share of the neurons or experts that a step of several tokens computes.', [
    ...each(({ numBatches, batchActiveRatio }) => (numBatches === 0 ? undefined : batchActiveRatio)),
  ]);
  add(
    'layer_seconds',
    'counter',
    'Time of a layer, when profiled.',
    each((l) => seconds(l.profile?.layerMs)),
  );
  add(
    'ffn_predictor_seconds',
    'counter',
    'Time of predictors, when profiled.',
    each((l) => seconds(l.profile?.predictorMs)),
  );
  add(
    'ffn_slots',
    'gauge',
    'Neurons or experts that have a slot in memory.',
    each(({ tiers }) => tiers?.numSlots),
  );
  add(
    'ffn_hits',
    'counter',
    'Neurons or experts that were needed and in memory.',
    each(({ tiers }) => tiers?.hits),
  );
  add(
    'ffn_misses',
    'counter',
    'Neurons or experts that were needed and not in memory.',
    each(({ tiers }) => tiers?.misses),
  );
  add(
    'ffn_evictions',
    'counter',
    'Neurons or experts that were evicted from their slots.',
    each(({ tiers }) => tiers?.evictions),
  );
  add(
    'ffn_wait_seconds',
    'counter',
    'Time that steps waited for weights.',
    each((l) => seconds(l.tiers?.waitedMs)),
  );
  if (cache !== undefined) addWeightTiers(add, cache, seconds(readMs), seconds(waitedMs));
}

/** Offloaded weights, all layers together. */
function addWeightTiers(
  add: AddSamples,
  { bytes, bytesRead, numReads }: NonNullable<FeedForwardMetrics['cache']>,
  readSeconds: number | undefined,
  waitedSeconds: number | undefined,
): void {
  const one = (value: number | undefined): Sample[] => (value === undefined ? [] : [[{}, value]]);
  add('ffn_read_bytes', 'counter', 'Bytes of weights read from files.', one(bytesRead));
  add('ffn_reads', 'counter', 'Reads of weights.', one(numReads));
  add('ffn_read_seconds', 'counter', 'Time with a read in progress.', one(readSeconds));
  add('ffn_waited_seconds', 'counter', 'Time that steps waited for reads.', one(waitedSeconds));
  const { hot, warm, cold, staging } = bytes;
  add('ffn_tier_bytes', 'gauge', 'Memory of offloaded weights.', by('tier', { hot, warm, cold, staging }));
}
