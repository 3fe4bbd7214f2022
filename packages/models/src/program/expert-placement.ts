/**
 * The interface between MoE layers and expert storage: all experts are weights of the program, or some of them are in slots.
 */
import type { ProgramBuilder, ProgramTensor } from '@winnow/ops';

/** The matrices of a layer's experts. */
export const expertMatrices = ['gate', 'up', 'down'] as const;
export type ExpertMatrix = (typeof expertMatrices)[number];

/** Name of the stacked matrices `[X, O, I]` of a layer's experts. */
export function expertMatrixName(layer: number, matrix: ExpertMatrix): string {
  return `blk.${layer}.ffn_${matrix}_exps.weight`;
}

/** The selected experts of a layer. */
export interface LayerExperts {
  readonly layer: number;
  /** `[T, K]` i32. */
  readonly ids: ProgramTensor;
  readonly numExperts: number;
  readonly numChosen: number;
  /**
   * The experts `[T, K]` that another layer's router would select for this layer's input `[T, E]`: a prediction for
   * prefetching.
   */
  predict(layer: number): ProgramTensor | undefined;
}

/** Experts that are computed together. The results of all others are 0 in this pass. */
export interface ExpertPass {
  /** `[S, O, I]` */
  matrix(matrix: ExpertMatrix): ProgramTensor;
  /** `[X]` i32: the slot of each expert, negative for experts of other passes. */
  readonly slots: ProgramTensor;
}

/**
 * Returns the passes of a layer, or `undefined` when all its experts are weights of the program. The records of each pass
 * are appended before the next one is requested.
 */
export type ExpertPlacement = (b: ProgramBuilder, node: LayerExperts) => Iterable<ExpertPass> | undefined;
