/** The results as a table, and the problems below it. */
import type { Result } from './run.ts';

function seconds(timeMs: number): string {
  return `${(timeMs / 1000).toFixed(1)} s`;
}

function verdict({ status, passed, skipped }: Result): string {
  const ran = passed.length > 0 ? ` (${passed.join(', ')})` : '';
  if (status === 'skipped') return `skipped ${skipped.join(', ')}${passed.length > 0 ? `; ok${ran}` : ''}`;
  return `${status === 'ok' ? 'ok' : 'FAILED'}${status === 'ok' ? ran : ''}`;
}

/** Cells padded to the longest of their column. */
export function layOut(rows: readonly (readonly string[])[]): string[][] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column])));
}

/** @param missingBrowser why pages were skipped */
export function resultLines(results: readonly Result[], missingBrowser?: string): string[] {
  const rows = results.map((result) => [
    result.project.name,
    result.versions.join(', '),
    seconds(result.installMs),
    seconds(result.runMs),
    verdict(result),
  ]);
  const table = layOut([['project', 'versions', 'install', 'run', 'result'], ...rows]);
  const lines = table.map((row) => row.join('  ').trimEnd());
  if (missingBrowser !== undefined && results.some(({ skipped }) => skipped.length > 0)) {
    lines.push(`skipped: ${missingBrowser}`);
  }
  for (const { project, problem } of results) {
    if (problem !== undefined) lines.push('', `FAILED ${project.name}, ${problem}`);
  }
  return lines;
}
