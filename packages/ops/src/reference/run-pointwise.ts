/** Pointwise ops on host arrays, for code without a program. */
import { opSpec } from '../ops/registry.js';
import { checkAttributes } from '../spec/infer-op.js';
import type { Attributes, TensorView } from '../spec/op-spec.js';

/**
 * Runs the reference of a pointwise op, such as `glu`, on arrays of the same length.
 * @throws {ArgumentError} for attributes that the op does not have
 */
export function runPointwise(
  op: string,
  inputs: Readonly<Record<string, Float32Array>>,
  y: Float32Array,
  attributes: Attributes,
): void {
  const view = (data: Float32Array): TensorView => ({ data, dtype: 'f32', shape: [data.length] });
  const views = Object.fromEntries(Object.entries(inputs).map(([name, data]) => [name, view(data)]));
  const spec = opSpec(op);
  spec.bindReference({ inputs: views, outputs: { y: view(y) }, attributes: checkAttributes(spec, attributes) })();
}
