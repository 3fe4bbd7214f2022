import type { DType } from '@winnow/tensor';

/** Rows of gate, up and down of a neuron side by side. */
const sideBySide: Partial<Record<DType, number>> = {
  f32: 0.7,
  f16: 0.44,
  bf16: 0.67,
  q8_0: 0.65,
  q4_0: 0.54,
  q6_K: 0.24,
  q5_K: 0.18,
};
/** Matrices of their own. */
const apart: Partial<Record<DType, number>> = { ...sideBySide, f16: 0.42, q8_0: 0.44, q4_0: 0.29 };
/** q4_K, and types that were not measured. */
const least = 0.17;

/**
 * The share of active neurons from which on a feed-forward block that computes all of them takes less time, for one token on
 * the WebAssembly backend: at most the least over threads and, with q8_0 and q4_0, sizes of blocks and two machines (`pnpm bench ffn`,
 * decision 0015). It depends on what dense products gain from having their matrices otherwise, which is most for k-quants. It compares with
 * matrices as dense products want them; within a program whose rows lie neuron by neuron, fewer neurons are always faster.
 * @param dtype type of the rows
 * @param areSideBySide whether a neuron's rows are read side by side: by guesses of gate and up, with one type of matrices and no biases
 */
export function breakEvenRatio(dtype: DType, areSideBySide: boolean): number {
  return (areSideBySide ? sideBySide : apart)[dtype] ?? least;
}
