/** Tables and figures of reports. */
import type { Estimate } from '../logits/statistics.js';

export type Row = readonly string[];

export function shown(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? '-' : format(value);
}

export function percent(value: number): string {
  return `${(100 * value).toFixed(1)}%`;
}

export function plusMinus({ mean, error }: Estimate, digits: number): string {
  return `${mean.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

/** Three significant digits; small numbers with an exponent. */
export function small(value: number): string {
  if (value === 0) return '0';
  return Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toPrecision(3);
}

/** Pads columns to their widest cell. */
export function alignTable(rows: readonly Row[]): string {
  const widths: number[] = [];
  for (const row of rows) row.forEach((cell, i) => (widths[i] = Math.max(widths[i] ?? 0, cell.length)));
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, i) => cell.padEnd(widths[i]))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}
