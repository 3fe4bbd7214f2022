import type { Backend, NeuronLayout } from '@winnow/ops';
import type { DType } from '@winnow/tensor';

type Ratios = Readonly<Record<NeuronLayout, Partial<Record<DType, number>>>>;

interface Measured {
  readonly ratios: Ratios;
  /** For other dtypes. */
  readonly least: number;
}

const interleaved: Partial<Record<DType, number>> = {
  f32: 0.7,
  f16: 0.44,
  bf16: 0.67,
  q8_0: 0.65,
  q4_0: 0.54,
  q6_K: 0.24,
  q5_K: 0.18,
};

/**
 * The minimum over thread counts and, for q8_0 and q4_0, block sizes and two machines (`pnpm bench ffn`, decision 0015,
 * docs/benchmarks/sparse-ffn.md).
 */
const webAssembly: Measured = {
  ratios: { interleaved, separate: { ...interleaved, f16: 0.42, q8_0: 0.44, q4_0: 0.29 } },
  least: 0.17,
};

/**
 * On two threads, the lower count (docs/benchmarks/2026-11-28-epyc-2-cores/ffn.txt); interleaved q8_0 from
 * docs/benchmarks/2026-11-24-epyc-2-cores/kernels.txt, where it was lower. Sparse kernels of K-quants dequantize.
 */
const native: Measured = {
  ratios: {
    interleaved: { f32: 0.63, f16: 0.67, bf16: 0.64, q8_0: 0.79, q4_0: 0.67, q6_K: 0.1, q5_K: 0.15, q4_K: 0.13 },
    separate: { f32: 0.51, f16: 0.56, bf16: 0.54, q8_0: 0.33, q4_0: 0.22, q5_K: 0.14, q4_K: 0.11 },
  },
  least: 0.08,
};

/**
 * `Backend.breakEvenRatio` of the kernels in use. It compares with matrices repacked for dense GEMV, which helps
 * K-quants most; with interleaved neurons, fewer neurons are always faster.
 */
export function breakEvenRatioOf(kernels: 'wasm' | 'native'): Backend['breakEvenRatio'] {
  const { ratios, least } = kernels === 'native' ? native : webAssembly;
  return (dtype, layout) => ratios[layout][dtype] ?? least;
}
