/** Metrics of a model in the text format of Prometheus. */
import type { FeedForwardMetrics } from './feed-forward-metrics.js';
import type { ModelMetrics } from './metrics.js';

type Labels = Readonly<Record<string, string | number>>;
type Sample = readonly [labels: Labels, value: number];

const prefix = 'winnow_';

class Text {
  readonly #lines: string[] = [];
  readonly #labels: Labels;

  constructor(labels: Labels) {
    this.#labels = labels;
  }

  add(name: string, kind: 'counter' | 'gauge', help: string, samples: readonly Sample[]): void {
    if (samples.length === 0) return;
    const full = `${prefix}${name}${kind === 'counter' ? '_total' : ''}`;
    this.#lines.push(`# HELP ${full} ${help}`, `# TYPE ${full} ${kind}`);
    for (const [labels, value] of samples) {
      const pairs = Object.entries({ ...this.#labels, ...labels }).map(([key, text]) => `${key}="${escaped(text)}"`);
      this.#lines.push(`${full}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}`);
    }
  }

  toString(): string {
    return this.#lines.map((line) => `${line}\n`).join('');
  }
}

function escaped(text: string | number): string {
  return String(text).replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

/**
 * `text/plain; version=0.0.4`: everything that `metrics` holds, with the same labels on each sample, such as the model's
 * name. Ratios are from 0 to 1, times in seconds.
 */
export function formatPrometheus(
  metrics: Pick<ModelMetrics, 'feedForward'> & Partial<ModelMetrics>,
  labels: Labels = {},
): string {
  const text = new Text(labels);
  const one = (value: number | undefined): Sample[] => (value === undefined ? [] : [[{}, value]]);
  const { steps, cache, tiers, feedForward } = metrics;
  text.add('sessions', 'gauge', 'Open sessions.', one(metrics.numSessions));
  text.add('steps', 'counter', 'Steps that ran.', one(steps?.numSteps));
  text.add('tokens', 'counter', 'Tokens that were computed, of prompts and answers.', one(steps?.numTokens));
  text.add('steps_shared', 'counter', 'Steps of several sessions.', one(steps?.numSharedSteps));
  text.add('preemptions', 'counter', 'Sessions that gave up their blocks for others.', one(steps?.numPreemptions));
  text.add('waiting', 'gauge', 'Sessions that wait for room in the cache.', one(steps?.numWaiting));
  text.add(
    'kv_blocks',
    'gauge',
    'Blocks of the cache by state.',
    cache === undefined
      ? []
      : [
          [{ state: 'used' }, cache.numUsedBlocks],
          [{ state: 'cached' }, cache.numCachedBlocks],
          [{ state: 'free' }, cache.numFreeBlocks],
        ],
  );
  text.add('kv_block_bytes', 'gauge', 'Bytes of a block of the cache.', one(cache?.blockBytes));
  text.add('kv_shared_tokens', 'counter', 'Tokens taken over from other sessions.', one(cache?.numSharedTokens));
  text.add('kv_evicted_tokens', 'counter', 'Tokens dropped from full contexts.', one(cache?.numEvictedTokens));
  text.add(
    'kv_tier_bytes',
    'gauge',
    'Bytes of keys and values by tier.',
    tiers === undefined
      ? []
      : [
          [{ tier: 'hot' }, tiers.hotBytes],
          [{ tier: 'warm' }, tiers.warmBytes],
          [{ tier: 'cold' }, tiers.coldBytes],
        ],
  );
  text.add('kv_tier_read_bytes', 'counter', 'Bytes of keys and values read from files.', one(tiers?.bytesRead));
  if (feedForward !== undefined) addFeedForward(text, feedForward);
  return text.toString();
}

function addFeedForward(text: Text, { layers, cache, waitedMs, readMs }: FeedForwardMetrics): void {
  const each = (valueOf: (layer: (typeof layers)[number]) => number | undefined): Sample[] =>
    layers.flatMap((layer): Sample[] => {
      const value = valueOf(layer);
      return value === undefined ? [] : [[{ layer: layer.layer }, value]];
    });
  const seconds = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : ms / 1000);
  const one = (value: number | undefined): Sample[] => (value === undefined ? [] : [[{}, value]]);
  text.add('ffn_active_ratio', 'gauge', 'Share of the neurons or experts that a token computes.', [
    ...each(({ numSteps, activeRatio }) => (numSteps === 0 ? undefined : activeRatio)),
  ]);
  text.add('ffn_batch_active_ratio', 'gauge', 'The same for steps of several tokens.', [
    ...each(({ numBatches, batchActiveRatio }) => (numBatches === 0 ? undefined : batchActiveRatio)),
  ]);
  text.add(
    'layer_seconds',
    'counter',
    'Time of a layer, when profiled.',
    each((l) => seconds(l.profile?.layerMs)),
  );
  text.add(
    'ffn_predictor_seconds',
    'counter',
    'Time of predictors, when profiled.',
    each((l) => seconds(l.profile?.predictorMs)),
  );
  text.add(
    'ffn_slots',
    'gauge',
    'Neurons or experts with room in memory.',
    each(({ tiers }) => tiers?.numSlots),
  );
  text.add(
    'ffn_hits',
    'counter',
    'Needed and in memory.',
    each(({ tiers }) => tiers?.hits),
  );
  text.add(
    'ffn_misses',
    'counter',
    'Needed and not in memory.',
    each(({ tiers }) => tiers?.misses),
  );
  text.add(
    'ffn_evictions',
    'counter',
    'Left their slots for others.',
    each(({ tiers }) => tiers?.evictions),
  );
  text.add(
    'ffn_wait_seconds',
    'counter',
    'Steps waited for weights.',
    each((l) => seconds(l.tiers?.waitedMs)),
  );
  text.add('ffn_read_bytes', 'counter', 'Bytes of weights read from files.', one(cache?.bytesRead));
  text.add('ffn_reads', 'counter', 'Reads of weights.', one(cache?.numReads));
  text.add('ffn_read_seconds', 'counter', 'Time with a read under way.', one(seconds(readMs)));
  text.add('ffn_waited_seconds', 'counter', 'Time that steps waited for reads.', one(seconds(waitedMs)));
  text.add(
    'ffn_tier_bytes',
    'gauge',
    'Memory of weights in tiers.',
    cache === undefined
      ? []
      : [
          [{ tier: 'hot' }, cache.bytes.hot],
          [{ tier: 'warm' }, cache.bytes.warm],
          [{ tier: 'staging' }, cache.bytes.staging],
        ],
  );
}
