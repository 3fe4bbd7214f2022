/**
 * The share of active neurons from which on a feed-forward block that computes all of them takes less time, for one token on
 * the WebAssembly backend: the least over block sizes and threads (`pnpm bench ffn`, decision 0015). It depends on what dense
 * products gain from having their matrices otherwise, which is most for 16 bits and least for 8 and 32. It compares with
 * matrices as dense products want them; within a program whose rows lie neuron by neuron, fewer neurons are always faster.
 * @param bitsPerWeight scales included: 8.5 for q8_0, 4.5 for q4_0. Measured: these, f16 and f32; others count as the next with
 *   fewer bits, or as q4_0
 */
export function breakEvenRatio(bitsPerWeight: number): number {
  if (bitsPerWeight >= 32) return 0.7;
  if (bitsPerWeight >= 16) return 0.44;
  return bitsPerWeight >= 8 ? 0.8 : 0.74;
}
