/** The seam between experts and where they are: all in the weights of the program, or some of them in slots. */
import type { ProgramBuilder, ProgramTensor } from '@winnow/ops';

/** The matrices of a layer's experts; files may hold `gate` and `up` as one. */
export type ExpertMatrix = 'gate' | 'up' | 'gate_up' | 'down';

/** Name of the stacked matrices `[X, O, I]` of a layer's experts. */
export function expertMatrixName(layer: number, matrix: ExpertMatrix): string {
  return `blk.${layer}.ffn_${matrix}_exps.weight`;
}

/** One layer's experts as they were chosen. */
export interface ExpertSite {
  readonly layer: number;
  /** `[T, K]` i32. */
  readonly ids: ProgramTensor;
  readonly numExperts: number;
  readonly numChosen: number;
  readonly matrices: readonly ExpertMatrix[];
  /** Which experts another layer's router would choose for this layer's input `[T, E]`: `[T, K]`; a guess to read ahead by. */
  guess(layer: number): ProgramTensor | undefined;
}

/** Experts that are computed together. Products of the others are 0 in this pass. */
export interface ExpertPass {
  /** `[S, O, I]` */
  matrix(matrix: ExpertMatrix): ProgramTensor;
  /** `[X]` i32: where in the matrices each expert is, negative for those of other passes. */
  readonly slots: ProgramTensor;
}

/**
 * Gives the passes of a layer, or nothing when its experts are all in the weights; the records of each pass are appended
 * before the next one is asked for.
 */
export type ExpertPlacement = (b: ProgramBuilder, site: ExpertSite) => Iterable<ExpertPass> | undefined;
