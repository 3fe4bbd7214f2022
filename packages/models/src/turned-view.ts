/** A matrix turned as it is read, so that what belongs to one of its columns lies together: `[F, E]` of a stored `[E, F]`. */
import type { StoredTensor } from '@winnow/bytes';
import { canEncode, decoder, dtypeInfo, encoder, FormatError, tensorBytes, type DType } from '@winnow/tensor';

/** Most values that are decoded at a time: 32 MB of f32. */
const tileValues = 1 << 23;
/** Bytes of stored rows that are read at a time. */
const bandBytes = 4 * 1024 * 1024;

/** The type that rows of `rowLength` values are stored in: as asked, unless they are no whole blocks of it. */
function rowType(dtype: DType, rowLength: number): DType {
  const fits = (type: DType): boolean => canEncode(type) && rowLength % dtypeInfo(type).blockSize === 0;
  return fits(dtype) ? dtype : fits('q8_0') ? 'q8_0' : 'f16';
}

/**
 * The transposed matrix, of any type: decoded, and encoded again along its new rows, so that quantised values get the
 * rounding of both. Each read goes through the whole stored matrix, band by band; who wants single rows often copies the
 * view first.
 * @param dtype wanted; where rows are no whole blocks of it q8_0, or else f16
 */
export function turnedView(stored: StoredTensor, dtype: DType): StoredTensor {
  const [numStoredRows, numColumns] = stored.shape as unknown as [number, number];
  const type = rowType(dtype, numStoredRows);
  const rowBytes = tensorBytes(type, [numStoredRows]);
  const { blockSize, blockBytes } = dtypeInfo(stored.dtype);
  const storedRowBytes = tensorBytes(stored.dtype, [numColumns]);
  const decodeValues = decoder(stored.dtype);
  const encodeValues = encoder(type);
  const maxTileRows = Math.max(1, Math.floor(tileValues / numStoredRows));
  const rowsPerBand = Math.max(1, Math.floor(bandBytes / storedRowBytes));

  /** Columns `[begin, end)` as rows of f32. */
  async function readColumns(begin: number, end: number, options: { signal?: AbortSignal }): Promise<Float32Array> {
    const first = Math.floor(begin / blockSize) * blockSize;
    const count = Math.min(numColumns, Math.ceil(end / blockSize) * blockSize) - first;
    const skippedBytes = (first / blockSize) * blockBytes;
    const values = new Float32Array((end - begin) * numStoredRows);
    const row = new Float32Array(count);
    const band = new Uint8Array(Math.min(rowsPerBand, numStoredRows) * storedRowBytes);
    for (let e = 0; e < numStoredRows; e += rowsPerBand) {
      const numRows = Math.min(rowsPerBand, numStoredRows - e);
      await stored.read(band.subarray(0, numRows * storedRowBytes), { ...options, byteOffset: e * storedRowBytes });
      for (let r = 0; r < numRows; r++) {
        decodeValues(band, r * storedRowBytes + skippedBytes, row, 0, count);
        for (let f = begin, at = e + r; f < end; f++, at += numStoredRows) values[at] = row[f - first] as number;
      }
    }
    return values;
  }

  return {
    name: stored.name,
    dtype: type,
    shape: [numColumns, numStoredRows],
    sizeBytes: rowBytes * numColumns,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const endByte = byteOffset + target.length;
      const last = Math.ceil(endByte / rowBytes);
      for (let begin = Math.floor(byteOffset / rowBytes); begin < last; begin += maxTileRows) {
        const end = Math.min(last, begin + maxTileRows);
        const values = await readColumns(begin, end, options);
        if (dtypeInfo(type).blockSize > 1) checkFinite(stored.name, values);
        const encoded = new Uint8Array((end - begin) * rowBytes);
        encodeValues(values, 0, encoded, 0, values.length);
        const at = begin * rowBytes;
        const low = Math.max(at, byteOffset);
        const high = Math.min(end * rowBytes, endByte);
        target.set(encoded.subarray(low - at, high - at), low - byteOffset);
      }
    },
  };
}

/** One such value would spoil its whole block. */
function checkFinite(name: string, values: Float32Array): void {
  const index = values.findIndex((value) => !Number.isFinite(value));
  if (index < 0) return;
  throw new FormatError({ source: name, field: name, message: `expected finite weights, got ${values[index]}` });
}
