/** Lazy views of stored tensors: permuted rows, concatenations, slices of matrices. */
import type { StoredTensor } from '@winnow/bytes';
import { decoder, numElements, tensorBytes, type Shape } from '@winnow/tensor';

type ReadOptions = NonNullable<Parameters<StoredTensor['read']>[1]>;

/** Maximum number of bytes read at once to gather rows from. */
const maxSpanBytes = 16 * 1024 * 1024;

/** The same values in another shape with rows of the same length. */
export function reshapedView(stored: StoredTensor, shape: Shape): StoredTensor {
  return { ...stored, shape, read: (target, options) => stored.read(target, options) };
}

/**
 * A view of `numRows` rows whose row `i` is row `rowOf(i)` of `stored`. A vector counts as a column.
 * @param rowOf should be mostly local: neighboring rows are read together
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
        // as many rows as fit in a span that is worth reading in one piece
        let low = rowOf(row);
        let high = low + 1;
        let next = row + 1;
        for (; next * rowBytes < end; next++) {
          const from = rowOf(next);
          const [newLow, newHigh] = [Math.min(low, from), Math.max(high, from + 1)];
          const span = newHigh - newLow;
          if (span * rowBytes > maxSpanBytes || span > 4 * (next + 1 - row) + 256) break;
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

/** Concatenates tensors of one dtype along the first axis. */
export function concatenatedView(name: string, shape: Shape, parts: readonly StoredTensor[]): StoredTensor {
  const [first] = parts as [StoredTensor];
  const sizeBytes = parts.reduce((sum, part) => sum + part.sizeBytes, 0);
  return {
    name,
    dtype: first.dtype,
    shape,
    sizeBytes,
    async read(target, { byteOffset = 0, ...options }: ReadOptions = {}) {
      const end = byteOffset + target.length;
      let at = 0;
      for (const part of parts) {
        const [begin, stop] = [Math.max(at, byteOffset), Math.min(at + part.sizeBytes, end)];
        if (begin < stop) {
          await part.read(target.subarray(begin - byteOffset, stop - byteOffset), {
            ...options,
            byteOffset: begin - at,
          });
        }
        at += part.sizeBytes;
      }
    },
  };
}

/** Rows `[begin, end)` of every matrix of a stack `[numMatrices, numRows, ...]`. */
export function matrixRowsView(stored: StoredTensor, begin: number, end: number): StoredTensor {
  const [numMatrices, numRows, ...rest] = stored.shape as readonly [number, number, ...number[]];
  const count = end - begin;
  const flat = reshapedView(stored, [numMatrices * numRows, ...rest]);
  const rowOf = (row: number): number => Math.floor(row / count) * numRows + begin + (row % count);
  const rows = gatheredRowsView(flat, [numMatrices * count, ...rest], rowOf);
  return reshapedView(rows, [numMatrices, count, ...rest]);
}

/** A view whose column `i` is column `columnOf(i)` of `stored`, as f32. Whole rows are read. */
export function gatheredColumnsView(stored: StoredTensor, columnOf: (column: number) => number): StoredTensor {
  const [numRows, numColumns] = stored.shape as readonly [number, number];
  const columns = Int32Array.from({ length: numColumns }, (_, column) => columnOf(column));
  const sizeBytes = tensorBytes('f32', stored.shape);
  const rowBytes = 4 * numColumns;
  const decode = decoder(stored.dtype);
  return {
    name: stored.name,
    dtype: 'f32',
    shape: stored.shape,
    sizeBytes,
    async read(target, { byteOffset = 0, ...options }: ReadOptions = {}) {
      const begin = Math.floor(byteOffset / rowBytes);
      const end = Math.min(numRows, Math.ceil((byteOffset + target.length) / rowBytes));
      const storedRow = stored.sizeBytes / numRows;
      const bytes = new Uint8Array((end - begin) * storedRow);
      await stored.read(bytes, { ...options, byteOffset: begin * storedRow });
      const values = new Float32Array((end - begin) * numColumns);
      decode(bytes, 0, values, 0, values.length);
      const moved = new Float32Array(values.length);
      for (let row = 0; row < values.length; row += numColumns) {
        for (let column = 0; column < numColumns; column++) {
          moved[row + column] = values[row + (columns[column] as number)] as number;
        }
      }
      const skipped = byteOffset - begin * rowBytes;
      target.set(new Uint8Array(moved.buffer, skipped, target.length));
    },
  };
}

/** `map(x)` as f32, for small tensors. */
export function mappedF32View(stored: StoredTensor, map: (value: number) => number): StoredTensor {
  const numValues = numElements(stored.shape);
  return {
    name: stored.name,
    dtype: 'f32',
    shape: stored.shape,
    sizeBytes: 4 * numValues,
    async read(target, { byteOffset = 0, ...options }: ReadOptions = {}) {
      const bytes = new Uint8Array(stored.sizeBytes);
      await stored.read(bytes, options);
      const values = new Float32Array(numValues);
      decoder(stored.dtype)(bytes, 0, values, 0, numValues);
      target.set(new Uint8Array(values.map(map).buffer, byteOffset, target.length));
    },
  };
}
