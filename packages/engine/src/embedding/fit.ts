/** Plans an embedding model within its memory budget and the limits of the backend. */
import type { EmbedderDescription, Pooling } from '@winnow/models';
import { planEmbedding, programsOf, type EmbeddingPlan, type EmbeddingPlanOptions } from './plan.js';
import { checkBuffers, type PlanLimits } from '../plan/memory-plan.js';
import { fitWeights, type FittedPlan } from '../plan/fit-weights.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';

/** A model as its files and the options describe it. */
export interface EmbedderToFit {
  readonly description: EmbedderDescription;
  readonly pooling: Pooling;
  /** Tokens of a text that the model was made for, if it says so. */
  readonly recommendedSize: number | undefined;
  readonly sparse: SparseWeights | undefined;
}

/**
 * @throws {ArgumentError} for options that this model does not support
 * @throws {CapacityError} when the limits are too small
 */
export function fitEmbedding(
  { description, pooling, recommendedSize, sparse }: EmbedderToFit,
  options: EmbeddingPlanOptions,
  limits: PlanLimits,
): FittedPlan<EmbedderDescription, EmbeddingPlan> {
  const fitted = fitWeights<EmbedderDescription, EmbeddingPlan>({
    description,
    limitBytes: limits.maxTotalBytes,
    memory: options.memory,
    sparse,
    maxTokensOf: ({ program }) => program.symbols.get('T') as number,
    plan: (candidate) => planEmbedding(candidate, pooling, recommendedSize, options),
  });
  checkBuffers(programsOf(fitted.plan), limits);
  return fitted;
}
