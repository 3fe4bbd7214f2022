/** Heads of rerankers: the layers after pooling. */
import type { ActivationKind } from '@winnow/ops';
import type { RankingHead } from '../program/embedding-program.js';
import { layerNorm, linear } from './decoder-blocks.js';

/** `cls.output(norm(act(cls x)))`; the norm is optional. */
export function classificationHead(kind: ActivationKind | 'tanh'): RankingHead {
  return (step, pooled) => {
    const dense = linear(step, 'cls', pooled);
    const activated =
      kind === 'tanh'
        ? step.b.activation('soft-cap', { x: dense }, { cap: 1 }) // cap * tanh(x / cap)
        : step.b.activation('activation', { x: dense }, { kind });
    const x = step.hasWeight('cls.norm.weight') ? layerNorm(step, 'cls.norm', activated) : activated;
    return linear(step, 'cls.output', x);
  };
}

/** The logits of the two answers of a judge. */
export const judgeHead: RankingHead = (step, pooled) => linear(step, 'cls.output', pooled);
