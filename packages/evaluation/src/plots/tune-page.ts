/** A search for policies as one HTML page without scripts: front, layers, uniform policies, tasks. */
import { budgetText, formatTuning } from '../report/tune-text.js';
import type { PolicyPoint, TuneReport } from '../tune/options.js';
import { axisOf, draw, titleOf } from './chart.js';
import { escapeXml } from './escape-xml.js';

/** A complete HTML document; everything it shows is inside. */
export function drawTuning(report: TuneReport): string {
  const { model, policy } = report;
  const title = `${model}: attention policies with a ${budgetText(policy.budget)}`;
  const pictures = (['prefill', 'decode'] as const).map((phase) => drawFront(report, phase));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${escapeXml(title)}</title>
<style>
body { font: 15px sans-serif; margin: 2em auto; max-width: 62em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: 0.25em 0.8em; border-bottom: 1px solid #ddd; text-align: left }
td i { display: inline-block; height: 0.8em; background: #2171b5; vertical-align: middle }
pre { font-size: 12px; overflow-x: auto; background: #f6f6f6; padding: 1em }
</style>
</head>
<body>
<h1>${escapeXml(title)}</h1>
<p>${escapeXml(summary(report))}</p>
<pre>${escapeXml(report.attention)}</pre>
<h2>Time against divergence</h2>
${pictures.join('\n')}
<h2>Policies by layer</h2>
${layerTable(report)}
<h2>All figures</h2>
<pre>${escapeLines(formatTuning(report))}</pre>
</body>
</html>
`;
}

function summary({ policy, speedup }: TuneReport): string {
  const { measured, machine, text } = policy;
  const { prefill, decode, recall, denseRecall } = measured;
  const recalled = recall === undefined ? '' : `, recall ${share(recall)} (dense: ${share(denseRecall ?? 0)})`;
  return (
    `On ${text.heldOut.name}, which the search did not see: mean KLD ${prefill.kld.toFixed(4)} in prefill and ` +
    `${decode.kld.toFixed(4)} in decode, ${speedup.toFixed(2)} times as fast as dense${recalled}. ` +
    `Measured on ${machine.name} (${machine.backend}).`
  );
}

/** Tuned points as a line, uniform policies as dots by kind. */
function drawFront({ front, comparisons }: TuneReport, phase: PolicyPoint['phase']): string {
  const own = front.filter((point) => point.phase === phase && point.kld > 0);
  const kinds = new Map<string, [ms: number, kld: number][]>();
  for (const { uniform } of comparisons) {
    if (uniform.phase !== phase || uniform.kld <= 0) continue;
    const [kind = ''] = uniform.policy.split(':');
    kinds.set(kind, [...(kinds.get(kind) ?? []), [uniform.ms, uniform.kld]]);
  }
  if (own.length + kinds.size === 0) return '';
  const tuned = { name: 'tuned', type: 'line', symbolSize: 8, data: own.map(({ ms, kld }) => [ms, kld]) };
  const dots = { type: 'line', symbol: 'circle', symbolSize: 9, lineStyle: { width: 0 } };
  const uniform = [...kinds].map(([name, data]) => ({ name, ...dots, data }));
  return draw(
    {
      title: titleOf(`${phase}: mean KLD on held-out text against time`),
      xAxis: { ...axisOf('value', phase === 'prefill' ? 'ms per prompt' : 'ms per token'), scale: true },
      yAxis: axisOf('log', 'mean KLD'),
      series: [tuned, ...uniform],
    },
    { width: 900, height: 420 },
  );
}

/** Bars are proportional to the divergence of a layer alone. */
function layerTable({ layers }: TuneReport): string {
  const most = Math.max(...layers.flatMap(({ divergence }) => [divergence.prefill, divergence.decode]), 1e-12);
  const bar = (kld: number): string =>
    `<i style="width: ${((6 * kld) / most).toFixed(2)}em"></i> ${kld === 0 ? '0' : kld.toPrecision(2)}`;
  const rows = layers.map(
    ({ layer, prefill, decode, divergence }) =>
      `<tr><td>${layer}</td><td>${escapeXml(prefill)}</td><td>${bar(divergence.prefill)}</td>` +
      `<td>${escapeXml(decode)}</td><td>${bar(divergence.decode)}</td></tr>`,
  );
  const head = '<tr><th>layer</th><th>prefill</th><th>KLD alone</th><th>decode</th><th>KLD alone</th></tr>';
  return `<table>\n${[head, ...rows].join('\n')}\n</table>`;
}

/** Line feeds stay. */
function escapeLines(text: string): string {
  return text.split('\n').map(escapeXml).join('\n');
}

function share(value: number): string {
  return `${(100 * value).toFixed(0)} %`;
}
