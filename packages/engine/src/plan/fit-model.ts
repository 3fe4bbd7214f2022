/** Plans a decoder within its memory budget and the limits of the backend. */
import type { FeedForwardLowering } from '@winnow/ops';
import type { AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import { checkBuffers, type PlanLimits } from './memory-plan.js';
import { fitWeights, type FittedPlan } from './fit-weights.js';
import { planModel, type ModelPlan, type ModelToPlan } from './model-plan.js';
import { autoAttention } from './auto-attention.js';
import type { ResolvedPlanOptions } from './options.js';

/** A model to plan, before it is known which of its weights fit. */
export interface ModelToFit extends Omit<ModelToPlan, 'feedForward'> {
  /** With `trace.feedForward`. */
  readonly traced?: FeedForwardLowering | undefined;
}

/**
 * Where `attention: 'auto'` stands for a tuned policy that does not suit the other options, such as KV offload,
 * attention is dense and a notice says why.
 * @throws {ArgumentError} for options that this model does not support
 * @throws {CapacityError} when the limits are too small
 */
export function fitModel(
  { description, attention, sparse, traced }: ModelToFit,
  options: ResolvedPlanOptions,
  limits: PlanLimits,
  notice: (text: string) => void,
): FittedPlan<ModelPlan> {
  const fit = (chosen: AttentionSpec | string): FittedPlan<ModelPlan> =>
    fitWeights<ModelPlan>({
      description,
      limitBytes: limits.maxTotalBytes,
      memory: options.memory,
      sparse,
      traced,
      maxTokensOf: ({ programs: [, batch] }) => batch.symbols.get('T') as number,
      plan: (feedForward, isFirst) => {
        const model = { description, attention: chosen, sparse, feedForward };
        return planModel(model, options, isFirst ? notice : () => undefined);
      },
    });
  const fitted = options.attention === autoAttention ? fitOrDense(fit, attention, notice) : fit(attention);
  const { programs, tiers, visionProgram, imageProgram } = fitted.plan;
  const vision = [visionProgram, imageProgram].filter((program) => program !== undefined);
  checkBuffers([...programs, ...vision, ...(tiers?.programs ?? [])], limits);
  return fitted;
}

/** Dense attention where the tuned policy is rejected. */
function fitOrDense<Fitted>(
  fit: (attention: AttentionSpec | string) => Fitted,
  tuned: AttentionSpec | string,
  notice: (text: string) => void,
): Fitted {
  try {
    return fit(tuned);
  } catch (error) {
    if (!ArgumentError.isInstance(error)) throw error;
    const fitted = fit('dense');
    notice(
      `attention auto: the tuned policy does not suit the other options (${error.message}), so attention is dense`,
    );
    return fitted;
  }
}
