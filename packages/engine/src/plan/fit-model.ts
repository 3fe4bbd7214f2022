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
 * Where `attention: 'auto'` was resolved to a tuned policy that does not suit the other options, such as KV offload,
 * attention is dense and a notice says why.
 * @param options as given
 * @param resolved the same with the tuned policy
 * @throws {ArgumentError} for options that this model does not support
 * @throws {CapacityError} when the budget is too small
 */
export function fitModel(
  description: ModelDescription,
  options: PlanOptions,
  resolved: PlanOptions,
  sparse: SparseWeights | undefined,
  notice: (text: string) => void,
  limits: PlanLimits,
): FittedPlan<ModelDescription, ModelPlan> {
  const fit = (chosen: PlanOptions): FittedPlan<ModelDescription, ModelPlan> =>
    fitWeights<ModelDescription, ModelPlan>({
      description,
      limitBytes: limitOf(budgetOf(chosen.memory), limits),
      memory: chosen.memory,
      sparse,
      maxTokensOf: ({ programs: [, batch] }) => batch.symbols.get('T') as number,
      plan: (candidate, isFirst) => planModel(candidate, chosen, isFirst ? notice : () => undefined),
    });
  const fitted = options.attention === autoAttention ? fitOrDense(fit, resolved, notice) : fit(resolved);
  const { programs, tiers } = fitted.plan;
  checkBuffers([...programs, ...(tiers?.programs ?? [])], limits);
  return fitted;
}

/** Dense attention where the tuned policy is rejected. */
function fitOrDense<Fitted>(
  fit: (options: PlanOptions) => Fitted,
  tuned: PlanOptions,
  notice: (text: string) => void,
): Fitted {
  try {
    return fit(tuned);
  } catch (error) {
    if (!ArgumentError.isInstance(error)) throw error;
    const fitted = fit({ ...tuned, attention: 'dense' });
    notice(
      `attention auto: the tuned policy does not suit the other options (${error.message}), so attention is dense`,
    );
    return fitted;
  }
}
