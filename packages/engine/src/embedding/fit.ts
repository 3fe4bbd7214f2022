/** Plans an embedding model within its memory budget and the limits of the backend. */
import type { FeedForwardLowering } from '@winnow/ops';
import {
  planEmbedding,
  programsOf,
  type EmbedderToPlan,
  type EmbeddingPlan,
  type EmbeddingPlanOptions,
} from './plan.js';
import { checkBuffers, type PlanLimits } from '../plan/memory-plan.js';
import { fitWeights, type FittedPlan } from '../plan/fit-weights.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';

/** A model to plan, before it is known which of its weights fit. */
export interface EmbedderToFit extends EmbedderToPlan {
  readonly sparse: SparseWeights | undefined;
  /** With `trace.feedForward`. */
  readonly traced?: FeedForwardLowering | undefined;
}

/**
 * @throws {ArgumentError} for options that this model does not support
 * @throws {CapacityError} when the limits are too small
 */
export function fitEmbedding(
  model: EmbedderToFit,
  options: EmbeddingPlanOptions,
  limits: PlanLimits,
): FittedPlan<EmbeddingPlan> {
  const { description, sparse, traced } = model;
  const fitted = fitWeights<EmbeddingPlan>({
    description,
    limitBytes: limits.maxTotalBytes,
    memory: options.memory,
    sparse,
    traced,
    maxTokensOf: ({ program }) => program.symbols.get('T') as number,
    plan: (feedForward) => planEmbedding(model, options, feedForward),
  });
  checkBuffers(programsOf(fitted.plan), limits);
  return fitted;
}
