/** The table of `--profile`: time per op, and its share of the machine's peak. */
import type { Model } from '@winnow/engine';
import { formatPercent, formatTable } from './format.js';

/** The part of the WebAssembly backend's `MachinePeaks` in use. */
export interface Peaks {
  readonly numThreads: number;
  readonly bytesPerSecond: number;
  readonly f32OpsPerSecond: number;
  readonly int8OpsPerSecond: number;
}

/** An op of the profile over all layers. */
export interface OpProfile {
  readonly op: string;
  readonly numRuns: number;
  readonly timeMs: number;
  /** Share of the total time. */
  readonly share: number;
  readonly gflops: number | null;
  readonly gigabytesPerSecond: number | null;
  /**
   * The larger share of the machine's peak, of memory or of arithmetic; `null` when there is no peak to compare with.
   */
  readonly peakShare: number | null;
  readonly boundBy: 'memory' | 'f32' | 'int8' | null;
}

type Records = ReturnType<Model['profile']>;

interface Sum {
  numRuns: number;
  timeMs: number;
  bytes: number;
  f32Ops: number;
  int8Ops: number;
}

/** Totals per op, longest time first. */
export function profileByOp(records: Records, peaks: Peaks | undefined): readonly OpProfile[] {
  const sums = new Map<string, Sum>();
  for (const { op, numRuns, timeMs, flops, bytes, isInt8 = false } of records) {
    const sum = sums.get(op) ?? { numRuns: 0, timeMs: 0, bytes: 0, f32Ops: 0, int8Ops: 0 };
    sum.numRuns += numRuns;
    sum.timeMs += timeMs;
    sum.bytes += bytes;
    if (isInt8) sum.int8Ops += flops;
    else sum.f32Ops += flops;
    sums.set(op, sum);
  }
  const totalMs = [...sums.values()].reduce((total, { timeMs }) => total + timeMs, 0);
  return [...sums]
    .sort(([, a], [, b]) => b.timeMs - a.timeMs)
    .map(([op, sum]) => ({
      op,
      numRuns: sum.numRuns,
      timeMs: sum.timeMs,
      share: totalMs > 0 ? sum.timeMs / totalMs : 0,
      gflops: perMs(sum.f32Ops + sum.int8Ops, sum.timeMs),
      gigabytesPerSecond: perMs(sum.bytes, sum.timeMs),
      ...shareOfPeak(sum, peaks),
    }));
}

/** Roofline time divided by measured time. */
function shareOfPeak(
  { timeMs, bytes, f32Ops, int8Ops }: Sum,
  peaks: Peaks | undefined,
): Pick<OpProfile, 'peakShare' | 'boundBy'> {
  if (peaks === undefined || timeMs <= 0) return { peakShare: null, boundBy: null };
  const seconds = timeMs / 1000;
  const memory = bytes / peaks.bytesPerSecond / seconds;
  const arithmetic = (f32Ops / peaks.f32OpsPerSecond + int8Ops / peaks.int8OpsPerSecond) / seconds;
  if (memory >= arithmetic) return { peakShare: memory, boundBy: 'memory' };
  return { peakShare: arithmetic, boundBy: int8Ops > f32Ops ? 'int8' : 'f32' };
}

export function profileTable(records: Records, peaks: Peaks | undefined): string {
  const rows = profileByOp(records, peaks).map(
    ({ op, numRuns, timeMs, share, gflops, gigabytesPerSecond, peakShare, boundBy }) => [
      op,
      `${numRuns}`,
      timeMs.toFixed(1),
      formatPercent(share),
      gflops?.toFixed(2) ?? '-',
      gigabytesPerSecond?.toFixed(2) ?? '-',
      peakShare === null ? '-' : `${formatPercent(peakShare)} ${boundBy}`,
    ],
  );
  const table = formatTable([['op', 'runs', 'ms', 'share', 'GFLOP/s', 'GB/s', 'of peak'], ...rows]);
  return peaks === undefined ? table : `${table}${peaksLine(peaks)}\n`;
}

function peaksLine({ numThreads, bytesPerSecond, f32OpsPerSecond, int8OpsPerSecond }: Peaks): string {
  const giga = (value: number): string => (value / 1e9).toFixed(1);
  const rates = `memory ${giga(bytesPerSecond)} GB/s, f32 ${giga(f32OpsPerSecond)} GFLOP/s, int8 ${giga(int8OpsPerSecond)} GOP/s`;
  return `peaks of this machine, ${numThreads} thread${numThreads === 1 ? '' : 's'}: ${rates}`;
}

function perMs(amount: number, timeMs: number): number | null {
  return timeMs > 0 ? amount / timeMs / 1e6 : null;
}
