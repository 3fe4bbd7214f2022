/**
 * Lazy views of stored tensors: slices, transposes, element-wise maps and stacks. Each read of a view reads the file;
 * nothing is cached.
 */
import type { StoredTensor } from '@winnow/bytes';
import { dtypeInfo, FormatError, formatShape, tensorBytes, type DType } from '@winnow/tensor';
import { changedRowsView } from './changed-rows-view.js';

type ReadOptions = Parameters<StoredTensor['read']>[1];

/** Dtypes of weights that are not quantized. */
const floatDTypes: readonly DType[] = ['f32', 'f16', 'bf16', 'f64'];

/** Rows `[begin, end)` of the first axis, in the dtype of the file: rows are whole blocks. */
export function rowsView(stored: StoredTensor, begin: number, end: number): StoredTensor {
  const [, ...rest] = stored.shape;
  const offset = tensorBytes(stored.dtype, [begin, ...rest]);
  const shape = [end - begin, ...rest];
  return {
    name: stored.name,
    dtype: stored.dtype,
    shape,
    sizeBytes: tensorBytes(stored.dtype, shape),
    read: (target, { byteOffset = 0, ...options } = {}) =>
      stored.read(target, { ...options, byteOffset: offset + byteOffset }),
  };
}

/**
 * A matrix `[numInputs, numOutputs]` as `[numOutputs, numInputs]`, or every matrix of a stack. Each read scans whole stored
 * matrices.
 * @throws {FormatError} for block formats, whose rows cannot be split
 */
export function transposedView(source: string, stored: StoredTensor): StoredTensor {
  const { name, dtype, shape, sizeBytes } = stored;
  if (shape.length < 2 || shape.length > 3 || dtypeInfo(dtype).blockSize !== 1) {
    const message = `expected an unquantized matrix, which can be transposed, got ${dtype} ${formatShape(shape)}`;
    throw new FormatError({ source, field: name, message });
  }
  const [numRows, numColumns] = shape.slice(-2) as [number, number];
  const width = dtypeInfo(dtype).blockBytes;
  const rowBytes = numRows * width;
  const matrixBytes = rowBytes * numColumns;
  const words = wordsOfWidth(width);
  return {
    name,
    dtype,
    shape: [...shape.slice(0, -2), numColumns, numRows],
    sizeBytes,
    async read(target, { byteOffset = 0, ...options } = {}) {
      const bytes = new Uint8Array(matrixBytes);
      for (let done = 0; done < target.length;) {
        const matrixBegin = Math.floor((byteOffset + done) / matrixBytes) * matrixBytes;
        await stored.read(bytes, { ...options, byteOffset: matrixBegin });
        const at = byteOffset + done - matrixBegin;
        const length = Math.min(target.length - done, matrixBytes - at);
        const [begin, end] = [Math.floor(at / rowBytes), Math.ceil((at + length) / rowBytes)];
        const transposed = new Uint8Array((end - begin) * rowBytes);
        copyColumns(words(bytes), words(transposed), numColumns, begin, end);
        const skipped = at - begin * rowBytes;
        target.set(transposed.subarray(skipped, skipped + length), done);
        done += length;
      }
    },
  };
}

type Words = Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

/** Returns a function that views bytes as unsigned integers of this width. */
function wordsOfWidth(width: number): (bytes: Uint8Array) => Words {
  if (width === 2) return ({ buffer }) => new Uint16Array(buffer);
  if (width === 4) return ({ buffer }) => new Uint32Array(buffer);
  if (width === 8) return ({ buffer }) => new BigUint64Array(buffer);
  return (bytes) => bytes;
}

/** Columns `[begin, end)` of `from` as the rows of `to`. */
function copyColumns<W extends Words>(from: W, to: W, numColumns: number, begin: number, end: number): void {
  let at = 0;
  for (let column = begin; column < end; column++) {
    for (let i = column; i < from.length; i += numColumns) to[at++] = from[i] as W[number];
  }
}

/** @throws {FormatError} unless the tensor holds floats */
export function checkedFloats(source: string, stored: StoredTensor): StoredTensor {
  const { name, dtype } = stored;
  if (floatDTypes.includes(dtype)) return stored;
  throw new FormatError({ source, field: name, message: `expected ${floatDTypes.join(', ')} weights, got ${dtype}` });
}

/** `map(x)` as f32, for small tensors such as norm weights stored as `w - 1`. */
export function mappedView(stored: StoredTensor, map: (value: number) => number): StoredTensor {
  return changedRowsView(stored, (rows) => {
    for (let i = 0; i < rows.length; i++) rows[i] = map(rows[i] as number);
  });
}

/**
 * Stacks tensors of the same shape and dtype along a new first axis.
 * @throws {FormatError} when they differ
 */
export function stackedView(source: string, name: string, parts: readonly StoredTensor[]): StoredTensor {
  const [first] = parts;
  const what = ({ dtype, shape }: StoredTensor): string => `${dtype} ${formatShape(shape)}`;
  for (const part of parts) {
    if (first !== undefined && what(part) === what(first)) continue;
    const message = `expected ${first && what(first)} as ${first?.name}, got ${what(part)}`;
    throw new FormatError({ source, field: part.name, message });
  }
  const { dtype, shape, sizeBytes: partBytes } = first as StoredTensor;
  return {
    name,
    dtype,
    shape: [parts.length, ...shape],
    sizeBytes: parts.length * partBytes,
    async read(target, { byteOffset = 0, ...options }: NonNullable<ReadOptions> = {}) {
      let done = 0;
      while (done < target.length) {
        const at = byteOffset + done;
        const index = Math.floor(at / partBytes);
        const length = Math.min(target.length - done, (index + 1) * partBytes - at);
        const part = parts[index] as StoredTensor;
        await part.read(target.subarray(done, done + length), { ...options, byteOffset: at - index * partBytes });
        done += length;
      }
    },
  };
}
