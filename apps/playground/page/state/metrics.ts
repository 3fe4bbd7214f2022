/** What Winnow measures, read from the text format of Prometheus. Only what is there is shown. */

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Lines that are not samples are skipped. */
export function parseMetrics(text: string): Sample[] {
  return text.split('\n').flatMap((line): Sample[] => {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match === null) return [];
    const [, name = '', labels = '', value = ''] = match;
    return [{ name, labels: labelsOf(labels), value: Number(value) }];
  });
}

function labelsOf(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const [, name = '', value = ''] of text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
    labels[name] = value.replace(/\\(.)/g, (_, character: string) => (character === 'n' ? '\n' : character));
  }
  return labels;
}

export interface Bar {
  readonly label: string;
  readonly value: number;
}

export interface Activity {
  /** Single numbers with their unit. */
  readonly facts: readonly { readonly label: string; readonly value: string }[];
  /** Blocks of the KV cache by use. */
  readonly cacheBlocks: readonly Bar[];
  /** Bytes of keys and values by tier, where there are tiers. */
  readonly cacheTiers: readonly Bar[];
  /** Bytes of weights by tier, where weights are offloaded. */
  readonly weightTiers: readonly Bar[];
  /** Share of active neurons or experts by layer, where they are sparse. */
  readonly activeRatios: readonly Bar[];
  /** Planned bytes by what they hold. */
  readonly memory: readonly Bar[];
}

/** Names are those of the server and of `formatPrometheus` of the engine. */
const factNames: readonly (readonly [name: string, label: string, format: (value: number) => string])[] = [
  ['winnow_tokens_per_second', 'Tokens per second of step time', (value) => value.toFixed(1)],
  ['winnow_steps_total', 'Steps', (value) => value.toLocaleString('en')],
  ['winnow_generated_tokens_total', 'Generated tokens', (value) => value.toLocaleString('en')],
  ['winnow_slots_busy', 'Requests in progress', String],
  ['winnow_requests_queued', 'Queued requests', String],
  ['winnow_preemptions_total', 'Preempted requests', String],
  ['winnow_kv_evicted_tokens_total', 'Evicted tokens', (value) => value.toLocaleString('en')],
  ['process_resident_memory_bytes', 'Memory of the server', bytes],
];

/** @param model only samples of this model, and those of none */
export function activityOf(samples: readonly Sample[], model: string): Activity {
  const own = samples.filter(({ labels }) => labels['model'] === undefined || labels['model'] === model);
  const bars = (names: readonly string[], label: string): Bar[] =>
    own.filter(({ name }) => names.includes(name)).map(({ labels, value }) => ({ label: labels[label] ?? '', value }));
  return {
    facts: factNames.flatMap(([name, label, format]) =>
      own.filter((sample) => sample.name === name).map(({ value }) => ({ label, value: format(value) })),
    ),
    cacheBlocks: [...bars(['winnow_cache_blocks'], 'use'), ...bars(['winnow_kv_blocks'], 'state')],
    cacheTiers: bars(['winnow_kv_tier_bytes'], 'tier'),
    weightTiers: bars(['winnow_ffn_tier_bytes'], 'tier'),
    activeRatios: bars(['winnow_ffn_active_ratio'], 'layer'),
    memory: bars(['winnow_planned_bytes'], 'part'),
  };
}

const unitNames = ['B', 'kB', 'MB', 'GB', 'TB'];

export function bytes(value: number): string {
  let [scaled, unit] = [value, 0];
  while (scaled >= 1000 && unit < unitNames.length - 1) {
    scaled /= 1000;
    unit++;
  }
  return `${scaled.toFixed(unit === 0 ? 0 : 1)} ${unitNames[unit]}`;
}
