/** What the model does while it answers: asked once a second as long as the view is open. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { errorText, type ChatBackend } from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import {
  activityOf,
  bytes,
  parseMetrics,
  type Activity,
  type Bar,
  type LayerShares,
  type Sample,
} from '../state/metrics.js';

interface LiveViewProps {
  readonly chat: Chat;
  readonly backend: ChatBackend;
}

const pollMs = 1000;

export function LiveView({ chat, backend }: LiveViewProps): JSX.Element {
  const activity = useSignal<Activity | undefined>(undefined);
  const problem = useSignal('');
  const model = chat.model()?.id ?? '';
  useEffect(() => {
    const controller = new AbortController();
    let before: readonly Sample[] = [];
    const poll = async (): Promise<void> => {
      try {
        const samples = parseMetrics(await backend.metrics(controller.signal));
        activity.value = activityOf(samples, model, before);
        before = samples;
        problem.value = '';
      } catch (error) {
        if (!controller.signal.aborted) problem.value = errorText(error);
      }
      if (!controller.signal.aborted) timer = setTimeout(() => void poll(), pollMs);
    };
    let timer = setTimeout(() => void poll());
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [backend, model]);
  return (
    <aside class="live" aria-label="What the model does" tabIndex={0}>
      <h2>What {model === '' ? 'the model' : model} does</h2>
      {problem.value !== '' && <p class="problem">{problem.value}</p>}
      {activity.value && <Measured activity={activity.value} />}
    </aside>
  );
}

function Measured({ activity }: { readonly activity: Activity }): JSX.Element {
  const { facts, visitedKeys, cacheBlocks, cacheTiers, cachePages, weightTiers, activeRatios, memory } = activity;
  return (
    <>
      <dl>
        {facts.map(({ label, value }) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <Shares layers={visitedKeys} />
      <Bars title="KV cache: blocks" bars={cacheBlocks} format={String} />
      <Bars title="KV cache: tiers" bars={cacheTiers} format={bytes} />
      <Bars title="KV cache: pages outside the pool" bars={cachePages} format={integer} />
      <Bars title="Weights: tiers" bars={weightTiers} format={bytes} />
      <Bars title="Active neurons by layer" bars={activeRatios} format={percent} max={1} />
      <Bars title="Planned memory" bars={memory} format={bytes} />
    </>
  );
}

/** Shares from which the next color is used. */
const levels = [0.1, 0.25, 0.5];

/** A row per layer; the heads of a KV head visit equally many keys. */
function Shares({ layers }: { readonly layers: readonly LayerShares[] }): JSX.Element | null {
  if (layers.length === 0) return null;
  const numHeads = Math.max(...layers.map(({ shares }) => shares.length));
  return (
    <table class="shares">
      <caption>Visited keys by layer{numHeads > 1 && ' and KV head'}</caption>
      <thead>
        <tr>
          <th scope="col">Layer</th>
          {Array.from({ length: numHeads }, (_, head) => (
            <th key={head} scope="col">
              {numHeads === 1 ? 'All heads' : head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {layers.map(({ layer, shares }) => (
          <tr key={layer}>
            <th scope="row">{layer}</th>
            {shares.map((share, head) => (
              <td
                key={head}
                class={`level-${1 + levels.filter((bound) => share >= bound).length}`}
                colSpan={shares.length === 1 ? numHeads : 1}
              >
                {percent(share)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface BarsProps {
  readonly title: string;
  readonly bars: readonly Bar[];
  readonly format: (value: number) => string;
  /** Default: their sum. */
  readonly max?: number;
}

function Bars({ title, bars, format, max }: BarsProps): JSX.Element | null {
  if (bars.length === 0) return null;
  const total = max ?? bars.reduce((sum, { value }) => sum + value, 0);
  return (
    <table>
      <caption>{title}</caption>
      <tbody>
        {bars.map(({ label, value }) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            <td>
              <meter aria-label={`${title}: ${label}`} value={value} max={Math.max(total, Number.MIN_VALUE)} />
            </td>
            <td>{format(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function integer(value: number): string {
  return value.toLocaleString('en');
}

function percent(ratio: number): string {
  return `${(100 * ratio).toFixed(0)} %`;
}
