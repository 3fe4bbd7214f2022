/** Plots of an evaluation as SVG, drawn by ECharts without a DOM (docs/decisions/0009). */
import type { Phase } from '../configuration.js';
import type { ConfigurationReport, EvaluationReport } from '../suite/evaluate.js';
import { axisOf, draw, titleOf, type PlotOptions } from './chart.js';

/** Mean KL divergence against density, a line per policy and phase. Undefined without data. */
export function drawQuality(report: EvaluationReport, options: PlotOptions = {}): string | undefined {
  const policies = new Map<string, [density: number, divergence: number][]>();
  for (const configuration of report.configurations) {
    for (const phase of ['prefill', 'decode'] as const) {
      const divergence = configuration.logits[phase]?.divergence.mean;
      const density = configuration.density[phase];
      if (divergence === undefined || density === undefined || density >= 1 || divergence <= 0) continue;
      const name = `${kindOf(configuration)}, ${phase}`;
      policies.set(name, [...(policies.get(name) ?? []), [density, divergence]]);
    }
  }
  if (policies.size === 0) return undefined;
  const series = [...policies].map(([name, points]) => ({
    name,
    type: 'line',
    symbol: name.endsWith('decode') ? 'circle' : 'diamond',
    symbolSize: 8,
    lineStyle: { type: name.endsWith('decode') ? 'solid' : 'dashed' },
    data: points.toSorted(([a], [b]) => a - b),
  }));
  return draw(
    {
      title: titleOf(`${report.model}: divergence from dense against density, ${report.numTokens} tokens`),
      xAxis: axisOf('log', 'density (visited / dense pairs)'),
      yAxis: axisOf('log', 'mean KLD'),
      series,
    },
    options,
  );
}

/** Milliseconds per token against context length, a line per configuration. Undefined when speed was not measured. */
export function drawTime(report: EvaluationReport, phase: Phase, options: PlotOptions = {}): string | undefined {
  const series = report.configurations
    .filter(({ speed }) => speed.length > 0)
    .map(({ label, speed }) => ({
      name: label,
      type: 'line',
      symbolSize: 6,
      data: speed.map((point) => {
        const perSecond = phase === 'prefill' ? point.promptTokensPerSecond : point.tokensPerSecond;
        return [point.length, perSecond === 0 ? null : 1000 / perSecond];
      }),
    }));
  if (series.length === 0) return undefined;
  const what = phase === 'prefill' ? 'prompt' : 'answer';
  return draw(
    {
      title: titleOf(`${report.model}: time per token of the ${what} against context length`),
      xAxis: axisOf('log', 'context length in tokens'),
      yAxis: axisOf('value', 'ms per token'),
      series,
    },
    options,
  );
}

function kindOf({ label }: ConfigurationReport): string {
  return label.split(/[:,]/, 1)[0] ?? label;
}
