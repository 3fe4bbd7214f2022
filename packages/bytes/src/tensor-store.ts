/** The contract of a file format that holds named tensors; loaders provide it, models consume it. */
import type { DType, Shape } from '@winnow/tensor';

/** One tensor in a file. Nothing is read until `read` is called. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: DType;
  /** Outermost dimension first: a matrix is `[numRows, rowLength]`. */
  readonly shape: Shape;
  readonly sizeBytes: number;
  /**
   * Fills `target` with the tensor's raw little-endian bytes, starting at `byteOffset` within the tensor (default 0).
   * @throws {IoError} when the range is not inside the tensor or the file ends early
   */
  read(target: Uint8Array, options?: { byteOffset?: number; signal?: AbortSignal }): Promise<void>;
}

/** Named tensors. */
export interface TensorStore {
  /** Name in error messages. */
  readonly name: string;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  close(): Promise<void>;
}
