/** Counters, gauges and histograms in the Prometheus text format, version 0.0.4. */

export type Labels = Readonly<Record<string, string | number>>;

export interface Metric {
  /** The lines of the exposition. */
  lines(): Iterable<string>;
}

interface Described {
  readonly name: string;
  readonly help: string;
}

export class Counter implements Metric {
  readonly #head: Described;
  readonly #values = new Map<string, number>();

  constructor(name: string, help: string) {
    this.#head = { name, help };
  }

  add(value: number, labels: Labels = {}): void {
    const key = labelText(labels);
    this.#values.set(key, (this.#values.get(key) ?? 0) + value);
  }

  *lines(): Iterable<string> {
    yield* header(this.#head, 'counter');
    for (const [key, value] of this.#values) yield `${this.#head.name}${key} ${value}`;
  }
}

/** One sample of a gauge, or of a counter that is maintained elsewhere. */
export type Sample = readonly [labels: Labels, value: number];

/** Read when the metrics are scraped. */
export class Observed implements Metric {
  readonly #head: Described;
  readonly #type: 'gauge' | 'counter';
  readonly #read: () => Iterable<Sample>;

  constructor(type: 'gauge' | 'counter', name: string, help: string, read: () => Iterable<Sample>) {
    this.#head = { name, help };
    this.#type = type;
    this.#read = read;
  }

  *lines(): Iterable<string> {
    yield* header(this.#head, this.#type);
    for (const [labels, value] of this.#read()) yield `${this.#head.name}${labelText(labels)} ${value}`;
  }
}

interface Buckets {
  readonly labels: Labels;
  /** Number of observations up to the bound of the same index; the last one counts all. */
  readonly counts: number[];
  sum: number;
}

export class Histogram implements Metric {
  readonly #head: Described;
  readonly #bounds: readonly number[];
  readonly #series = new Map<string, Buckets>();

  /** @param bounds upper bounds of the buckets, ascending */
  constructor(name: string, help: string, bounds: readonly number[]) {
    this.#head = { name, help };
    this.#bounds = bounds;
  }

  observe(value: number, labels: Labels = {}): void {
    const key = labelText(labels);
    let series = this.#series.get(key);
    if (series === undefined) {
      series = { labels, counts: new Array<number>(this.#bounds.length + 1).fill(0), sum: 0 };
      this.#series.set(key, series);
    }
    const { counts } = series;
    for (let index = 0; index < counts.length; index++) {
      if (value <= (this.#bounds[index] ?? Infinity)) counts[index] = (counts[index] ?? 0) + 1;
    }
    series.sum += value;
  }

  *lines(): Iterable<string> {
    const { name } = this.#head;
    yield* header(this.#head, 'histogram');
    for (const [key, { labels, counts, sum }] of this.#series) {
      for (const [index, count] of counts.entries()) {
        yield `${name}_bucket${labelText({ ...labels, le: this.#bounds[index] ?? '+Inf' })} ${count}`;
      }
      yield `${name}_sum${key} ${sum}`;
      yield `${name}_count${key} ${counts.at(-1) ?? 0}`;
    }
  }
}

export function expositionOf(metrics: Iterable<Metric>): string {
  const lines: string[] = [];
  for (const metric of metrics) lines.push(...metric.lines());
  return `${lines.join('\n')}\n`;
}

function header({ name, help }: Described, type: string): readonly string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(String(value))}"`);
  return parts.length === 0 ? '' : `{${parts.join(',')}}`;
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
