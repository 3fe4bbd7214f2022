/**
 * The error model behind all bounds: float32 with round-to-nearest in any order of operations, with or without fused
 * multiply-add, and elementary functions with errors of a few units. A bound follows from the inputs; it is never
 * tuned.
 */

/** The errors that a backend's float32 arithmetic may have. */
export interface Arithmetic {
  /** Relative error of one operation: 2^-24 for round-to-nearest float32. */
  readonly unit: number;
  /** Relative error of exp, log, tanh, erf, sin, cos and of reciprocal square roots. */
  readonly elementary: number;
  /** Absolute error of one operation near zero: 2^-149, or 2^-126 if denormal numbers become 0. */
  readonly tiny: number;
}

/** @param flushesDenormals whether results and inputs below 2^-126 may become 0, as on most GPUs */
export function float32Arithmetic(flushesDenormals = false): Arithmetic {
  return { unit: 2 ** -24, elementary: 8 * 2 ** -24, tiny: flushesDenormals ? 2 ** -126 : 2 ** -149 };
}

/** Smallest normal float32: where `exp` may already give 0. */
export const underflow: number = 2 ** -126;
