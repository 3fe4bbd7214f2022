/** Formats numbers and tables. */

const units = ['B', 'kB', 'MB', 'GB', 'TB'];

/** `5.96 MB`: powers of 1000, three significant digits. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${units[unit]}`;
}

/** `12.3%` of a share from 0 to 1. */
export function formatPercent(share: number, digits = 1): string {
  return `${(100 * share).toFixed(digits)}%`;
}

/** Pads columns to their widest cell, except the last column. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    });
  }
  const lines = rows.map((row) =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join('  '),
  );
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

/** JSON on one line; 64-bit integers become numbers where these are exact, else strings. */
export function formatJson(value: unknown): string {
  const text = JSON.stringify(value, (_key, entry: unknown) => {
    if (typeof entry === 'bigint') return Number.isSafeInteger(Number(entry)) ? Number(entry) : String(entry);
    if (ArrayBuffer.isView(entry) && !(entry instanceof DataView))
      return Array.from(entry as unknown as ArrayLike<number>);
    return entry;
  });
  return `${text}\n`;
}
