/** Results as one HTML file: a table per suite and plots as SVG, without scripts or external resources. */
import { drawBars, drawLines, type PlotData } from '../harness/plots.js';
import type { Figure } from '../harness/figure.js';
import { short } from '../harness/report.js';
import type { Results, Run } from './results.js';

/** Maximum number of bars per plot; more would be illegible. */
const maxBars = 60;

const style = `
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; } td, th { padding: 0.15rem 0.6rem; text-align: left; border-bottom: 1px solid #eee; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } code { background: #f5f5f5; padding: 0.1rem 0.3rem; }
svg { max-width: 100%; height: auto; } .noisy { color: #b00; }`;

/** @param results as read from the JSON next to the page */
export async function reportPage(results: Results): Promise<string> {
  const runs: string[] = [];
  for (const run of results.runs) runs.push(await runSection(run));
  return [
    '<!doctype html>',
    '<html lang="en">',
    '<head><meta charset="utf-8"><title>Winnow bench</title><link rel="icon" href="data:,">',
    `<style>${style}</style></head>`,
    '<body>',
    '<h1>Winnow bench</h1>',
    '<p>Ratios are of contenders that took turns in one run; absolute figures belong to this machine and hour.',
    'Figures as measured are in <a href="report.json">report.json</a>.</p>',
    ...runs,
    '</body>',
    '</html>',
    '',
  ].join('\n');
}

async function runSection({ command, environment, figures, plots = [] }: Run): Promise<string> {
  const { cpu, cores, memoryGiB, system, node, commit, backend, cpuFlags, date, loadAverage, busyCores } = environment;
  const rows: (readonly [string, string])[] = [
    ['machine', `${cpu}, ${cores} cores, ${memoryGiB} GiB`],
    ['instruction sets', cpuFlags.join(' ')],
    ['system', `${system}, Node ${node}`],
    ['commit', `${commit}, backend ${backend}`],
    ...(date === undefined ? [] : [['date', date] as const]),
    ['load before', `${loadAverage} on average, ${busyCores} cores busy`],
  ];
  const parts = [
    `<p><code>${escapeHtml(command)}</code></p>`,
    ...(environment.isNoisy ? ['<p class="noisy">Others used the machine: these figures are not evidence.</p>'] : []),
    `<table class="environment">${rows.map(([name, text]) => `<tr><th>${name}</th><td>${escapeHtml(text)}</td></tr>`).join('\n')}</table>`,
  ];
  for (const suite of new Set(figures.map((figure) => figure.suite))) {
    parts.push(`<h2>${escapeHtml(suite)}</h2>`);
    const own = figures.filter((figure) => figure.suite === suite);
    parts.push(figureTable(own), ...(await barPlots(suite, own)));
  }
  if (plots.length > 0) parts.push('<h2>Plots</h2>');
  for (const plot of plots) if (hasLine(plot)) parts.push(await drawLines(plot));
  return parts.join('\n');
}

/** Cells carry the exact values as attributes for tests. */
function figureTable(figures: readonly Figure[]): string {
  const number = (value: number | null): string =>
    `<td class="n" data-value="${value}">${short(value ?? Number.NaN)}</td>`;
  const rows = figures.map(({ suite, case: name, value, best, unit, ratio, ratioOf }) => {
    const cells = [
      `<td>${escapeHtml(name)}</td>${number(value)}${number(best)}<td>${escapeHtml(unit)}</td>`,
      `${number(ratio)}<td>${escapeHtml(ratioOf)}</td>`,
    ];
    return `<tr data-suite="${escapeHtml(suite)}">${cells.join('')}</tr>`;
  });
  const head =
    '<tr><th>case</th><th class="n">median</th><th class="n">best</th><th>unit</th><th class="n">ratio</th><th>of</th></tr>';
  return `<table class="figures">${head}\n${rows.join('\n')}</table>`;
}

/** A plot per unit with at least two bars. */
async function barPlots(suite: string, figures: readonly Figure[]): Promise<string[]> {
  const plots: string[] = [];
  for (const unit of new Set(figures.map((figure) => figure.unit))) {
    const bars = new Map<string, number>();
    // a case with several comparisons is one bar
    for (const figure of figures)
      if (figure.unit === unit && figure.value !== null) bars.set(figure.case, figure.value);
    if (bars.size > 1) plots.push(await drawBars(`${suite}: ${unit}`, unit, [...bars].slice(0, maxBars)));
  }
  return plots;
}

function hasLine({ lines }: PlotData): boolean {
  return lines.some(({ points }) => points.length > 1);
}

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
