/** Signatures of the conversions between packed bytes and float32. Neither validates: `codec.ts` does. */

/**
 * Unpacks `numValues` values that start at `bytes[byteOffset]` into `out[outOffset ...]`. The caller guarantees that
 * `numValues` is a whole number of blocks and that everything fits; `byteOffset` needs no alignment.
 */
export type Decoder = (
  bytes: Uint8Array,
  byteOffset: number,
  out: Float32Array,
  outOffset: number,
  numValues: number,
) => void;

/**
 * Packs `values[valueOffset ...]` into `out[byteOffset ...]`, under the same guarantees. `importance[i]`, a positive number, is the
 * weight of the squared error of `values[i]`; by default all weights are 1. Not all formats use it, see `usesImportance`.
 */
export type Encoder = (
  values: Float32Array,
  valueOffset: number,
  out: Uint8Array,
  byteOffset: number,
  numValues: number,
  importance?: Importance,
) => void;

/** The weights of squared errors; `undefined` for 1. */
export type Importance = Float32Array | undefined;
