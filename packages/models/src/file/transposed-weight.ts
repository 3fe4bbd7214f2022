/**
 * A matrix that is transposed on read, so that a column of the stored matrix is contiguous: `[F, E]` of a stored `[E,
 * F]`.
 */
import type { StoredTensor } from '@winnow/bytes';
import { canEncode, decoder, dtypeInfo, encoder, tensorBytes, type DType } from '@winnow/tensor';
import { checkFinite } from './reencoded-view.js';

/** Maximum number of values transposed at a time: 32 MB of f32. */
const tileValues = 1 << 23;
/** Number of stored rows that are transposed together: their values are adjacent in the result. */
const bandRows = 32;
/** Maximum number of bytes of one read. */
const readBytes = 8 * 1024 * 1024;

type ReadOptions = NonNullable<Parameters<StoredTensor['read']>[1]>;
type Words = Float32Array | Uint16Array | Uint32Array;

/** Formats that lose too much when their values are quantized again. */
const isCoarse = (type: DType): boolean => /^(q[23]_K|iq|mxfp4)/.test(type);

/** The dtype of rows of `rowLength` values: `dtype` unless they are not whole blocks of it. */
function rowType(dtype: DType, rowLength: number): DType {
  const fits = (type: DType): boolean =>
    canEncode(type) && !isCoarse(type) && rowLength % dtypeInfo(type).blockSize === 0;
  return fits(dtype) ? dtype : fits('q8_0') ? 'q8_0' : 'f16';
}

/**
 * The transposed matrix, of any dtype: plain numbers stay unchanged, quantized blocks are requantized along their new
 * rows. A sequential read of the whole view keeps the stored matrix in memory; any other read scans all of it, so copy
 * the view before you read many single rows.
 * @param dtype preferred dtype; q8_0 or else f16 replaces it where it is too coarse, or where rows are not whole blocks
 */
export function transposedWeight(stored: StoredTensor, dtype: DType): StoredTensor {
  return new TransposedWeight(stored, dtype);
}

class TransposedWeight implements StoredTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly sizeBytes: number;
  readonly #stored: StoredTensor;
  readonly #numStoredRows: number;
  readonly #rowBytes: number;
  readonly #storedRowBytes: number;
  /** Whether the bits of values are preserved: plain numbers of the same dtype. */
  readonly #isSame: boolean;
  readonly #decode: ReturnType<typeof decoder>;
  readonly #encode: ReturnType<typeof encoder>;
  /** The stored matrix during a sequential read. */
  #kept: Uint8Array | undefined;

  constructor(stored: StoredTensor, dtype: DType) {
    const [numStoredRows, numColumns] = stored.shape as unknown as [number, number];
    const { blockSize, blockBytes } = dtypeInfo(stored.dtype);
    this.#stored = stored;
    this.#numStoredRows = numStoredRows;
    this.name = stored.name;
    this.dtype = rowType(dtype, numStoredRows);
    this.shape = [numColumns, numStoredRows];
    this.#rowBytes = tensorBytes(this.dtype, [numStoredRows]);
    this.sizeBytes = this.#rowBytes * numColumns;
    this.#storedRowBytes = tensorBytes(stored.dtype, [numColumns]);
    this.#isSame = this.dtype === stored.dtype && blockSize === 1 && (blockBytes === 2 || blockBytes === 4);
    this.#decode = decoder(stored.dtype);
    this.#encode = encoder(this.dtype);
  }

  async read(target: Uint8Array, { byteOffset = 0, ...options }: ReadOptions = {}): Promise<void> {
    const rowBytes = this.#rowBytes;
    const endByte = byteOffset + target.length;
    const last = Math.ceil(endByte / rowBytes);
    const maxTileRows = Math.max(1, Math.floor(tileValues / this.#numStoredRows));
    if (byteOffset === 0 && endByte < this.sizeBytes) {
      this.#kept = await this.#readStored(0, this.#stored.sizeBytes, options);
    }
    for (let begin = Math.floor(byteOffset / rowBytes); begin < last; begin += maxTileRows) {
      const end = Math.min(last, begin + maxTileRows);
      const encoded = this.#encoded(await this.#readColumns(begin, end, options), (end - begin) * rowBytes);
      const at = begin * rowBytes;
      const low = Math.max(at, byteOffset);
      const high = Math.min(end * rowBytes, endByte);
      target.set(encoded.subarray(low - at, high - at), low - byteOffset);
    }
    if (endByte >= this.sizeBytes) this.#kept = undefined;
  }

  #encoded(values: Words, sizeBytes: number): Uint8Array {
    if (this.#isSame) return asBytes(values);
    const floats = values as Float32Array;
    if (dtypeInfo(this.dtype).blockSize > 1) checkFinite(this.name, floats, floats.length);
    const encoded = new Uint8Array(sizeBytes);
    this.#encode(floats, 0, encoded, 0, floats.length);
    return encoded;
  }

  async #readStored(begin: number, end: number, options: ReadOptions): Promise<Uint8Array> {
    if (this.#kept !== undefined) return this.#kept.subarray(begin, end);
    const bytes = new Uint8Array(end - begin);
    for (let at = 0; at < bytes.length; at += readBytes) {
      await this.#stored.read(bytes.subarray(at, at + readBytes), { ...options, byteOffset: begin + at });
    }
    return bytes;
  }

  /** Columns `[begin, end)` as rows: raw words if the dtype is unchanged, else f32. */
  async #readColumns(begin: number, end: number, options: ReadOptions): Promise<Words> {
    const { blockSize, blockBytes } = dtypeInfo(this.#stored.dtype);
    const numStoredRows = this.#numStoredRows;
    const storedRowBytes = this.#storedRowBytes;
    const first = Math.floor(begin / blockSize) * blockSize;
    const count = Math.min(this.shape[0] as number, Math.ceil(end / blockSize) * blockSize) - first;
    const skippedBytes = (first / blockSize) * blockBytes;
    const Kind = !this.#isSame ? Float32Array : blockBytes === 2 ? Uint16Array : Uint32Array;
    const values = new Kind((end - begin) * numStoredRows);
    const band = new Kind(bandRows * count);
    const pieceRows = Math.max(bandRows, Math.floor(readBytes / storedRowBytes / bandRows) * bandRows);
    for (let piece = 0; piece < numStoredRows; piece += pieceRows) {
      const pieceEnd = Math.min(numStoredRows, piece + pieceRows);
      const bytes = await this.#readStored(piece * storedRowBytes, pieceEnd * storedRowBytes, options);
      for (let e = piece; e < pieceEnd; e += bandRows) {
        const numRows = Math.min(bandRows, pieceEnd - e);
        for (let r = 0; r < numRows; r++) {
          const from = (e - piece + r) * storedRowBytes + skippedBytes;
          this.#decodeRow(bytes, from, band.subarray(r * count, (r + 1) * count));
        }
        transposeBand(band, count, begin - first, values, e, numRows, numStoredRows);
      }
    }
    return values;
  }

  #decodeRow(bytes: Uint8Array, from: number, row: Words): void {
    if (this.#isSame) asBytes(row).set(bytes.subarray(from, from + row.byteLength));
    else this.#decode(bytes, from, row as Float32Array, 0, row.length);
  }
}

function asBytes({ buffer, byteOffset, byteLength }: Words): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/**
 * Rows of a band `[numRows, width]`, from column `skipped` on, as columns `[e, e + numRows)` of `to` `[_, rowLength]`.
 */
function transposeBand(
  band: Words,
  width: number,
  skipped: number,
  to: Words,
  e: number,
  numRows: number,
  rowLength: number,
): void {
  const numColumns = to.length / rowLength;
  for (let f = 0; f < numColumns; f++) {
    const at = f * rowLength + e;
    for (let r = 0, from = skipped + f; r < numRows; r++, from += width) to[at + r] = band[from] as number;
  }
}
