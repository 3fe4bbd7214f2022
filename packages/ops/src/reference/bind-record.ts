/** Binds one record to host memory: views of its tensors, and the reference kernel of its op. */
import { tensorBytes, type DType } from '@winnow/tensor';
import { opSpec } from '../ops/registry.js';
import type { OpRecord, Program, TensorRef } from '../program/program.js';
import { maxElements } from '../spec/dims.js';
import type { RecordShapes, TensorView } from '../spec/op-spec.js';

/**
 * Finds the bytes `[byteOffset, byteOffset + sizeBytes)` of a tensor's buffer. Their memory is aligned for its dtype.
 */
export type BytesOf = (tensor: TensorRef, sizeBytes: number) => Uint8Array;

/** An axis whose size is a word of the scalar block. */
interface BoundAxis {
  readonly shape: number[];
  readonly axis: number;
  readonly word: number;
}

/** Tensors of a program as views of host memory, whose symbolic axes follow the scalars of the step. */
export class TensorViews {
  readonly #program: Program;
  readonly #bytesOf: BytesOf;
  readonly #axes: BoundAxis[] = [];

  constructor(program: Program, bytesOf: BytesOf) {
    this.#program = program;
    this.#bytesOf = bytesOf;
  }

  /** A view with room for the capacity of every symbol. */
  view(tensor: TensorRef): TensorView {
    const { scalars, symbols } = this.#program;
    const shape = tensor.shape.map((dim) => (typeof dim === 'number' ? dim : 0));
    for (const [axis, dim] of tensor.shape.entries()) {
      const slot = typeof dim === 'string' ? scalars.slots.get(dim) : undefined;
      if (slot !== undefined) this.#axes.push({ shape, axis, word: slot.wordOffset });
    }
    const numElements = maxElements(tensor.shape, symbols);
    const bytes = this.#bytesOf(tensor, tensorBytes(tensor.dtype, [numElements]));
    return { dtype: tensor.dtype, shape, data: typedView(bytes, tensor.dtype, numElements) };
  }

  /** Sets all symbolic axes to their sizes in this step. */
  resize(scalars: Int32Array): void {
    for (const { shape, axis, word } of this.#axes) shape[axis] = scalars[word];
  }
}

export interface BoundRecord {
  readonly run: () => void;
  readonly shapes: RecordShapes;
  /** Work of a run with the current shapes. */
  work(): { readonly flops: number; readonly bytes: number };
}

export function bindRecord(record: OpRecord, tensors: TensorViews): BoundRecord {
  const views = (refs: Readonly<Record<string, TensorRef>>): Record<string, TensorView> =>
    Object.fromEntries(Object.entries(refs).map(([name, tensor]) => [name, tensors.view(tensor)]));
  const inputs = views(record.inputs);
  const outputs = views(record.outputs);
  const all = [...Object.entries(outputs), ...Object.entries(inputs)]; // for equal names, the input's shape wins
  const shapes: RecordShapes = Object.fromEntries(all.map(([name, { shape }]) => [name, shape]));
  const dtypes: Record<string, DType> = Object.fromEntries(all.map(([name, { dtype }]) => [name, dtype]));
  const { attributes } = record;
  const spec = opSpec(record.op);
  return {
    run: spec.bindReference({ inputs, outputs, attributes }),
    shapes,
    work: () => ({
      flops: spec.flops(shapes, attributes),
      bytes:
        spec.bytes?.(shapes, attributes, dtypes) ??
        all.reduce((sum, [, { dtype, shape }]) => sum + tensorBytes(dtype, shape), 0),
    }),
  };
}

function typedView(bytes: Uint8Array, dtype: DType, numElements: number): TensorView['data'] {
  if (dtype === 'f32') return new Float32Array(bytes.buffer, bytes.byteOffset, numElements);
  if (dtype === 'i32') return new Int32Array(bytes.buffer, bytes.byteOffset, numElements);
  return bytes;
}
