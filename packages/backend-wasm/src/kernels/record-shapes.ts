/** The sizes of a record's tensors in a step. */
import type { OpRecord, Program, RecordShapes, TensorRef } from '@winnow/ops';
import { tensorBytes, type DType } from '@winnow/tensor';

/** Size of every axis, symbols read from the scalar words. */
export function shapeOf(program: Program, { shape }: TensorRef, scalars: Int32Array): number[] {
  return shape.map((dim) =>
    typeof dim === 'number' ? dim : scalars[(program.scalars.slots.get(dim) as { wordOffset: number }).wordOffset],
  );
}

/** Size of every axis with every symbol at its capacity. */
export function capacityOf({ symbols }: Program, { shape }: TensorRef): number[] {
  return shape.map((dim) => (typeof dim === 'number' ? dim : (symbols.get(dim) as number)));
}

export function product(shape: readonly number[]): number {
  return shape.reduce((result, dim) => result * dim, 1);
}

/** If an input and an output have the same name, it is the input. */
export function shapesOf(program: Program, record: OpRecord, scalars: Int32Array): RecordShapes {
  const tensors = Object.entries({ ...record.outputs, ...record.inputs });
  return Object.fromEntries(tensors.map(([name, tensor]) => [name, shapeOf(program, tensor, scalars)]));
}

export function dtypesOf({ inputs, outputs }: OpRecord): Record<string, DType> {
  return Object.fromEntries(Object.entries({ ...outputs, ...inputs }).map(([name, { dtype }]) => [name, dtype]));
}

/** Bytes of every tensor of the record, once. */
export function bytesOfRecord(program: Program, { inputs, outputs }: OpRecord, scalars: Int32Array): number {
  let sum = 0;
  for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) {
    sum += tensorBytes(tensor.dtype, shapeOf(program, tensor, scalars));
  }
  return sum;
}
