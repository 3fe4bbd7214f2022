import { IoError } from '@winnow/tensor';

/** Names the items that could not be loaded, with their layer and piece. */
export class NeuronLoadError extends IoError {
  override readonly name: string = 'NeuronLoadError';
  readonly layer: number;
  readonly piece: string;
  /** Ascending. */
  readonly items: readonly number[];

  constructor(
    fields: {
      source: string;
      byteOffset?: number;
      layer: number;
      piece: string;
      itemName: string;
      items: readonly number[];
      message: string;
    },
    options?: { cause?: unknown },
  ) {
    const { layer, piece, itemName, items } = fields;
    const plural = items.length === 1 ? '' : 's';
    super(
      {
        ...fields,
        message: `layer ${layer}, ${itemName}${plural} ${formatItems(items)} (${piece}): ${fields.message}`,
      },
      options,
    );
    this.layer = layer;
    this.piece = piece;
    this.items = items;
  }

  static override isInstance(value: unknown): value is NeuronLoadError {
    return IoError.isInstance(value) && 'layer' in value && 'items' in value;
  }
}

/** Maximum number of ranges in a message. */
const maxRanges = 8;

/** `3, 8 to 11` for ascending numbers. */
function formatItems(items: readonly number[]): string {
  const ranges: string[] = [];
  for (let begin = 0; begin < items.length;) {
    let end = begin;
    while (end + 1 < items.length && items[end + 1] === items[end] + 1) end++;
    if (ranges.length === maxRanges) return `${ranges.join(', ')} and ${items.length - begin} more`;
    ranges.push(begin === end ? String(items[begin]) : `${items[begin]} to ${items[end]}`);
    begin = end + 1;
  }
  return ranges.join(', ');
}
