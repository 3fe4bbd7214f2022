/** Heads as models have them, without a model: for every kind one layer. */
import { headKinds, syntheticAttention } from '@winnow/sparse-attention';
import type { AttentionCapture } from './capture.js';

/** The same options give the same layers. */
export function syntheticCaptures(seqLen: number, seed: number): AttentionCapture[] {
  return headKinds.map((kind) => {
    const { q, k, v, unrotatedQ, rotate } = syntheticAttention({ kind, seqLen, seed });
    return { name: kind, layer: undefined, q, k, v, unrotatedQ, rotate, scale: 1 / Math.sqrt(q.headDim) };
  });
}
