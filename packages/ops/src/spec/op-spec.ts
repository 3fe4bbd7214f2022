/**
 * The specification of an op: its tensors, shape contract, attributes, cost, and the reference that defines its result.
 */
import type { DType } from '@winnow/tensor';
import type { Dim } from './dims.js';

/** A value that is fixed when the program is built. */
export type AttributeValue = number | string | boolean;
export type Attributes = Readonly<Record<string, AttributeValue>>;

/** An input of an op. */
export interface InputSpec {
  readonly dtypes: readonly DType[];
  /** Axis letters, outermost first, such as `'T N H'`; a leading `...` stands for any number of axes. */
  readonly shape: string;
  readonly optional?: boolean;
}

/** An output of an op. */
export interface OutputSpec {
  readonly dtypes: readonly DType[];
  readonly shape: string;
  /** The output may alias this input, element for element. */
  readonly mayAlias?: string;
  /** The op updates parts of an existing tensor (a cache), which the caller provides. */
  readonly updates?: boolean;
  /** The boolean attribute that requests this output; if false, the output is absent. */
  readonly when?: string;
}

/** An attribute of an op. Without `default` it is required. */
export interface AttributeSpec {
  readonly kind: 'number' | 'string' | 'boolean';
  readonly default?: AttributeValue;
  /** The allowed strings, in the order of their encoded values. */
  readonly values?: readonly string[];
  /** Numbers that are encoded as integers; others are encoded as f32. */
  readonly integer?: boolean;
}

/** A tensor of the reference. `shape` changes between steps, `data` stays. */
export interface TensorView {
  /** `Float32Array` for f32, `Int32Array` for i32, raw bytes for every other dtype. */
  readonly data: Float32Array | Int32Array | Uint8Array;
  readonly dtype: DType;
  readonly shape: number[];
}

/** One record with its memory. */
export interface ReferenceCall {
  readonly inputs: Readonly<Record<string, TensorView>>;
  readonly outputs: Readonly<Record<string, TensorView>>;
  readonly attributes: Attributes;
}

/**
 * The dimensions of a record's tensors, with symbols replaced by numbers. If an input and an output have the same name,
 * it is the input.
 */
export type RecordShapes = Readonly<Record<string, readonly number[]>>;

/** The dtypes of a record's tensors. */
export type RecordDTypes = Readonly<Record<string, DType>>;

/** How an op is partitioned among threads. The partition depends on shapes alone, never on the number of threads. */
export type Partition = 'rows' | 'tokens' | 'heads' | 'serial';

/** One op. */
export interface OpSpec {
  readonly name: string;
  readonly inputs: Readonly<Record<string, InputSpec>>;
  readonly outputs: Readonly<Record<string, OutputSpec>>;
  /** The name of each axis, such as `{ T: 'numTokens' }`, by which kernels read its size. */
  readonly axes: Readonly<Record<string, string>>;
  readonly attributes: Readonly<Record<string, AttributeSpec>>;
  /** Axis letters whose size is a number attribute: `{ P: 'numParts' }`. */
  readonly attributeDims?: Readonly<Record<string, string>>;
  /** Axis letters whose sizes must be numbers, so that kernels can be specialized when a program is prepared. */
  readonly fixedAxes?: readonly string[];
  readonly partition: Partition;
  /**
   * Rough number of scalar steps, from which backends decide whether threads pay off: numbers, `operand.axis`,
   * `operand.numElements` and `attributes.name` joined by `+` and `*`. Default: one step per element of the first
   * input.
   */
  readonly work?: string;
  /** Base name of the kernel's file in every backend. Default: the name of the op; small pointwise ops share a file. */
  readonly kernelFile?: string;
  /** Checks rules beyond shapes and dtypes. Throws a typed error. */
  check?(shapes: Readonly<Record<string, readonly Dim[]>>, attributes: Attributes): void;
  /**
   * Takes the memory of one record, allocates its scratch, and returns the function that computes it. The
   * function reads the current sizes from the views on every call and allocates nothing.
   */
  bindReference(call: ReferenceCall): () => void;
  /** Floating-point operations; a multiply-add counts as two. */
  flops(shapes: RecordShapes, attributes: Attributes): number;
  /** Bytes that must be moved, if that is not every tensor once. Without `dtypes` all values count as f32. */
  bytes?(shapes: RecordShapes, attributes: Attributes, dtypes?: RecordDTypes): number;
}
