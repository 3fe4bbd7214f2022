/** Which ops and dtypes have kernels. */
import { opSpecs, weightDTypes, type OpDescription, type Support } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { kernelOps } from './kernel-ops.generated.js';

/** Weight dtypes that `assembly/quant/dequantize.ts` and `dequantize-iq.ts` know. */
const dequantized: ReadonlySet<DType> = new Set<DType>([
  ...(['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K'] as const),
  ...(['iq1_s', 'iq1_m', 'iq2_xxs', 'iq2_xs', 'iq2_s', 'iq3_xxs', 'iq3_s', 'iq4_nl', 'iq4_xs'] as const),
  ...(['tq1_0', 'tq2_0', 'mxfp4'] as const),
]);

export function supportOf(op: string, { dtypes }: OpDescription): Support {
  const spec = opSpecs.find(({ name }) => name === op);
  if (spec === undefined) return { supported: false, reason: 'no such op' };
  if (!kernelOps.has(op)) return { supported: false, reason: 'no kernel' };
  for (const [name, dtype] of Object.entries(dtypes)) {
    const allowed = spec.inputs[name]?.dtypes ?? spec.outputs[name]?.dtypes ?? [];
    if (!allowed.includes(dtype)) return { supported: false, reason: `${name} cannot be ${dtype}` };
    if (allowed === weightDTypes && !dequantized.has(dtype)) {
      return { supported: false, reason: `no kernel dequantizes ${dtype}` };
    }
  }
  return { supported: true };
}
