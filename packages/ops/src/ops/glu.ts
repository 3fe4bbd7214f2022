import { ArgumentError } from '@winnow/tensor';
import { activationFunction, activationKinds, type ActivationKind } from '../numerics/activation-functions.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { Attributes, OpSpec } from '../spec/op-spec.js';

/**
 * Gated linear unit: `y = kind(gate) * up` (SwiGLU, GeGLU, ReGLU). Source: arXiv:2002.05202 eq. 5. With a count, such as
 * the number of active neurons of `sparse-matmul`, only columns below it are computed; the others are 0.
 *
 * With a `limit` L above 0, the clamped GLU of gpt-oss (arXiv:2508.10925, and modeling_gpt_oss.py of Transformers): `y =
 * kind(alpha min(gate, L)) / alpha * (min(max(up, -L), L) + 1)`, not with a count.
 *
 * Shapes: gate, up and y `[...]` f32, count `[1]` i32 up to the last axis; y may take the memory of gate.
 */
export const glu: OpSpec = {
  name: 'glu',
  inputs: {
    gate: { dtypes: f32Only, shape: '...' },
    up: { dtypes: f32Only, shape: '...' },
    count: { dtypes: i32Only, shape: '1', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'gate' } },
  axes: {},
  attributes: {
    kind: { kind: 'string', values: activationKinds },
    limit: { kind: 'number', default: 0 },
    alpha: { kind: 'number', default: 1 },
  },
  partition: 'tokens',
  work: '8 * gate.numElements',
  kernelFile: 'pointwise',
  check({ count }, { limit, alpha }) {
    const isClamped = Number(limit) !== 0;
    const refuse = (argument: string, expected: string, actual: unknown): ArgumentError =>
      new ArgumentError({ argument: `glu: ${argument}`, expected, actual: String(actual) });
    if (Number(limit) < 0) throw refuse('limit', '0 or more', limit);
    if (isClamped && count !== undefined) throw refuse('limit', '0 with a count', limit);
    if (isClamped ? !(Number(alpha) > 0) : alpha !== 1)
      throw refuse('alpha', isClamped ? 'more than 0' : '1 without a limit', alpha);
  },
  bindReference({ inputs: { gate, up, count }, outputs: { y }, attributes }) {
    const apply = gluFunction(attributes);
    return () => {
      const numValues = gate.shape.reduce((product, dim) => product * dim, 1);
      const numColumns = gate.shape.at(-1) ?? 1;
      const numComputed = count === undefined ? numColumns : count.data[0];
      for (let i = 0; i < numValues; i++) {
        y.data[i] = i % numColumns < numComputed ? apply(gate.data[i], up.data[i]) : 0;
      }
    };
  },
  flops: ({ gate }) => 9 * gate.reduce((product, dim) => product * dim, 1),
};

function gluFunction(attributes: Attributes): (gate: number, up: number) => number {
  const apply = activationFunction(attributes['kind'] as ActivationKind);
  const [limit, alpha] = [attributes['limit'] as number, attributes['alpha'] as number];
  if (limit === 0) return (gate, up) => apply(gate) * up;
  return (gate, up) => (apply(alpha * Math.min(gate, limit)) / alpha) * (Math.min(Math.max(up, -limit), limit) + 1);
}
