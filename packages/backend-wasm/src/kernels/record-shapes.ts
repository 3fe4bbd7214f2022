/** The sizes of a record's tensors in a step. */
import { shapeInStep, type OpRecord, type Program, type RecordShapes, type TensorRef } from '@winnow/ops';
import { tensorBytes, type DType } from '@winnow/tensor';

/** Size of every axis with every symbol at its capacity. */
export function capacityOf({ symbols }: Program, { shape }: TensorRef): number[] {
  return shape.map((dim) => (typeof dim === 'number' ? dim : (symbols.get(dim) as number)));
}

export function product(shape: readonly number[]): number {
  return shape.reduce((result, dim) => result * dim, 1);
}

/** The shapes of a record's tensors by name; an input takes precedence over an output of the same name. */
export function shapesOf(program: Program, record: OpRecord, scalars: Int32Array): RecordShapes {
  const tensors = Object.entries({ ...record.outputs, ...record.inputs });
  return Object.fromEntries(tensors.map(([name, tensor]) => [name, shapeInStep(program, tensor.shape, scalars)]));
}

export function dtypesOf({ inputs, outputs }: OpRecord): Record<string, DType> {
  return Object.fromEntries(Object.entries({ ...outputs, ...inputs }).map(([name, { dtype }]) => [name, dtype]));
}

/** Bytes of every tensor of the record, once. */
export function bytesOfRecord(program: Program, { inputs, outputs }: OpRecord, scalars: Int32Array): number {
  let sum = 0;
  for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) {
    sum += tensorBytes(tensor.dtype, shapeInStep(program, tensor.shape, scalars));
  }
  return sum;
}
