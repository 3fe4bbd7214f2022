/** The part of `--profile` about sparse and offloaded FFNs: a line per layer, and the overlap. */
import type { FeedForwardMetrics } from '@winnow/engine';
import { formatBytes, formatPercent, formatTable } from './format.js';

const ms = (value: number | undefined): string => (value === undefined ? '-' : value.toFixed(1));

export function feedForwardTable(metrics: FeedForwardMetrics | undefined): string {
  if (metrics === undefined) return '';
  const { layers, cache, waitedMs = 0, readMs = 0 } = metrics;
  const rows = layers.map(({ layer, numSteps, activeRatio, numBatches, batchActiveRatio, profile, tiers }) => [
    String(layer),
    numSteps === 0 ? '-' : formatPercent(activeRatio),
    numBatches === 0 ? '-' : formatPercent(batchActiveRatio),
    ms(profile?.layerMs),
    ms(profile?.predictorMs),
    ...(tiers === undefined ? [] : [String(tiers.hits), String(tiers.misses), ms(tiers.waitedMs)]),
  ]);
  const head = ['layer', 'active', 'in batches', 'ms', 'predictor ms'];
  const table = formatTable([[...head, ...(cache === undefined ? [] : ['hits', 'misses', 'stall ms'])], ...rows]);
  if (cache === undefined) return `\n${table}`;
  const { numReads, bytesRead, hits, requests, prefetchHits } = cache;
  const overlap = readMs > 0 ? Math.max(0, 1 - waitedMs / readMs) : 0;
  const shares = `${formatPercent(requests > 0 ? hits / requests : 0)} cache hits, of which ${prefetchHits} prefetched`;
  const overlapped = `${formatPercent(overlap)} of it overlapped with computation`;
  const reads = `${numReads} reads of ${formatBytes(bytesRead)} in ${ms(readMs)} ms, ${overlapped}`;
  return `\n${table}${shares}\n${reads}\n`;
}
