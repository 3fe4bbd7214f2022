/** Formats a sidecar: a table with a bar for each layer. */
import {
  maxRatioOf,
  classifyNeurons,
  runsDense,
  type MaxActiveRatio,
  type LayerReport,
  type Sidecar,
  type SparseLayer,
} from '@winnow/sparse-inference';
import { formatBytes, formatPercent, formatTable } from './format.js';

const barWidth = 24;

/** Unweighted means over the layers as they run; bytes are sums. Dense layers skip nothing. */
export interface SparseSummary extends Omit<LayerReport, 'numTokens'> {
  /** Share of skipped neurons. */
  readonly skippedRatio: number;
  /** The same if no layer ran dense. */
  readonly predictedSkippedRatio: number;
  /** Minimum recall over layers. */
  readonly leastRecall: number;
  readonly numDenseLayers: number;
}

/** The report of a layer that runs dense, regardless of its predictor. */
function denseReport(report: LayerReport): LayerReport {
  const { trueRatio, denseBytes } = report;
  const all = { activeRatio: 1, inputRatio: 1, recall: 1, energy: 1, cosine: 1 };
  return { ...report, ...all, precision: trueRatio, sparseBytes: denseBytes };
}

/**
 * @param measured one report per layer
 * @param maxRatio share of active neurons above which layers run dense
 */
export function summarize(
  layers: readonly SparseLayer[],
  measured: readonly LayerReport[],
  maxRatio: MaxActiveRatio,
): SparseSummary {
  const isDense = layers.map((layer) => runsDense(layer, maxRatio));
  const reports = measured.map((report, index) => (isDense[index] === true ? denseReport(report) : report));
  const mean = (pick: (report: LayerReport) => number, of: readonly LayerReport[] = reports): number =>
    of.reduce((sum, report) => sum + pick(report), 0) / Math.max(1, of.length);
  return {
    skippedRatio: 1 - mean(({ activeRatio }) => activeRatio),
    predictedSkippedRatio: 1 - mean(({ activeRatio }) => activeRatio, measured),
    leastRecall: Math.min(1, ...reports.map(({ recall }) => recall)),
    numDenseLayers: isDense.filter(Boolean).length,
    trueRatio: mean(({ trueRatio }) => trueRatio),
    activeRatio: mean(({ activeRatio }) => activeRatio),
    inputRatio: mean(({ inputRatio }) => inputRatio),
    recall: mean(({ recall }) => recall),
    precision: mean(({ precision }) => precision),
    energy: mean(({ energy }) => energy),
    cosine: mean(({ cosine }) => cosine),
    denseBytes: reports.reduce((sum, { denseBytes }) => sum + denseBytes, 0),
    sparseBytes: reports.reduce((sum, { sparseBytes }) => sum + sparseBytes, 0),
  };
}

/**
 * One line per layer with the figures of its predictor; the bar is the share of active neurons. Layers marked dense
 * compute all.
 */
export function formatReports(
  layers: readonly SparseLayer[],
  reports: readonly LayerReport[],
  maxRatio: MaxActiveRatio,
): string {
  const hasInputs = reports.some(({ inputRatio }) => inputRatio < 1);
  const isDense = layers.map((layer) => runsDense(layer, maxRatio));
  const head = ['layer', 'predictor', 'needed', 'active', ...(hasInputs ? ['inputs'] : [])];
  const rows = reports.map((report, index) => {
    const { layer, predictor } = layers[index] as SparseLayer;
    return [
      String(layer),
      'rank' in predictor ? `${predictor.kind} ${predictor.rank}` : predictor.kind,
      formatPercent(report.trueRatio),
      formatPercent(report.activeRatio),
      ...(hasInputs ? [formatPercent(report.inputRatio)] : []),
      formatPercent(report.recall),
      formatPercent(report.precision),
      report.cosine.toFixed(4),
      formatPercent(report.sparseBytes / Math.max(1, report.denseBytes)),
      isDense[index] === true ? 'dense' : 'sparse',
      bar(report.activeRatio),
    ];
  });
  const table = formatTable([[...head, 'recall', 'precision', 'cosine', 'bytes', 'runs', 'active neurons'], ...rows]);
  const limits = layers.filter((_, index) => isDense[index]).map((layer) => maxRatioOf(layer, maxRatio));
  if (limits.length === 0) return table;
  const shares = [...new Set([Math.min(...limits), Math.max(...limits)].map((share) => formatPercent(share)))].join(
    ' to ',
  );
  const rule = `more than ${shares} of their neurons are active (--sparsity-max-active)`;
  return `${table}${limits.length} of ${layers.length} layers run dense, with all neurons: ${rule}\n`;
}

/** The target figures of the layers as they run. */
export function formatSummary(summary: SparseSummary): string {
  const { skippedRatio, predictedSkippedRatio, numDenseLayers } = summary;
  const { recall, precision, cosine, energy, denseBytes, sparseBytes } = summary;
  const share = formatPercent(sparseBytes / Math.max(1, denseBytes));
  const predicted = numDenseLayers === 0 ? '' : `; ${formatPercent(predictedSkippedRatio)} if no layer ran dense`;
  return formatTable([
    ['neurons skipped', `${formatPercent(skippedRatio)}${predicted}`],
    ['recall', formatPercent(recall)],
    ['precision', formatPercent(precision)],
    ['energy of computed neurons', formatPercent(energy)],
    ['FFN output, cosine to dense', cosine.toFixed(4)],
    ['FFN bytes per token', `${formatBytes(Math.round(sparseBytes))} of ${formatBytes(denseBytes)} (${share})`],
  ]);
}

/** The complete contents of the file. */
export function describeSidecar(name: string, sidecar: Sidecar, maxRatio: MaxActiveRatio): string {
  const { config, layers, modelHash } = sidecar;
  const reports = layers.map(({ report }) => report);
  const target =
    'recall' in config.target
      ? `recall ${formatPercent(config.target.recall)}`
      : `${formatPercent(config.target.sparsity)} skipped`;
  const head = formatTable([
    ['name', name],
    ['model', modelHash],
    ['target', target],
    ['text', `${config.numTokens} tokens in ${config.numSamples} samples, seed ${config.seed}`],
    ['needed neurons', `those that carry ${formatPercent(config.energyShare)} of the output energy`],
  ]);
  const classes = layers.map(({ layer, frequencies }) => {
    const { hot, warm, cold } = classifyNeurons(frequencies);
    return [String(layer), String(hot.length), String(warm.length), String(cold.length), split(hot, warm, cold)];
  });
  return [
    section('calibration', head),
    section('layers', formatReports(layers, reports, maxRatio)),
    section('means', formatSummary(summarize(layers, reports, maxRatio))),
    section(
      'neurons by activation frequency: half of the activity, the rest, the rarest 5%',
      formatTable([['layer', 'hot', 'warm', 'cold', ''], ...classes]),
    ),
  ].join('\n');
}

function section(title: string, body: string): string {
  return `${title}\n${body.replaceAll(/^/gm, '  ').trimEnd()}\n`;
}

/** `█████▌`, 24 characters at full width. */
function bar(share: number): string {
  const eighths = Math.round(share * barWidth * 8);
  const partial = ' ▏▎▍▌▋▊▉'.charAt(eighths % 8).trim();
  return `${'█'.repeat(eighths >> 3)}${partial}`.padEnd(barWidth, '·');
}

function split(...classes: readonly Int32Array[]): string {
  const total = classes.reduce((sum, { length }) => sum + length, 0);
  const marks = ['█', '▒', '·'];
  const ends = classes.map((_, i) =>
    Math.round((barWidth * classes.slice(0, i + 1).reduce((sum, { length }) => sum + length, 0)) / Math.max(1, total)),
  );
  return ends.map((end, i) => (marks[i] ?? '').repeat(end - (ends[i - 1] ?? 0))).join('');
}
