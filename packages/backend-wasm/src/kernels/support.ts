/** Which ops and dtypes have kernels. */
import { opSpecs, weightDTypes, type OpDescription, type Support } from '@winnow/ops';
import { dequantizedDTypes, kernelOps } from './kernel-ops.generated.js';

const specs = new Map(opSpecs.map((spec) => [spec.name, spec]));

export function supportOf(op: string, { dtypes }: OpDescription): Support {
  const spec = specs.get(op);
  if (spec === undefined) return { supported: false, reason: 'no such op' };
  if (!kernelOps.has(op)) return { supported: false, reason: 'no kernel' };
  for (const [name, dtype] of Object.entries(dtypes)) {
    const allowed = spec.inputs[name]?.dtypes ?? spec.outputs[name]?.dtypes ?? [];
    if (!allowed.includes(dtype)) return { supported: false, reason: `${name} cannot be ${dtype}` };
    if (allowed === weightDTypes && !dequantizedDTypes.has(dtype)) {
      return { supported: false, reason: `no kernel dequantizes ${dtype}` };
    }
  }
  return { supported: true };
}
