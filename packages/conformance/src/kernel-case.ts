/** The parts of a kernel case. */
import type { Attributes } from '@winnow/ops';
import type { DType, Rng } from '@winnow/tensor';
import type { Arithmetic } from './arithmetic.js';

/** A tensor of a case. */
export interface CaseTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
  /**
   * The axis that becomes the symbol `T` when the case runs with dynamic sizes: f32 tensors are then in the arena and
   * i32 tensors in the scalar block. Without it the tensor always has a fixed size.
   */
  readonly tokenAxis?: number;
}

/** The expected contents of an output. */
export type Expected =
  /** Computed in float64; each value has an error bound. NaN and infinities must be in the same places. */
  | { readonly kind: 'close'; readonly values: Float64Array; readonly bounds: Float64Array }
  /** The same 32-bit integers. */
  | { readonly kind: 'integers'; readonly values: Int32Array }
  /** The same bytes; in f32, any NaN equals any other. */
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array };

/** Tensors and expected results of one case. */
export interface KernelData {
  readonly inputs: Readonly<Record<string, CaseTensor>>;
  /** Tensors that the op updates in place, before the update. */
  readonly updated?: Readonly<Record<string, CaseTensor>>;
  readonly expected: Readonly<Record<string, Expected>>;
}

/** One case: an op, its attributes, and data that is reproducible from its seed. */
export interface KernelCase {
  readonly op: string;
  /** Unique within the op. */
  readonly name: string;
  /** Dtypes that determine support, by tensor name, as passed to `Backend.supports`. */
  readonly dtypes: Readonly<Record<string, DType>>;
  readonly attributes: Attributes;
  /** Creates the tensors and computes the expected results in float64 with an independent formulation. */
  create(rng: Rng, arithmetic: Arithmetic): KernelData;
}
