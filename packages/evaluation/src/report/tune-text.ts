/** Formats a search for policies as text tables. */
import type { PolicyBudget } from '@winnow/sparse-attention';
import { divergenceClass } from '../logits/divergence.js';
import type { PolicyPoint, TuneReport, UniformComparison } from '../tune/options.js';
import { alignTable, percent, plusMinus, shown, small, type Row } from './table.js';

const phases = ['prefill', 'decode'] as const;

/** The budget in words. */
export function budgetText(budget: PolicyBudget): string {
  if ('kld' in budget) return `mean KLD of at most ${budget.kld}`;
  if ('recall' in budget) return `recall of at least ${percent(budget.recall)} of dense`;
  return `at least ${budget.speedup} times as fast as dense`;
}

/** The result on held-out text, the choice of each layer, the front of time and divergence, uniform policies, tasks. */
export function formatTuning(report: TuneReport): string {
  const { model, policy, costs } = report;
  const { machine, contextSize, seed, budget, text } = policy;
  const about =
    `${model} on ${machine.backend}, ${machine.name}, context ${contextSize}, seed ${seed}, costs: ${costs}\n` +
    `searched on ${text.search.name} (${text.search.numTokens} tokens), ` +
    `checked on ${text.heldOut.name} (${text.heldOut.numTokens} tokens)\n` +
    `budget: ${budgetText(budget)}\n`;
  const sections = [about, resultSection(report), layerSection(report)];
  for (const phase of phases) sections.push(frontSection(report, phase), uniformSection(report, phase));
  sections.push(taskSection(report), `${report.attention}\n`);
  return sections.filter((section) => section !== '').join('\n');
}

function resultSection({ policy: { measured }, speedup }: TuneReport): string {
  const rows = phases.map((phase): Row => {
    const { kld, kldError, density, ms, denseMs } = measured[phase];
    return [
      phase,
      plusMinus({ mean: kld, error: kldError }, 5),
      divergenceClass(kld),
      shown(density, percent),
      `${ms.toFixed(2)} / ${denseMs.toFixed(2)}`,
      (denseMs / ms).toFixed(2),
    ];
  });
  const head = 'phase|mean KLD|class|pairs|ms tuned / dense|times as fast';
  const total = `A prompt and its answer: ${speedup.toFixed(2)} times as fast as dense\n`;
  return `Both phases together, on held-out text\n${alignTable([head.split('|'), ...rows])}${total}`;
}

function layerSection({ layers }: TuneReport): string {
  const rows = layers.map(({ layer, prefill, decode, divergence }): Row => [
    String(layer),
    prefill,
    small(divergence.prefill),
    decode,
    small(divergence.decode),
  ]);
  const head = ['layer', 'prefill', 'KLD alone', 'decode', 'KLD alone'];
  return `Policies by layer, with the divergence of each alone\n${alignTable([head, ...rows])}`;
}

function frontSection({ front }: TuneReport, phase: PolicyPoint['phase']): string {
  const points = front.filter((point) => point.phase === phase);
  const densest = points[0]?.ms ?? 0;
  const rows = points.map(({ kld, kldError, density, ms }): Row => [
    `${small(kld)} ± ${small(kldError)}`,
    divergenceClass(kld),
    shown(density, percent),
    ms.toFixed(2),
    percent(ms / densest),
  ]);
  if (rows.length === 0) return '';
  const head = ['mean KLD', 'class', 'pairs', 'ms', 'of dense'];
  return `Front of time against divergence, ${phase}, held-out text\n${alignTable([head, ...rows])}`;
}

function uniformSection({ comparisons }: TuneReport, phase: PolicyPoint['phase']): string {
  const own = comparisons.filter(({ uniform }) => uniform.phase === phase);
  if (own.length === 0) return '';
  const rows = own.map(({ uniform, tuned, isFaster, hasFewerPairs }): Row => [
    uniform.policy,
    small(uniform.kld),
    shown(uniform.density, percent),
    uniform.ms.toFixed(2),
    small(tuned.kld),
    shown(tuned.density, percent),
    tuned.ms.toFixed(2),
    tuned.policy === uniform.policy
      ? 'THE SAME'
      : [isFaster ? 'faster' : 'SLOWER', ...comparedPairs(hasFewerPairs)].join(', '),
  ]);
  const head = ['policy of all layers', 'KLD', 'pairs', 'ms', 'tuned: KLD', 'pairs', 'ms', ''];
  const title = `Tuned at the divergence of uniform policies, ${phase}, held-out text`;
  return `${title}\n${alignTable([head, ...rows])}${beatenText(own)}`;
}

function comparedPairs(hasFewerPairs: boolean | undefined): string[] {
  return hasFewerPairs === undefined ? [] : [hasFewerPairs ? 'fewer pairs' : 'MORE PAIRS'];
}

/** How many uniform policies the tuned ones beat. */
function beatenText(comparisons: readonly UniformComparison[]): string {
  const counted = comparisons.filter(({ hasFewerPairs }) => hasFewerPairs !== undefined);
  const numFaster = comparisons.filter(({ isFaster }) => isFaster).length;
  const numSparser = counted.filter(({ hasFewerPairs }) => hasFewerPairs).length;
  return `faster than ${numFaster} of ${comparisons.length}, fewer pairs than ${numSparser} of ${counted.length}\n`;
}

function taskSection({ tasks, denseTasks }: TuneReport): string {
  if (tasks.length === 0) return '';
  const rows = tasks.map(({ task, length, scores }, index): Row => {
    const cells = (values: readonly number[]): string => values.map((value) => (100 * value).toFixed(0)).join('/');
    return [task, String(length), cells(scores), cells(denseTasks[index]?.scores ?? [])];
  });
  const head = ['task', 'length', 'tuned', 'dense'];
  return `Recall tasks, %: first/second/third question on the same cache\n${alignTable([head, ...rows])}`;
}
