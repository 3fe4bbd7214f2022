/** Plans a decoder within its memory budget and the limits of the backend. */
import type { ModelDescription } from '@winnow/models';
import { checkBuffers, limitOf, type PlanLimits } from './memory-plan.js';
import { fitWeights, type FittedPlan } from './fit-weights.js';
import { planModel, type ModelPlan } from './model-plan.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { budgetOf } from '../weight-offload/options.js';
import { autoAttention } from './auto-attention.js';
import type { PlanOptions } from './options.js';
import { ArgumentError } from '@winnow/tensor';

/**
 * @throws {ArgumentError} for options that this model does not support
 * @throws {CapacityError} when the budget is too small
 */
export function fitModel(
  description: ModelDescription,
  options: PlanOptions,
  sparse: SparseWeights | undefined,
  notice: (text: string) => void,
  limits: PlanLimits,
): FittedPlan<ModelDescription, ModelPlan> {
  const fitted = fitWeights<ModelDescription, ModelPlan>({
    description,
    limitBytes: limitOf(budgetOf(options.memory), limits),
    memory: options.memory,
    sparse,
    maxTokensOf: ({ programs: [, batch] }) => batch.symbols.get('T') as number,
    plan: (candidate, isFirst) => planModel(candidate, options, isFirst ? notice : () => undefined),
  });
  const { programs, tiers } = fitted.plan;
  checkBuffers([...programs, ...(tiers?.programs ?? [])], limits);
  return fitted;
}

/**
 * The same for options whose `attention: 'auto'` was resolved: where a tuned policy does not suit the other options,
 * such as KV offload, attention is dense and a notice says why.
 * @param resolved the options with the tuned policies
 */
export function fitAuto(
  description: ModelDescription,
  options: PlanOptions,
  resolved: PlanOptions,
  sparse: SparseWeights | undefined,
  notice: (text: string) => void,
  limits: PlanLimits,
): FittedPlan<ModelDescription, ModelPlan> {
  try {
    return fitModel(description, resolved, sparse, notice, limits);
  } catch (error) {
    if (options.attention !== autoAttention || !ArgumentError.isInstance(error)) throw error;
    const fitted = fitModel(description, { ...resolved, attention: 'dense' }, sparse, notice, limits);
    notice(
      `attention auto: the tuned policy does not suit the other options (${error.message}), so attention is dense`,
    );
    return fitted;
  }
}
