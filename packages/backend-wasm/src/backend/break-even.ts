import type { Backend, NeuronLayout } from '@winnow/ops';
import type { DType } from '@winnow/tensor';

const interleaved: Partial<Record<DType, number>> = {
  f32: 0.7,
  f16: 0.44,
  bf16: 0.67,
  q8_0: 0.65,
  q4_0: 0.54,
  q6_K: 0.24,
  q5_K: 0.18,
};
const measured: Readonly<Record<NeuronLayout, Partial<Record<DType, number>>>> = {
  interleaved,
  separate: { ...interleaved, f16: 0.42, q8_0: 0.44, q4_0: 0.29 },
};
/** q4_K, and dtypes that were not measured. */
const least = 0.17;

/**
 * `Backend.breakEvenRatio` of the WebAssembly kernels: the minimum over thread counts and, for q8_0 and q4_0, block
 * sizes and two machines (`pnpm bench ffn`, decision 0015). It compares with matrices repacked for dense GEMV, which
 * helps K-quants most; with interleaved neurons, fewer neurons are always faster. Not measured with native kernels.
 */
export const breakEvenRatio: Backend['breakEvenRatio'] = (dtype, layout) => measured[layout][dtype] ?? least;
