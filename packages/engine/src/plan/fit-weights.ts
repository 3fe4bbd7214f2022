/** Fits a plan into a memory budget: everything in memory if it fits, else experts or neurons in tiers. */
import type { DecoderProgramOptions, EmbedderDescription } from '@winnow/models';
import type { FeedForwardLowering } from '@winnow/ops';
import { CapacityError } from '@winnow/tensor';
import { checkMemory, planResource, type MemoryPlan } from './memory-plan.js';
import { createExpertPlacement, createNeuronLowering, type NextLayer } from '../weight-offload/program.js';
import {
  expertCandidates,
  itemBytes,
  neuronCandidates,
  planWeightTiers,
  type TierCandidate,
  type WeightTierPlan,
} from '../weight-offload/plan.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import type { MemoryOptions } from '../weight-offload/options.js';

/** Plans are repeated until the size of what accompanies the slots (their tables, outputs) is known. */
const maxRounds = 6;

/** FFN options of a program, by the maximum number of tokens per step. */
export type FeedForwardOptions = (maxTokens: number) => Pick<DecoderProgramOptions, 'feedForward' | 'experts'>;

export interface FitOptions<P extends { readonly memory: MemoryPlan }> {
  readonly description: Pick<EmbedderDescription, 'config' | 'weights'>;
  /** Infinity: no limit. */
  readonly limitBytes: number;
  readonly memory: number | MemoryOptions | undefined;
  readonly sparse: SparseWeights | undefined;
  /** With `trace.feedForward`, which excludes `sparse`. */
  readonly traced: FeedForwardLowering | undefined;
  /** Maximum number of tokens per step. */
  readonly maxTokensOf: (plan: P) => number;
  /** @param isFirst whether this plan reports notices */
  readonly plan: (feedForward: FeedForwardOptions, isFirst: boolean) => P;
}

export interface FittedPlan<P> {
  readonly plan: P;
  readonly tiers: WeightTierPlan | undefined;
}

/** FFN options with the lowering of a sidecar or of a trace, and slots for offloaded items. */
export function feedForwardOptions(
  sparse: SparseWeights | undefined,
  tiers: WeightTierPlan | undefined,
  traced?: FeedForwardLowering,
): FeedForwardOptions {
  const tiered = tiers?.byLayer ?? new Map();
  const nextOf: NextLayer = (layer) => tiers?.layers.find((other) => other.layer > layer);
  return (maxTokens) => ({
    ...(traced === undefined ? {} : { feedForward: traced }),
    ...(sparse === undefined
      ? {}
      : { feedForward: createNeuronLowering(sparse.lowering, tiered, maxTokens, nextOf, sparse.onLayer) }),
    ...(tiers?.kind === 'expert' ? { experts: createExpertPlacement(tiered, maxTokens, nextOf) } : {}),
  });
}

/**
 * @throws {CapacityError} when the limit is too small: `needed` is the smallest that works, or all of the plan where
 *   nothing can be offloaded
 */
export function fitWeights<P extends { readonly memory: MemoryPlan }>(options: FitOptions<P>): FittedPlan<P> {
  const { description, limitBytes, traced } = options;
  const sparse = options.sparse?.isForDrafts === true ? undefined : options.sparse;
  const asked = typeof options.memory === 'object' ? options.memory : {};
  const isPlain = sparse === undefined;
  const plan = options.plan(feedForwardOptions(sparse, undefined, traced), true);
  if (plan.memory.totalBytes <= limitBytes) return { plan, tiers: undefined };
  const { config, weights } = description;
  const experts = expertCandidates(config, weights, options.maxTokensOf(plan));
  const candidates = experts.length > 0 || isPlain ? experts : neuronCandidates(sparse, weights);
  if (candidates.length === 0) checkMemory(plan.memory, limitBytes, adviceOf(sparse));
  const otherBytes = plan.memory.totalBytes - wholeBytes(candidates, weights);
  const planWith = (tiers: WeightTierPlan): FittedPlan<P> => {
    const next = options.plan(feedForwardOptions(sparse, tiers, traced), false);
    return { plan: { ...next, memory: withTiers(next.memory, tiers) }, tiers };
  };
  let overheadBytes = 0; // of the slots: their tables, outputs for the host
  for (let round = 0; round < maxRounds; round++) {
    let tiers: WeightTierPlan;
    try {
      tiers = planWeightTiers(candidates, limitBytes - otherBytes - overheadBytes, asked);
    } catch (error) {
      if (!CapacityError.isInstance(error)) throw error;
      const least = planWith(planWeightTiers(candidates, error.needed, asked));
      throw tooSmall(least.plan.memory, limitBytes, isPlain ? '' : adviceOf(sparse) + hotAdvice(candidates, asked));
    }
    const fitted = planWith(tiers);
    const { totalBytes } = fitted.plan.memory;
    if (totalBytes <= limitBytes) return fitted;
    overheadBytes = Math.max(overheadBytes, totalBytes - otherBytes - tiers.plannedBytes);
  }
  throw new Error('Winnow internal error: the plan of the weights does not settle');
}

/** Advice on keeping more weights in the file. */
function adviceOf(sparse: SparseWeights | undefined): string {
  if (sparse === undefined)
    return ', or use a calibration (sparsity.calibration), so that weights may stay in the file';
  const { sidecar, lowering } = sparse;
  const numDense = lowering.denseLayers.length;
  const numByInputs = sidecar.layers.filter(({ predictor }) => predictor.kind === 'input-threshold').length;
  const dense = `; ${numDense} ${numDense === 1 ? 'layer runs' : 'layers run'} dense and stay in memory; sparsity.maxActive 1 changes that`;
  const byInputs =
    `; ${numByInputs} ${numByInputs === 1 ? 'layer is' : 'layers are'} calibrated by input-threshold, whose gate and up are ` +
    `read by input and stay in memory; low-rank and gate-threshold leave more in the file`;
  return (numDense > 0 ? dense : '') + (numByInputs > 0 ? byInputs : '');
}

/** Advice on options that raise the smallest budget. */
function hotAdvice(candidates: readonly TierCandidate[], { hot }: MemoryOptions): string {
  if (hot !== 'all') return '';
  const numHot = candidates.reduce((sum, candidate) => sum + candidate.numHot, 0);
  return `; all ${numHot} hot neurons are in it: memory.hot fitting reduces it`;
}

/** @param least the plan of the smallest budget that works */
function tooSmall(least: MemoryPlan, limitBytes: number, advice: string): CapacityError {
  const { totalBytes, kvBytes, activationBytes, contextSize, weightTiers } = least;
  return new CapacityError({
    resource: planResource,
    needed: totalBytes,
    available: limitBytes,
    unit: 'bytes',
    hint:
      `the minimum with ${weightTiers?.kind}s read from the file: weights that are always in memory ` +
      `${weightTiers?.residentBytes}, kv ${kvBytes} for ${contextSize} tokens, activations ${activationBytes}; use a smaller ` +
      `context or kvCache.dtype${advice}`,
  });
}

function wholeBytes(candidates: readonly TierCandidate[], weights: EmbedderDescription['weights']): number {
  return candidates
    .flatMap(({ matrices }) => matrices)
    .reduce((sum, { weightName }) => sum + (weights.get(weightName)?.sizeBytes ?? 0), 0);
}

function withTiers(memory: MemoryPlan, tiers: WeightTierPlan): MemoryPlan {
  const slotBytes = tiers.layers.reduce((sum, layer) => sum + layer.slots * itemBytes(layer), 0);
  const { warmBytes, stagingBytes, coldBytes, copyBytes, numItems, numSlots, numPinned } = tiers;
  return {
    ...memory,
    totalBytes: memory.totalBytes + warmBytes + stagingBytes + copyBytes,
    weightTiers: {
      kind: tiers.kind,
      numItems,
      numSlots,
      numPinned,
      residentBytes: memory.weightsBytes - slotBytes,
      slotBytes,
      warmBytes,
      stagingBytes,
      coldBytes,
      copyBytes,
    },
  };
}
