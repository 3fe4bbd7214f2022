/** Lazy views of stored tensors with other rows: reshaped, permuted, or some of the rows of every matrix of a stack. */
import type { StoredTensor } from '@winnow/bytes';
import { tensorBytes, type Shape } from '@winnow/tensor';

type ReadOptions = NonNullable<Parameters<StoredTensor['read']>[1]>;

/** Maximum number of bytes read at once to gather rows from. */
const maxSpanBytes = 16 * 1024 * 1024;

/** The same values in another shape with rows of the same length. */
export function reshapedView(stored: StoredTensor, shape: Shape): StoredTensor {
  return { ...stored, shape, read: (target, options) => stored.read(target, options) };
}

/**
 * A view of `numRows` rows whose row `i` is row `rowOf(i)` of `stored`. A vector counts as a column.
 * @param rowOf should map neighboring rows to neighboring rows, which are read together
 */
export function gatheredRowsView(stored: StoredTensor, shape: Shape, rowOf: (row: number) => number): StoredTensor {
  const numRows = shape[0] as number;
  const sizeBytes = tensorBytes(stored.dtype, shape);
  const rowBytes = sizeBytes / numRows;
  return {
    name: stored.name,
    dtype: stored.dtype,
    shape,
    sizeBytes,
    async read(target, { byteOffset = 0, ...options }: ReadOptions = {}) {
      const end = byteOffset + target.length;
      let row = Math.floor(byteOffset / rowBytes);
      while (row * rowBytes < end) {
        // extends the span by rows while it has few others; the constant lets permuted rows within heads be read together
        let low = rowOf(row);
        let high = low + 1;
        let next = row + 1;
        for (; next * rowBytes < end; next++) {
          const from = rowOf(next);
          const [newLow, newHigh] = [Math.min(low, from), Math.max(high, from + 1)];
          const span = newHigh - newLow;
          if (span * rowBytes > maxSpanBytes || span > 1.5 * (next + 1 - row) + 256) break;
          [low, high] = [newLow, newHigh];
        }
        const bytes = new Uint8Array((high - low) * rowBytes);
        await stored.read(bytes, { ...options, byteOffset: low * rowBytes });
        for (; row < next; row++) {
          const at = row * rowBytes;
          const from = (rowOf(row) - low) * rowBytes;
          const [begin, stop] = [Math.max(at, byteOffset), Math.min(at + rowBytes, end)];
          target.set(bytes.subarray(from + begin - at, from + stop - at), begin - byteOffset);
        }
      }
    },
  };
}

/**
 * Rows `begin + i * step` of every matrix of a stack `[numMatrices, numRows, ...]`: `[numMatrices, count, ...]`. Vectors of
 * a stack count as columns.
 */
export function matrixRowsView(stored: StoredTensor, begin: number, count: number, step = 1): StoredTensor {
  const [numMatrices, numRows, ...rest] = stored.shape as readonly [number, number, ...number[]];
  const flat = reshapedView(stored, [numMatrices * numRows, ...rest]);
  const rowOf = (row: number): number => Math.floor(row / count) * numRows + begin + (row % count) * step;
  const rows = gatheredRowsView(flat, [numMatrices * count, ...rest], rowOf);
  return reshapedView(rows, [numMatrices, count, ...rest]);
}
