/** Which ops and dtypes have kernels. */
import { opSpecs, type OpDescription, type OpRecord, type Support } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { dtypesOf } from './record-shapes.js';

/** Ops of `assembly/ops`. */
const kernels: ReadonlySet<string> = new Set([
  ...['embedding-lookup', 'rms-norm', 'layer-norm', 'matmul', 'rope', 'softmax', 'activation', 'gated-activation'],
  ...['add', 'soft-cap', 'gather-rows', 'position-append', 'kv-append', 'attention', 'attention-partial'],
  ...['attention-merge', 'attention-finish', 'arg-max', 'top-k', 'log-sum-exp', 'multiply', 'scale', 'scale-rows'],
  ...['pool-rows', 'slice-columns', 'expert-route', 'expert-matmul', 'expert-combine', 'short-conv', 'gated-delta'],
  ...['block-mean-append', 'block-box-append', 'key-columns-append', 'clamp-positions', 'subquadratic-attention'],
  ...['streaming-attention', 'sparq-attention', 'page-topk-attention', 'oracle-topk-attention', 'h2o-attention'],
  ...['state-carry', 'attention-mass', 'hadamard', 'active-neurons', 'sparse-matmul', 'gather-columns'],
  ...['sparse-combine', 'sparse-feed-forward', 'scatter-rows'],
]);

/** Weight dtypes that `assembly/quant/dequantize.ts` and `dequantize-iq.ts` know. */
const decoded: ReadonlySet<DType> = new Set<DType>([
  ...(['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K'] as const),
  ...(['iq1_s', 'iq1_m', 'iq2_xxs', 'iq2_xs', 'iq2_s', 'iq3_xxs', 'iq3_s', 'iq4_nl', 'iq4_xs'] as const),
  ...(['tq1_0', 'tq2_0', 'mxfp4'] as const),
]);

/** Inputs that may have any weight dtype. */
const weightInputs: ReadonlySet<string> = new Set([
  ...['matmul weight', 'embedding-lookup table', 'expert-matmul weight', 'sparse-matmul weight'],
  ...['sparse-combine weight', 'sparse-feed-forward weight'],
]);

export function supportOf(op: string, { dtypes }: OpDescription): Support {
  const spec = opSpecs.find(({ name }) => name === op);
  if (spec === undefined) return { supported: false, reason: 'no such op' };
  if (!kernels.has(op)) return { supported: false, reason: 'no kernel' };
  for (const [name, dtype] of Object.entries(dtypes)) {
    const allowed = spec.inputs[name]?.dtypes ?? spec.outputs[name]?.dtypes ?? [];
    if (!allowed.includes(dtype)) return { supported: false, reason: `${name} cannot be ${dtype}` };
    if (weightInputs.has(`${op} ${name}`) && !decoded.has(dtype)) {
      return { supported: false, reason: `no decoder of ${dtype}` };
    }
  }
  return { supported: true };
}

/** The same question for a record of a program. */
export function supportOfRecord(record: OpRecord): Support {
  return supportOf(record.op, { dtypes: dtypesOf(record), attributes: record.attributes });
}
