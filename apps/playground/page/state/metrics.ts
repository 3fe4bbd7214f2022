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

/** One layer; heads that visit equally many keys have one share. */
export interface LayerShares {
  readonly layer: string;
  /** From 0 to 1, by KV head. */
  readonly shares: readonly number[];
}

export interface Activity {
  /** Single numbers with their unit. */
  readonly facts: readonly { readonly label: string; readonly value: string }[];
  /** Blocks of the KV cache by use. */
  readonly cacheBlocks: readonly Bar[];
  /** Bytes of keys and values by tier, where there are tiers. */
  readonly cacheTiers: readonly Bar[];
  /** Pages outside the pool by tier, likewise; those in it are blocks. */
  readonly cachePages: readonly Bar[];
  /** Bytes of weights by tier, where weights are offloaded. */
  readonly weightTiers: readonly Bar[];
  /** Share of active neurons or experts by layer, where they are sparse. */
  readonly activeRatios: readonly Bar[];
  /** Visited keys as a share of the visible ones: of the tokens between two polls, or of all if there are none. */
  readonly visitedKeys: readonly LayerShares[];
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

/**
 * @param model only samples of this model, and those of none
 * @param before the samples of the poll before
 */
export function activityOf(samples: readonly Sample[], model: string, before: readonly Sample[] = []): Activity {
  const own = ofModel(samples, model);
  const bars = (names: readonly string[], label: string): Bar[] =>
    own.filter(({ name }) => names.includes(name)).map(({ labels, value }) => ({ label: labels[label] ?? '', value }));
  return {
    facts: [
      ...factNames.flatMap(([name, label, format]) =>
        own.filter((sample) => sample.name === name).map(({ value }) => ({ label, value: format(value) })),
      ),
      ...acceptanceOf(own),
    ],
    cacheBlocks: [...bars(['winnow_cache_blocks'], 'use'), ...bars(['winnow_kv_blocks'], 'state')],
    cacheTiers: bars(['winnow_kv_tier_bytes'], 'tier'),
    cachePages: bars(['winnow_kv_tier_pages'], 'tier'),
    weightTiers: bars(['winnow_ffn_tier_bytes'], 'tier'),
    activeRatios: bars(['winnow_ffn_active_ratio'], 'layer'),
    visitedKeys: visitedKeysOf(own, ofModel(before, model)),
    memory: bars(['winnow_planned_bytes'], 'part'),
  };
}

function ofModel(samples: readonly Sample[], model: string): readonly Sample[] {
  return samples.filter(({ labels }) => labels['model'] === undefined || labels['model'] === model);
}

/** Drafted tokens that became output, if any were drafted. */
function acceptanceOf(samples: readonly Sample[]): Activity['facts'] {
  const valueOf = (name: string): number => samples.find((sample) => sample.name === name)?.value ?? 0;
  const drafted = valueOf('winnow_drafted_tokens_total');
  if (drafted === 0) return [];
  const accepted = valueOf('winnow_accepted_tokens_total');
  const share = Math.round((100 * accepted) / drafted);
  return [{ label: 'Acceptance of drafts', value: `${share} % of ${drafted.toLocaleString('en')}` }];
}

/** Counters by their labels. */
class Counts {
  readonly #values = new Map<string, number>();

  constructor(samples: readonly Sample[]) {
    for (const { name, labels, value } of samples) {
      this.#values.set(keyOf(name, labels['layer'], labels['kv_head']), value);
    }
  }

  of(name: string, layer?: string, head?: string): number {
    return this.#values.get(keyOf(name, layer, head)) ?? 0;
  }
}

function keyOf(name: string, layer: string | undefined, head: string | undefined): string {
  return [name, layer, head].join(' ');
}

function visitedKeysOf(samples: readonly Sample[], earlier: readonly Sample[]): readonly LayerShares[] {
  const [now, past] = [new Counts(samples), new Counts(earlier)];
  const tokens = 'winnow_attention_tokens_total';
  const isNew = past.of(tokens) > 0 && now.of(tokens) > past.of(tokens);
  const valueOf = (name: string, layer: string, head?: string): number =>
    now.of(name, layer, head) - (isNew ? past.of(name, layer, head) : 0);
  return samples
    .filter(({ name }) => name === 'winnow_attention_visible_keys_total')
    .map(({ name, labels: { layer = '' } }) => {
      const visible = valueOf(name, layer);
      const shares = samples
        .filter((sample) => sample.name === 'winnow_attention_visited_keys_total' && sample.labels['layer'] === layer)
        .map((sample) => valueOf(sample.name, layer, sample.labels['kv_head']) / visible);
      return { layer, shares: visible === 0 ? [] : shares };
    })
    .filter(({ shares }) => shares.length > 0);
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
