/** Synthetic heads of the kinds that models have: one layer per kind. */
import { headKinds, syntheticAttention } from '@winnow/sparse-attention';
import type { AttentionCapture } from './capture.js';

/** Deterministic: the same options give the same layers. */
export function syntheticCaptures(seqLen: number, seed: number): AttentionCapture[] {
  return headKinds.map((kind) => {
    const { q, k, v, unrotatedQ, rotate } = syntheticAttention({ kind, seqLen, seed });
    return { name: kind, layer: undefined, q, k, v, unrotatedQ, rotate, scale: 1 / Math.sqrt(q.headDim) };
  });
}
