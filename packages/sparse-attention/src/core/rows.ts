/** Keys and values by position and KV head, whatever they are stored as. */
import type { Tensor3 } from '@winnow/tensor';

/** Read access to rows of `dim` values. */
export interface Rows {
  readonly numHeads: number;
  readonly dim: number;
  /** Where `locate` finds rows; read it after the call. */
  readonly buffer: Float32Array;
  /** Offset in `buffer` of the row of this position and head. The row stays there until the next call. */
  locate(position: number, head: number): number;
}

/** The rows of a [seqLen, numHeads, headDim] tensor, in place. */
export function rowsOf(tensor: Tensor3): Rows {
  const { data, numHeads, headDim } = tensor;
  return {
    numHeads,
    dim: headDim,
    buffer: data,
    locate: (position, head) => (position * numHeads + head) * headDim,
  };
}

/** The keys and values that attention reads: positions 0 to `length - 1`. */
export interface KvRows {
  readonly keys: Rows;
  readonly values: Rows;
  readonly length: number;
}
