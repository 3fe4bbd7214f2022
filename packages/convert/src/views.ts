/** Lazy views of stored tensors: concatenations, merged stacks, permuted columns, factors. */
import type { StoredTensor } from '@winnow/bytes';
import { changedRowsView, gatheredRowsView, reshapedView } from '@winnow/models';
import { numElements, tensorBytes, type DType, type Shape } from '@winnow/tensor';

type ReadOptions = NonNullable<Parameters<StoredTensor['read']>[1]>;

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

/** A tensor of zeros, of an unquantized dtype. */
export function zerosView(name: string, dtype: DType, shape: Shape): StoredTensor {
  return { name, dtype, shape, sizeBytes: tensorBytes(dtype, shape), read: async (target) => void target.fill(0) };
}

/**
 * Merges stacks of matrices `[numMatrices, count, ...]` of one dtype to `[numMatrices, numRows, ...]`: row `i` of a part's
 * matrix is row `begin + i * step` of the merged one. Every row belongs to one part.
 */
export function mergedMatricesView(
  name: string,
  numRows: number,
  parts: readonly StoredTensor[],
  places: readonly { readonly begin: number; readonly step: number }[],
): StoredTensor {
  const [numMatrices, , ...rest] = (parts[0] as StoredTensor).shape as readonly [number, number, ...number[]];
  // for each row of a merged matrix: where its part begins among all rows, rows per matrix of the part, row in that matrix
  const sources: (readonly [base: number, count: number, index: number])[] = Array.from({ length: numRows });
  let base = 0;
  for (const [part, { shape }] of parts.entries()) {
    const count = shape[1] as number;
    const { begin, step } = places[part] as (typeof places)[number];
    for (let index = 0; index < count; index++) sources[begin + index * step] = [base, count, index];
    base += numMatrices * count;
  }
  const all = concatenatedView(name, [numMatrices * numRows, ...rest], parts);
  const merged = gatheredRowsView(all, all.shape, (row) => {
    const [begin, count, index] = sources[row % numRows] as (typeof sources)[number];
    return begin + Math.floor(row / numRows) * count + index;
  });
  return reshapedView(merged, [numMatrices, numRows, ...rest]);
}

/** A view whose column `i` is column `columnOf(i)` of `stored`, as f32. */
export function gatheredColumnsView(stored: StoredTensor, columnOf: (column: number) => number): StoredTensor {
  const numColumns = stored.shape[1] as number;
  const columns = Int32Array.from({ length: numColumns }, (_, column) => columnOf(column));
  const row = new Float32Array(numColumns);
  return changedRowsView(stored, (rows) => {
    for (let at = 0; at < rows.length; at += numColumns) {
      row.set(rows.subarray(at, at + numColumns));
      for (let i = 0; i < numColumns; i++) rows[at + i] = row[columns[i] as number] as number;
    }
  });
}

/** A matrix or vector with a factor per row, as f32. */
export function scaledRowsView(stored: StoredTensor, factorOf: (row: number) => number): StoredTensor {
  const numColumns = numElements(stored.shape) / (stored.shape[0] as number);
  return changedRowsView(stored, (rows, begin) => {
    for (let i = 0; i < rows.length; i++) {
      rows[i] = (rows[i] as number) * factorOf(begin + Math.floor(i / numColumns));
    }
  });
}
