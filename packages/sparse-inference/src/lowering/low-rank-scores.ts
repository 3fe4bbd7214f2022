/** Scores of low-rank predictors in programs. */
import type { ActivationKind, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { bytesOf } from '../bytes.js';
import { estimatesOf, type ScoreTables, type LowRankEstimate, type PredictorTables } from '../sidecar/sidecar.js';

/** A program weight that is not in the model file. */
export interface PredictorWeight {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/**
 * The weights that `appendScores` reads, by names such as `p` or `gate.p`. Empty for predictors with only thresholds.
 */
export function scoreWeights(predictor: PredictorTables | ScoreTables): Map<string, PredictorWeight> {
  const weights = new Map<string, PredictorWeight>();
  for (const [prefix, { p, q, bias }] of estimatesOf(predictor)) {
    for (const [part, { dtype, numRows, numColumns, bytes }] of Object.entries({ p, q })) {
      weights.set(`${prefix}${part}`, { dtype, shape: [numRows, numColumns], bytes });
    }
    if (bias !== undefined) weights.set(`${prefix}bias`, { dtype: 'f32', shape: [bias.length], bytes: bytesOf(bias) });
  }
  return weights;
}

/**
 * Appends `q (p x) + bias`, or the product `act(estimate of gate) * (estimate of up)`.
 * @param x `[T, E]`
 * @param nameOf the external weight of a name of `scoreWeights`
 * @returns `[T, F]`
 */
export function appendScores(
  b: ProgramBuilder,
  predictor: ScoreTables,
  { x, activation: kind }: { readonly x: ProgramTensor; readonly activation: ActivationKind },
  nameOf: (name: string) => string,
): ProgramTensor {
  const weights = scoreWeights(predictor);
  const external = (name: string): ProgramTensor | undefined => {
    const weight = weights.get(name);
    return weight && b.external(nameOf(name), 'weights', weight.dtype, weight.shape);
  };
  const append = ([prefix]: readonly [string, LowRankEstimate]): ProgramTensor => {
    const z = b.activation('matmul', { x, weight: external(`${prefix}p`) });
    return b.activation('matmul', { x: z, weight: external(`${prefix}q`), bias: external(`${prefix}bias`) });
  };
  const [first, second] = estimatesOf(predictor).map(append);
  if (second === undefined) return first as ProgramTensor;
  return b.activation('glu', { gate: first, up: second }, { kind });
}
