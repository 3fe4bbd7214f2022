/** What one op is: its tensors, shape contract, attributes, cost, and the reference that defines its result. */
import type { DType } from '@winnow/tensor';
import type { Dim } from './dims.js';

/** A value fixed when the program is built. */
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
  /** The output may take the memory of this input, element for element. */
  readonly mayAlias?: string;
  /** The op changes parts of a tensor that exists already (a cache); the caller provides it. */
  readonly updates?: boolean;
  /** The boolean attribute that asks for this output; where it is false there is none. */
  readonly when?: string;
}

/** An attribute of an op. Without `default` it is required. */
export interface AttributeSpec {
  readonly kind: 'number' | 'string' | 'boolean';
  readonly default?: AttributeValue;
  /** The strings that are allowed, in the order of their encoded numbers. */
  readonly values?: readonly string[];
  /** Numbers that are encoded as integers; others are encoded as f32. */
  readonly integer?: boolean;
}

/** A tensor as the reference sees it. `shape` changes from step to step, `data` stays. */
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
 * The dimensions of a record's tensors, with symbols replaced by numbers. Where an input and an output have one name,
 * it is the input.
 */
export type RecordShapes = Readonly<Record<string, readonly number[]>>;

/** The dtypes of a record's tensors. */
export type RecordDTypes = Readonly<Record<string, DType>>;

/** How an op may be shared among threads. The cut depends on shapes alone, never on the number of threads. */
export type Partition = 'rows' | 'tokens' | 'heads' | 'serial';

/** One op. */
export interface OpSpec {
  readonly name: string;
  readonly inputs: Readonly<Record<string, InputSpec>>;
  readonly outputs: Readonly<Record<string, OutputSpec>>;
  /** What each axis letter counts, such as `{ T: 'numTokens' }`: the names by which kernels read sizes. */
  readonly axes: Readonly<Record<string, string>>;
  readonly attributes: Readonly<Record<string, AttributeSpec>>;
  /** Axis letters whose size is a number attribute: `{ P: 'numParts' }`. */
  readonly attributeDims?: Readonly<Record<string, string>>;
  /** Axis letters whose sizes must be numbers, so that kernels can be specialized when a program is prepared. */
  readonly fixedAxes?: readonly string[];
  readonly partition: Partition;
  /**
   * Rough number of scalar steps, by which backends decide whether threads are worth it: numbers, `operand.axis`,
   * `operand.numElements` and `attributes.name` joined by `+` and `*`. Default: one step per element of the first input.
   */
  readonly work?: string;
  /** Base name of the kernel's file in every backend. Default: the name of the op; small pointwise ops share a file. */
  readonly kernelFile?: string;
  /** Rules beyond shapes and dtypes. Throws a typed error. */
  check?(shapes: Readonly<Record<string, readonly Dim[]>>, attributes: Attributes): void;
  /**
   * Takes the memory of one record, allocates what scratch it needs, and returns the function that computes it. The
   * function reads the current sizes from the views on every call and allocates nothing.
   */
  bindReference(call: ReferenceCall): () => void;
  /** Floating-point operations; a multiply-add counts as two. */
  flops(shapes: RecordShapes, attributes: Attributes): number;
  /** Bytes that must be moved, when that is not simply every tensor once. Without `dtypes` all values count as f32. */
  bytes?(shapes: RecordShapes, attributes: Attributes, dtypes?: RecordDTypes): number;
}
