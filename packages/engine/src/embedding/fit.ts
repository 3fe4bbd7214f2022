/** Plans an embedding model within its memory budget and the limits of the backend. */
import type { EmbedderDescription, Pooling } from '@winnow/models';
import { planEmbedding, programsOf, type EmbeddingPlan, type EmbeddingPlanOptions } from './plan.js';
import { checkBuffers, type PlanLimits } from '../plan/memory-plan.js';
import { fitWeights, type FittedPlan } from '../plan/fit-weights.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';

/**
 * @throws {ArgumentError} for options that this model does not support
 * @throws {CapacityError} when the limits are too small
 */
export function fitEmbedding(
  description: EmbedderDescription,
  pooling: Pooling,
  recommendedSize: number | undefined,
  options: EmbeddingPlanOptions,
  sparse: SparseWeights | undefined,
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
