/** The plan of a model that generates, within the memory limit of its options. */
import type { ModelDescription } from '@winnow/models';
import { fitWeights, type FittedPlan } from './fit-weights.js';
import { planModel, type ModelPlan } from './model-plan.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import type { LoadOptions } from '../types.js';

/** @throws {ArgumentError} for options that make no sense for this model @throws {CapacityError} when the limit is too small */
export function fitModel(
  description: ModelDescription,
  options: LoadOptions,
  sparse: SparseWeights | undefined,
): FittedPlan<ModelDescription, ModelPlan> {
  const { onEvent: _told, ...quiet } = options;
  return fitWeights({
    description,
    limitBytes: options.memoryLimitBytes,
    tiers: options.weightTiers,
    sparse,
    maxTokensOf: ({ programs: [, batch] }) => batch.symbols.get('T') as number,
    plan: (candidate, isFirst) => planModel(candidate, isFirst ? options : quiet),
  });
}
