/** A matrix turned as it is read, so that what belongs to one of its columns lies together: `[F, E]` of a stored `[E, F]`. */
import type { StoredTensor } from '@winnow/bytes';
import { canEncode, decoder, dtypeInfo, encoder, FormatError, tensorBytes, type DType } from '@winnow/tensor';

/** Most values that are turned at a time: 32 MB of f32. */
const tileValues = 1 << 23;
/** Stored rows that are turned together: their values lie side by side in the result. */
const bandRows = 32;
/** Most bytes of a read of the whole. */
const readBytes = 8 * 1024 * 1024;

type Words = Float32Array | Uint16Array | Uint32Array;

/** The type that rows of `rowLength` values are stored in: as asked, unless they are no whole blocks of it. */
function rowType(dtype: DType, rowLength: number): DType {
  const fits = (type: DType): boolean => canEncode(type) && rowLength % dtypeInfo(type).blockSize === 0;
  return fits(dtype) ? dtype : fits('q8_0') ? 'q8_0' : 'f16';
}

/**
 * The transposed matrix, of any type: numbers as they are, blocks decoded and encoded again along their new rows, so that
 * they get the rounding of both. Who reads from the beginning to the end has the stored matrix in memory meanwhile; any
 * other read goes through all of it, so that who wants single rows often copies the view first.
 * @param dtype wanted; where rows are no whole blocks of it q8_0, or else f16
 */
export function turnedView(stored: StoredTensor, dtype: DType): StoredTensor {
  const [numStoredRows, numColumns] = stored.shape as unknown as [number, number];
  const type = rowType(dtype, numStoredRows);
  const rowBytes = tensorBytes(type, [numStoredRows]);
  const sizeBytes = rowBytes * numColumns;
  const { blockSize, blockBytes } = dtypeInfo(stored.dtype);
  const storedRowBytes = tensorBytes(stored.dtype, [numColumns]);
  const maxTileRows = Math.max(1, Math.floor(tileValues / numStoredRows));
  const isSame = type === stored.dtype && blockSize === 1 && (blockBytes === 2 || blockBytes === 4);
  const decodeValues = decoder(stored.dtype);
  const encodeValues = encoder(type);
  let kept: Uint8Array | undefined; // the stored matrix, while it is read from its beginning on

  async function readStored(begin: number, end: number, options: { signal?: AbortSignal }): Promise<Uint8Array> {
    if (kept !== undefined) return kept.subarray(begin, end);
    const bytes = new Uint8Array(end - begin);
    for (let at = 0; at < bytes.length; at += readBytes) {
      await stored.read(bytes.subarray(at, at + readBytes), { ...options, byteOffset: begin + at });
    }
    return bytes;
  }

  /** Columns `[begin, end)` as rows: words of the stored type where that stays, else f32. */
  async function readColumns(begin: number, end: number, options: { signal?: AbortSignal }): Promise<Words> {
    const first = Math.floor(begin / blockSize) * blockSize;
    const count = Math.min(numColumns, Math.ceil(end / blockSize) * blockSize) - first;
    const skippedBytes = (first / blockSize) * blockBytes;
    const numValues = (end - begin) * numStoredRows;
    const Kind = !isSame ? Float32Array : blockBytes === 2 ? Uint16Array : Uint32Array;
    const values = new Kind(numValues);
    const band = new Kind(bandRows * count);
    const pieceRows = Math.max(bandRows, Math.floor(readBytes / storedRowBytes / bandRows) * bandRows);
    for (let piece = 0; piece < numStoredRows; piece += pieceRows) {
      const pieceEnd = Math.min(numStoredRows, piece + pieceRows);
      const bytes = await readStored(piece * storedRowBytes, pieceEnd * storedRowBytes, options);
      for (let e = piece; e < pieceEnd; e += bandRows) {
        const numRows = Math.min(bandRows, pieceEnd - e);
        for (let r = 0; r < numRows; r++) {
          const from = (e - piece + r) * storedRowBytes + skippedBytes;
          const row = band.subarray(r * count, (r + 1) * count);
          if (isSame) asBytes(row).set(bytes.subarray(from, from + count * blockBytes));
          else decodeValues(bytes, from, row as Float32Array, 0, count);
        }
        turn(band, count, begin - first, values, e, numRows, numStoredRows);
      }
    }
    return values;
  }

  return {
    name: stored.name,
    dtype: type,
    shape: [numColumns, numStoredRows],
    sizeBytes,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const endByte = byteOffset + target.length;
      const last = Math.ceil(endByte / rowBytes);
      if (byteOffset === 0 && endByte < sizeBytes) kept = await readStored(0, stored.sizeBytes, options);
      for (let begin = Math.floor(byteOffset / rowBytes); begin < last; begin += maxTileRows) {
        const end = Math.min(last, begin + maxTileRows);
        const values = await readColumns(begin, end, options);
        let encoded = asBytes(values);
        if (!isSame) {
          if (dtypeInfo(type).blockSize > 1) checkFinite(stored.name, values);
          encoded = new Uint8Array((end - begin) * rowBytes);
          encodeValues(values as Float32Array, 0, encoded, 0, values.length);
        }
        const at = begin * rowBytes;
        const low = Math.max(at, byteOffset);
        const high = Math.min(end * rowBytes, endByte);
        target.set(encoded.subarray(low - at, high - at), low - byteOffset);
      }
      if (endByte >= sizeBytes) kept = undefined;
    },
  };
}

function asBytes({ buffer, byteOffset, byteLength }: Words): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Rows of a band `[numRows, width]`, from column `skipped` on, as columns `[e, e + numRows)` of `to` `[_, rowLength]`. */
function turn(
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

/** One such value would spoil its whole block. */
function checkFinite(name: string, values: Words): void {
  const index = values.findIndex((value) => !Number.isFinite(value));
  if (index < 0) return;
  throw new FormatError({ source: name, field: name, message: `expected finite weights, got ${values[index]}` });
}
