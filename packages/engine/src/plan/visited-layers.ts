/** Makes the numbers of visited keys, which attention ops report, program outputs. */
import { lowerDenseAttention, type AttentionLowering, type ProgramBuilder } from '@winnow/ops';
import type { AttentionOutputs } from '@winnow/sparse-attention';

/** What a step needs to count the keys of a layer. */
export interface VisitedLayer {
  readonly layer: number;
  /** Number of keys that a query may attend to, including itself; 0 for all. */
  readonly window: number;
  /** Whether the window is a chunk. Default: it slides. */
  readonly chunked?: boolean;
}

/** Name of the i32 output `[T]` or `[T, K]`: keys of each query head. */
export function visitedOutput(layer: number): string {
  return `visited.${layer}`;
}

export class VisitedLayers {
  readonly #layers = new Map<number, VisitedLayer>();

  /** Those of all programs so far. */
  get layers(): readonly VisitedLayer[] {
    return [...this.#layers.values()];
  }

  /** Receives the outputs of sparse ops; a token that is also corrected visits more keys than its op reports. */
  readonly observe = (b: ProgramBuilder, layer: number, { pairs, densePairs }: AttentionOutputs): void => {
    if (pairs !== undefined && densePairs === undefined) b.output(visitedOutput(layer), pairs);
  };

  /** @param attend the lowering that attends */
  wrap(attend: AttentionLowering = lowerDenseAttention): AttentionLowering {
    return (b, node) => {
      const { layer, window, chunked = false } = node;
      this.#layers.set(layer, { layer, window, chunked });
      return attend(b, node);
    };
  }
}
