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

const magnitudes = ['', ' thousand', ' million', ' billion', ' trillion'];

/** `1.1 billion`: three significant digits. */
export function formatCount(count: number): string {
  let value = count;
  let magnitude = 0;
  while (value >= 999.5 && magnitude < magnitudes.length - 1) {
    value /= 1000;
    magnitude += 1;
  }
  return `${magnitude === 0 ? value : Number(value.toPrecision(3))}${magnitudes[magnitude]}`;
}

/** `131,072`: groups of three digits from five digits on. */
export function formatInteger(value: number): string {
  return value < 10_000 ? `${value}` : `${value}`.replaceAll(/\B(?=(\d{3})+$)/g, ',');
}

/** Cuts lines that are longer than the terminal is wide. */
export function fitLines(text: string, columns: number): string {
  const fit = (line: string): string => {
    const characters = [...line];
    return characters.length <= columns ? line : `${characters.slice(0, columns - 1).join('')}…`;
  };
  return text.split('\n').map(fit).join('\n');
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

/** The fewest digits that give the same 32-bit float again; 9 always do. */
export function shortestFloat(value: number): string {
  for (let digits = 6; digits < 9; digits++) {
    const rounded = Number(value.toPrecision(digits));
    if (Math.fround(rounded) === value) return `${rounded}`;
  }
  return `${Number(value.toPrecision(9))}`;
}
