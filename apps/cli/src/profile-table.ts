/** What `--profile` prints: time by op. */
import type { Model } from '@winnow/engine';
import { formatTable } from './format.js';

interface Sum {
  numRuns: number;
  timeMs: number;
  flops: number;
  bytes: number;
}

export function profileTable(records: ReturnType<Model['profile']>): string {
  const sums = new Map<string, Sum>();
  for (const { op, numRuns, timeMs, flops, bytes } of records) {
    const sum = sums.get(op) ?? { numRuns: 0, timeMs: 0, flops: 0, bytes: 0 };
    sums.set(op, {
      numRuns: sum.numRuns + numRuns,
      timeMs: sum.timeMs + timeMs,
      flops: sum.flops + flops,
      bytes: sum.bytes + bytes,
    });
  }
  const totalMs = [...sums.values()].reduce((total, { timeMs }) => total + timeMs, 0);
  const rows = [...sums]
    .sort(([, a], [, b]) => b.timeMs - a.timeMs)
    .map(([op, { numRuns, timeMs, flops, bytes }]) => [
      op,
      `${numRuns}`,
      timeMs.toFixed(1),
      `${totalMs > 0 ? ((timeMs * 100) / totalMs).toFixed(1) : '0.0'}%`,
      perMs(flops, timeMs),
      perMs(bytes, timeMs),
    ]);
  return formatTable([['op', 'runs', 'ms', 'share', 'GFLOP/s', 'GB/s'], ...rows]);
}

function perMs(amount: number, timeMs: number): string {
  return timeMs > 0 ? (amount / timeMs / 1e6).toFixed(2) : '-';
}
