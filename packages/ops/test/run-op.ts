/** Runs one reference kernel on plain arrays. */
import { sizeOf, type DType } from '@winnow/tensor';
import { opSpec } from '../src/ops/registry.js';
import { inferOp } from '../src/spec/infer-op.js';
import type { Attributes, TensorView } from '../src/spec/op-spec.js';

export function floats(values: ArrayLike<number>, ...shape: number[]): TensorView {
  return { dtype: 'f32', shape, data: Float32Array.from(values) };
}

export function ints(values: ArrayLike<number>, ...shape: number[]): TensorView {
  return { dtype: 'i32', shape, data: Int32Array.from(values) };
}

export function packed(dtype: DType, bytes: Uint8Array, ...shape: number[]): TensorView {
  return { dtype, shape, data: bytes };
}

/** Zeros of any dtype. */
export function zeros(dtype: DType, ...shape: number[]): TensorView {
  const numValues = shape.reduce((product, dim) => product * dim, 1);
  if (dtype === 'f32') return { dtype, shape, data: new Float32Array(numValues) };
  if (dtype === 'i32') return { dtype, shape, data: new Int32Array(numValues) };
  return { dtype, shape, data: new Uint8Array(sizeOf(dtype, numValues)) };
}

/** Infers, allocates dirty outputs, runs, and returns the data of each output. */
export function runOp(
  op: string,
  inputs: Record<string, TensorView>,
  attributes: Attributes = {},
  updated: Record<string, TensorView> = {},
): Record<string, number[]> {
  const spec = opSpec(op);
  const inferred = inferOp(spec, inputs, attributes, updated);
  const outputs: Record<string, TensorView> = {};
  for (const [name, { dtype, shape }] of Object.entries(inferred.outputs)) {
    outputs[name] = updated[name] ?? zeros(dtype, ...(shape as number[]));
    if (updated[name] === undefined) (outputs[name].data as Float32Array).fill(dtype === 'f32' ? NaN : -77);
  }
  spec.bindReference({ inputs, outputs, attributes: inferred.attributes })();
  return Object.fromEntries(Object.entries(outputs).map(([name, { data }]) => [name, Array.from(data)]));
}
