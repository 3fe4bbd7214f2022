/** The layout of an item's pieces: in its slot, in the copies of the lower tiers, and in the sources. */
import type { ByteSource } from '@winnow/bytes';
import { ArgumentError, FormatError, sizeOf, type DType } from '@winnow/tensor';
import { pieceCopy, type PieceCopy } from './piece-copy.js';

/** One part of every item of a layer: the row of one matrix for a neuron, the whole matrix for an expert. */
export interface NeuronPiece {
  /** `gate`, `up` or `down`, for messages. */
  readonly name: string;
  readonly dtype: DType;
  /** Values per item. An item takes `sizeOf(dtype, valuesPerItem)` bytes. */
  readonly valuesPerItem: number;
  /** The source of the items: item `i` is at `byteOffset + i * strideBytes`. The cache reads it and leaves it open. */
  readonly source: ByteSource;
  readonly byteOffset: number;
  /** Default: the size of an item. Larger if the pieces of an item are adjacent; they are then read together. */
  readonly strideBytes?: number;
}

/** One layer: its items, its slots and the initial contents of its tiers. */
export interface NeuronLayer {
  readonly numItems: number;
  readonly pieces: readonly NeuronPiece[];
  /** Number of slots of this layer. */
  readonly slots: number;
  /** Items that are loaded at creation and never leave their slots. */
  readonly hot?: ArrayLike<number>;
  /** Capacity of this layer's warm tier in items. Default 0. */
  readonly warmSlots?: number;
  /** Items that are loaded into the warm tier at creation. */
  readonly warm?: ArrayLike<number>;
  /** Share of the tokens for which each item is active, from calibration. Default: all 0; observations follow. */
  readonly frequencies?: ArrayLike<number>;
}

/** Encoding of the warm tier: f32, f16 and bf16 rows in 8 bits, or everything unchanged. */
export type WarmEncoding = 'q8_0' | 'same';

/** The cold tier: the file, or a 4-bit copy in memory, so that the file is not read again. */
export type ColdEncoding = 'file' | 'q4_0';

export interface PieceLayout {
  readonly index: number;
  readonly name: string;
  readonly itemBytes: number;
  readonly warm: PieceCopy;
  readonly cold: PieceCopy;
  /** Where the piece starts in the copy of an item. */
  readonly warmOffset: number;
  readonly coldOffset: number;
}

/** Adjacent pieces in a source: those of item `i` are in `spanBytes` bytes from `byteOffset + i * strideBytes`. */
export interface PieceGroup {
  readonly source: ByteSource;
  readonly byteOffset: number;
  readonly strideBytes: number;
  readonly spanBytes: number;
  readonly pieces: readonly PieceLayout[];
  /** Where each piece starts in the span. */
  readonly offsets: readonly number[];
}

export interface ItemLayout {
  readonly pieces: readonly PieceLayout[];
  readonly groups: readonly PieceGroup[];
  readonly itemBytes: number;
  readonly warmBytes: number;
  readonly coldBytes: number;
}

/** Bytes of one item in a slot, in the warm tier, and in the cold tier's memory (0 if that is the file). */
export interface NeuronItemBytes {
  readonly hotBytes: number;
  readonly warmBytes: number;
  readonly coldBytes: number;
}

/**
 * The size of one item in each tier, an input of `planNeuronTiers`.
 * @throws {ShapeError} when the values of a piece are not whole blocks of its dtype
 */
export function neuronItemBytes(
  pieces: readonly Pick<NeuronPiece, 'dtype' | 'valuesPerItem'>[],
  warmEncoding: WarmEncoding = 'q8_0',
  coldEncoding: ColdEncoding = 'file',
): NeuronItemBytes {
  let hotBytes = 0;
  let warmBytes = 0;
  let coldBytes = 0;
  for (const { dtype, valuesPerItem } of pieces) {
    hotBytes += sizeOf(dtype, valuesPerItem);
    warmBytes += pieceCopy(dtype, valuesPerItem, warmEncoding).sizeBytes;
    if (coldEncoding !== 'file') coldBytes += pieceCopy(dtype, valuesPerItem, coldEncoding).sizeBytes;
  }
  return { hotBytes, warmBytes, coldBytes };
}

/**
 * @throws {FormatError} when a source is too short for the items
 * @throws {ArgumentError} when a stride is shorter than an item, or there are no pieces
 */
export function itemLayout(
  layer: number,
  { numItems, pieces: given }: NeuronLayer,
  warmEncoding: WarmEncoding,
  coldEncoding: ColdEncoding,
): ItemLayout {
  if (given.length === 0) throw badPieces(layer, 'at least one', 'none');
  let itemBytes = 0;
  let warmBytes = 0;
  let coldBytes = 0;
  const pieces = given.map((piece, index): PieceLayout => {
    const { name, dtype, valuesPerItem } = piece;
    const pieceBytes = sizeOf(dtype, valuesPerItem);
    const warm = pieceCopy(dtype, valuesPerItem, warmEncoding);
    const cold = pieceCopy(dtype, valuesPerItem, coldEncoding === 'file' ? 'same' : coldEncoding);
    const layout = {
      index,
      name,
      itemBytes: pieceBytes,
      warm,
      cold,
      warmOffset: warmBytes,
      coldOffset: coldBytes,
    };
    checkPlace(layer, piece, pieceBytes, numItems);
    itemBytes += pieceBytes;
    warmBytes += warm.sizeBytes;
    coldBytes += cold.sizeBytes;
    return layout;
  });
  return { pieces, groups: groupsOf(given, pieces), itemBytes, warmBytes, coldBytes };
}

function checkPlace(layer: number, piece: NeuronPiece, pieceBytes: number, numItems: number): void {
  const { name, source, byteOffset, strideBytes = pieceBytes } = piece;
  if (pieceBytes === 0) throw badPieces(layer, 'pieces with values', `none in ${name}`);
  if (!Number.isSafeInteger(strideBytes) || strideBytes < pieceBytes) {
    throw badPieces(layer, `a stride of at least ${pieceBytes} bytes in ${name}`, String(strideBytes));
  }
  if (!Number.isSafeInteger(byteOffset) || byteOffset < 0) {
    throw badPieces(layer, `a byte offset of ${name} from 0 on`, String(byteOffset));
  }
  const end = numItems === 0 ? byteOffset : byteOffset + (numItems - 1) * strideBytes + pieceBytes;
  if (end > source.sizeBytes) {
    const message = `layer ${layer} ends after the source, expected at most ${source.sizeBytes} bytes, got ${end}`;
    throw new FormatError({ source: source.name, byteOffset, field: name, message });
  }
}

function badPieces(layer: number, expected: string, actual: string): ArgumentError {
  return new ArgumentError({ argument: `layers[${layer}].pieces`, expected, actual });
}

/** Groups pieces whose rows of an item are within one stride of each other. */
function groupsOf(given: readonly NeuronPiece[], pieces: readonly PieceLayout[]): PieceGroup[] {
  const stride = (index: number): number => given[index].strideBytes ?? pieces[index].itemBytes;
  const order = given.map((_, index) => index).sort((a, b) => given[a].byteOffset - given[b].byteOffset);
  const groups: number[][] = [];
  for (const index of order) {
    const { source, byteOffset } = given[index];
    const end = byteOffset + pieces[index].itemBytes;
    const group = groups.find(
      ([first]) =>
        given[first].source === source &&
        stride(first) === stride(index) &&
        end - given[first].byteOffset <= stride(first),
    );
    if (group === undefined) groups.push([index]);
    else group.push(index);
  }
  return groups.map((members): PieceGroup => {
    const [first] = members;
    const { source, byteOffset } = given[first];
    const ends = members.map((index) => given[index].byteOffset + pieces[index].itemBytes - byteOffset);
    return {
      source,
      byteOffset,
      strideBytes: stride(first),
      spanBytes: Math.max(...ends),
      pieces: members.map((index) => pieces[index]),
      offsets: members.map((index) => given[index].byteOffset - byteOffset),
    };
  });
}

/** Limits of reads: as in `NeuronReadOptions`. */
export interface ReadLimits {
  readonly readBytes: number;
  readonly maxGapBytes: number;
}

/**
 * Splits the ascending `items[begin ... end)` into reads: neighbors with small gaps are read together, and no read
 * exceeds `readBytes` unless it is a single item. Calls `emit(from, to)` for each.
 */
export function planReads(
  group: PieceGroup,
  items: Int32Array,
  reads: ReadLimits,
  emit: (from: number, to: number) => void,
): void {
  const { strideBytes, spanBytes } = group;
  for (let from = 0; from < items.length;) {
    let to = from + 1;
    while (to < items.length) {
      const gapBytes = (items[to] - items[to - 1]) * strideBytes - spanBytes;
      const totalBytes = (items[to] - items[from]) * strideBytes + spanBytes;
      if (gapBytes > reads.maxGapBytes || totalBytes > reads.readBytes) break;
      to++;
    }
    emit(from, to);
    from = to;
  }
}
