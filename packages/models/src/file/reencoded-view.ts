/** A tensor of a file in another data type, converted tile by tile on read. */
import type { StoredTensor } from '@winnow/bytes';
import {
  ArgumentError,
  decoder,
  type DType,
  dtypeInfo,
  encoder,
  FormatError,
  leastCommonMultiple,
  numElements,
  tensorBytes,
} from '@winnow/tensor';

/** Maximum number of values converted at a time: 4 MB of f32. A multiple of every block size. */
const tileValues = 1 << 20;

/**
 * The values of `stored` as `dtype`. A read holds at most one tile of decoded values in addition to its target. The
 * result equals `encode(decode(...))` of the whole tensor, because blocks never cross the end of a row.
 * @param importance weights of the squared errors per column, `[numMatrices, rowLength]` or `[rowLength]`. Default: all 1
 * @throws {ArgumentError} when rows are not whole blocks of `dtype`
 * @throws {DTypeError} when there is no encoder for it; reading throws `FormatError` for values that blocks cannot
 *   represent
 */
export function reencodedView(stored: StoredTensor, dtype: DType, importance?: Float32Array): StoredTensor {
  if (stored.dtype === dtype) return stored;
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  const from = dtypeInfo(stored.dtype);
  const rowLength = stored.shape.at(-1) ?? 1;
  if (rowLength % blockSize !== 0) {
    const expected = `rows of a multiple of ${blockSize} values`;
    throw new ArgumentError({ argument: `${stored.name} as ${dtype}`, expected, actual: String(rowLength) });
  }
  const decodeValues = decoder(stored.dtype);
  const encodeValues = encoder(dtype);
  const sizeBytes = tensorBytes(dtype, stored.shape);
  const numValues = numElements(stored.shape);
  /** Alignment in values that suits both types. */
  const unit = leastCommonMultiple(blockSize, from.blockSize);
  return {
    name: stored.name,
    dtype,
    shape: stored.shape,
    sizeBytes,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const endByte = byteOffset + target.length;
      const first = Math.floor((Math.floor(byteOffset / blockBytes) * blockSize) / unit) * unit;
      const end = Math.min(numValues, Math.ceil(endByte / blockBytes) * blockSize);
      const capacity = Math.min(tileValues, Math.ceil((end - first) / unit) * unit);
      const values = new Float32Array(capacity);
      const stored8 = new Uint8Array((capacity / from.blockSize) * from.blockBytes);
      const encoded = new Uint8Array((capacity / blockSize) * blockBytes);
      const weights = importance && new Float32Array(capacity);
      for (let begin = first; begin < end; begin += capacity) {
        const count = Math.min(capacity, Math.ceil((end - begin) / unit) * unit, numValues - begin);
        const piece = stored8.subarray(0, (count / from.blockSize) * from.blockBytes);
        await stored.read(piece, { ...options, byteOffset: (begin / from.blockSize) * from.blockBytes });
        decodeValues(piece, 0, values, 0, count);
        if (blockSize > 1) checkFinite(stored.name, values, count, begin);
        if (weights !== undefined && importance !== undefined)
          spreadColumns(importance, rowLength, numValues, weights, begin, count);
        encodeValues(values, 0, encoded, 0, count, weights);
        const at = (begin / blockSize) * blockBytes; // byte offset of the tile within the tensor
        const low = Math.max(at, byteOffset);
        const high = Math.min(at + (count / blockSize) * blockBytes, endByte);
        target.set(encoded.subarray(low - at, high - at), low - byteOffset);
      }
    },
  };
}

/** Fills `out` with the importance of the values `[begin, begin + count)`. */
function spreadColumns(
  columns: Float32Array,
  rowLength: number,
  numValues: number,
  out: Float32Array,
  begin: number,
  count: number,
): void {
  const valuesPerMatrix = (numValues * rowLength) / columns.length;
  for (let at = 0; at < count;) {
    const value = begin + at;
    const column = value % rowLength;
    const first = Math.floor(value / valuesPerMatrix) * rowLength;
    const row = columns.subarray(first + column, first + Math.min(rowLength, column + count - at));
    out.set(row, at);
    at += row.length;
  }
}

/**
 * Checks the first `count` values, because a single non-finite one would ruin its whole block.
 * @param begin index of the first value in its tensor. Default: unknown
 * @throws {FormatError} for a value that is not finite
 */
export function checkFinite(name: string, values: Float32Array, count: number, begin?: number): void {
  for (let i = 0; i < count; i++) {
    if (Number.isFinite(values[i])) continue;
    const where = begin === undefined ? '' : ` at index ${begin + i}`;
    throw new FormatError({ source: name, field: name, message: `expected finite weights, got ${values[i]}${where}` });
  }
}
