/** Records without a kernel, computed by the reference on the host over the same memory. */
import { opSpec, type OpRecord, type Program, type TensorRef, type TensorView } from '@winnow/ops';
import { tensorBytes } from '@winnow/tensor';
import { capacityOf, product, shapeOf } from './record-shapes.js';

/** @param bytesOf the memory `[offset, offset + length)` of a program buffer */
export function bindFallback(
  program: Program,
  record: OpRecord,
  bytesOf: (tensor: TensorRef, length: number) => Uint8Array,
): (scalars: Int32Array) => void {
  const bound: { readonly view: TensorView; readonly tensor: TensorRef }[] = [];
  const views = (tensors: Readonly<Record<string, TensorRef>>): Record<string, TensorView> =>
    Object.fromEntries(
      Object.entries(tensors).map(([name, tensor]) => {
        const capacity = capacityOf(program, tensor);
        const bytes = bytesOf(tensor, tensorBytes(tensor.dtype, capacity));
        const view = { dtype: tensor.dtype, shape: capacity, data: typed(bytes, tensor, product(capacity)) };
        bound.push({ view, tensor });
        return [name, view];
      }),
    );
  const run = opSpec(record.op).bindReference({
    inputs: views(record.inputs),
    outputs: views(record.outputs),
    attributes: record.attributes,
  });
  return (scalars) => {
    for (const { view, tensor } of bound) {
      for (const [axis, size] of shapeOf(program, tensor, scalars).entries()) view.shape[axis] = size;
    }
    run();
  };
}

function typed(bytes: Uint8Array, { dtype }: TensorRef, numElements: number): TensorView['data'] {
  if (dtype === 'f32') return new Float32Array(bytes.buffer, bytes.byteOffset, numElements);
  if (dtype === 'i32') return new Int32Array(bytes.buffer, bytes.byteOffset, numElements);
  return bytes;
}
