/** The plan of a model that generates, within the memory limit of its options. */
import type { ModelDescription } from '@winnow/models';
import { fitWeights, type FittedPlan } from './fit-weights.js';
import { planModel, type ModelPlan } from './model-plan.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import type { SparseLoadOptions } from '../weight-offload/options.js';
import type { PlanOptions } from './options.js';

/** @throws {ArgumentError} for options that make no sense for this model @throws {CapacityError} when the limit is too small */
export function fitModel(
  description: ModelDescription,
  options: PlanOptions & Pick<SparseLoadOptions, 'weightTiers'>,
  sparse: SparseWeights | undefined,
  notice: (text: string) => void,
): FittedPlan<ModelDescription, ModelPlan> {
  return fitWeights({
    description,
    limitBytes: options.memoryLimitBytes,
    tiers: options.weightTiers,
    sparse,
    maxTokensOf: ({ programs: [, batch] }) => batch.symbols.get('T') as number,
    plan: (candidate, isFirst) => planModel(candidate, options, isFirst ? notice : () => undefined),
  });
}
