/** What one case of one op is made of. */
import type { Attributes } from '@winnow/ops';
import type { DType, Rng } from '@winnow/tensor';
import type { Arithmetic } from './arithmetic.js';

/** A tensor of a case. */
export interface CaseTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
  /**
   * The axis that becomes the symbol `T` when the case runs with dynamic sizes: f32 tensors then lie in the arena and i32
   * tensors in the scalar block. Without it the tensor has a fixed size in either run.
   */
  readonly tokenAxis?: number;
}

/** What an output must be. */
export type Expected =
  /** Computed in float64; each value may be off by its bound. NaN and infinities must be in the same places. */
  | { readonly kind: 'close'; readonly values: Float64Array; readonly bounds: Float64Array }
  /** The same 32-bit integers. */
  | { readonly kind: 'integers'; readonly values: Int32Array }
  /** The same bytes; any NaN stands for any other in f32. */
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array };

/** Tensors and truth of one case. */
export interface KernelData {
  readonly inputs: Readonly<Record<string, CaseTensor>>;
  /** Tensors that the op changes in place, before it does. */
  readonly updated?: Readonly<Record<string, CaseTensor>>;
  readonly expected: Readonly<Record<string, Expected>>;
}

/** One case: an op, its attributes, and data that the same seed gives everywhere. */
export interface KernelCase {
  readonly op: string;
  /** Unique within the op. */
  readonly name: string;
  /** Dtypes that decide support, by tensor name, as `Backend.supports` is asked. */
  readonly dtypes: Readonly<Record<string, DType>>;
  readonly attributes: Attributes;
  /** Makes the tensors and computes the truth in float64 by a formulation of its own. */
  create(rng: Rng, arithmetic: Arithmetic): KernelData;
}
