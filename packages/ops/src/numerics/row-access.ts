/** Reading and writing rows of any dtype as f32, without allocation. For reference kernels. */
import { decoder, dtypeInfo, encoder, type DType } from '@winnow/tensor';
import type { TensorView } from '../spec/op-spec.js';

/** Copies `length` values from element `begin` of the tensor to `out[outOffset...]`. */
export type RowReader = (begin: number, length: number, out: Float32Array, outOffset: number) => void;

/** `begin` must be the start of a block. */
export function rowReader({ data, dtype }: TensorView): RowReader {
  if (dtype === 'f32') {
    const values = data as Float32Array;
    return (begin, length, out, outOffset) => {
      for (let i = 0; i < length; i++) out[outOffset + i] = values[begin + i];
    };
  }
  const bytes = data as Uint8Array;
  const decode = decoder(dtype);
  const offsetOf = blockOffset(dtype);
  return (begin, length, out, outOffset) => decode(bytes, offsetOf(begin), out, outOffset, length);
}

/** Rows of a tensor as f32: those of f32 tensors in place, others dequantized into the same scratch row. */
export interface Rows {
  readonly values: Float32Array;
  /** Index in `values` of the row at element `begin`, which is the start of a block; valid until the next call. */
  at(begin: number): number;
}

export function rowsOf(tensor: TensorView, length: number): Rows {
  if (tensor.dtype === 'f32') return { values: tensor.data as Float32Array, at: (begin) => begin };
  const values = new Float32Array(length);
  const read = rowReader(tensor);
  return {
    values,
    at(begin) {
      read(begin, length, values, 0);
      return 0;
    },
  };
}

/** Stores `length` values of `values[valuesOffset...]` at element `begin` of the tensor. */
export type RowWriter = (values: Float32Array, valuesOffset: number, length: number, begin: number) => void;

export function rowWriter({ data, dtype }: TensorView): RowWriter {
  if (dtype === 'f32') {
    const target = data as Float32Array;
    return (values, valuesOffset, length, begin) => {
      for (let i = 0; i < length; i++) target[begin + i] = values[valuesOffset + i];
    };
  }
  const bytes = data as Uint8Array;
  const encode = encoder(dtype);
  const offsetOf = blockOffset(dtype);
  return (values, valuesOffset, length, begin) => encode(values, valuesOffset, bytes, offsetOf(begin), length);
}

function blockOffset(dtype: DType): (element: number) => number {
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  return (element) => (element / blockSize) * blockBytes;
}
