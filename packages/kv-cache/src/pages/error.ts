import { IoError } from '@winnow/tensor';

/** Pages that could not be read, and the positions that are missing without them. */
export class PageError extends IoError {
  override readonly name: string = 'PageError';
  readonly pageIds: readonly number[];
  readonly positions: readonly number[];

  constructor(
    fields: {
      source: string;
      byteOffset?: number;
      pageIds: readonly number[];
      positions: readonly number[];
      message: string;
    },
    options?: { cause?: unknown },
  ) {
    const { pageIds, positions } = fields;
    const pages = `page${pageIds.length === 1 ? '' : 's'} ${pageIds.join(', ')}`;
    super({ ...fields, message: `${pages} (positions ${formatRanges(positions)}): ${fields.message}` }, options);
    this.pageIds = pageIds;
    this.positions = positions;
  }

  static override isInstance(value: unknown): value is PageError {
    return IoError.isInstance(value) && 'pageIds' in value && 'positions' in value;
  }
}

/** `3, 8 to 11` for sorted numbers. */
function formatRanges(positions: readonly number[]): string {
  const sorted = [...positions].sort((a, b) => a - b);
  const ranges: string[] = [];
  for (let begin = 0; begin < sorted.length;) {
    let end = begin;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end++;
    ranges.push(begin === end ? String(sorted[begin]) : `${sorted[begin]} to ${sorted[end]}`);
    begin = end + 1;
  }
  return ranges.length === 0 ? 'unknown' : ranges.join(', ');
}
