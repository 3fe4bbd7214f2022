/** What the model does while it answers: asked once a second as long as the view is open. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { errorText, type ChatBackend } from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import { activityOf, bytes, parseMetrics, type Activity, type Bar } from '../state/metrics.js';

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
    const poll = async (): Promise<void> => {
      try {
        activity.value = activityOf(parseMetrics(await backend.metrics(controller.signal)), model);
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
  const { facts, cacheBlocks, cacheTiers, weightTiers, activeRatios, memory } = activity;
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
      <Bars title="KV cache: blocks" bars={cacheBlocks} format={String} />
      <Bars title="KV cache: tiers" bars={cacheTiers} format={bytes} />
      <Bars title="Weights: tiers" bars={weightTiers} format={bytes} />
      <Bars title="Active neurons by layer" bars={activeRatios} format={percent} max={1} />
      <Bars title="Planned memory" bars={memory} format={bytes} />
    </>
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

function percent(ratio: number): string {
  return `${(100 * ratio).toFixed(0)} %`;
}
