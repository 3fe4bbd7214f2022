/** The contents of a model file, read without loading its weights. */
import type { Backend } from '@winnow/ops';
import { CapacityError, type DType } from '@winnow/tensor';
import {
  type DecoderConfig,
  describeEmbedder,
  describeReranker,
  type EmbedderDescription,
  hasRankingHead,
  type ModelDescription,
  type ModelFile,
  type Pooling,
  type RerankerDescription,
  type ScaledLora,
} from '@winnow/models';
import { fitEmbedding } from '../embedding/fit.js';
import { chooseAttention } from '../plan/auto-attention.js';
import { fitModel } from '../plan/fit-model.js';
import { openSparse } from '../sparsity/options.js';
import { budgetOf, type WeightHost } from '../weight-offload/options.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { choosePooling, embeddingSettings } from '../embedding/settings.js';
import { adaptWeights } from './adapt-weights.js';
import { limitsOf, planResource, type MemoryPlan, type PlanLimits } from '../plan/memory-plan.js';
import { describeOpened } from './mmproj.js';
import type { OpenedModel } from './opened-model.js';
import { createOwnBackend } from './resources.js';
import type { ResolvedOptions } from './resolved-options.js';

/** A tensor in a model file. */
export interface TensorInfo {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly sizeBytes: number;
}

/** The contents of a model file, read without loading its weights. */
export interface ModelInfo {
  readonly name: string;
  readonly format: 'gguf' | 'safetensors';
  readonly config: DecoderConfig;
  readonly tensors: readonly TensorInfo[];
  /** GGUF metadata or the values of config.json; long arrays are replaced by their length. */
  readonly metadata: Readonly<Record<string, unknown>>;
  /** The plan within the given budget; if that is too small, the plan of the smallest budget that works. */
  readonly plan: MemoryPlan;
}

/** Takes ownership of `opened` and closes it. */
export async function inspectOpenedModel(
  opened: OpenedModel,
  options: ResolvedOptions,
  adapters: readonly ScaledLora[],
  weightHost: WeightHost,
): Promise<ModelInfo> {
  try {
    const { name, metadata } = opened;
    const file = await opened.openFile();
    const { notice } = options;
    const description = await describeFile(opened, file, notice);
    await adaptWeights(description, options, file.format, adapters);
    const sparse = await withRatios(options, (backend) => openSparse(description, file, options, weightHost, backend));
    const attention = await chooseAttention(options, file.store, weightHost, notice);
    return {
      name,
      format: file.format,
      config: description.config,
      tensors: [...file.store.tensors.values()].map((tensor) => ({
        name: tensor.name,
        dtype: tensor.dtype,
        shape: tensor.shape,
        sizeBytes: tensor.sizeBytes,
      })),
      metadata,
      plan:
        'buildProgram' in description
          ? orWhole(
              options,
              (limits) => fitModel({ description, attention, sparse }, options, limits, notice).plan.memory,
            )
          : embeddingMemory(opened, file, description, options, sparse),
    };
  } finally {
    await opened.close();
  }
}

async function describeFile(
  opened: OpenedModel,
  file: ModelFile,
  notice: (text: string) => void,
): Promise<EmbedderDescription | ModelDescription | RerankerDescription> {
  const { mmproj } = opened;
  const withImages = async (): Promise<ModelDescription> =>
    describeOpened(opened, file, await opened.openTokenizer(), notice);
  if (mmproj !== undefined && !mmproj.isFound) return withImages();
  if (hasRankingHead(file)) return describeReranker(file, () => undefined);
  const description = await describeEmbedder(file);
  return mmproj !== undefined && 'buildProgram' in description ? withImages() : description;
}

/** Runs a task with the backend that would load the model. Without a calibration, nothing asks for break-even ratios. */
async function withRatios<T>(
  options: ResolvedOptions,
  task: (backend: Pick<Backend, 'breakEvenRatio'>) => Promise<T>,
): Promise<T> {
  if (options.backend !== undefined) return task(options.backend);
  if (options.sparsity?.calibration === undefined) return task({ breakEvenRatio: () => 1 });
  const created = await createOwnBackend(options);
  try {
    return await task(created);
  } finally {
    await created.dispose();
  }
}

/** The plan within the budget, or within the smallest budget that works. */
function orWhole({ memory }: ResolvedOptions, fit: (limits: PlanLimits) => MemoryPlan): MemoryPlan {
  try {
    return fit(limitsOf(budgetOf(memory)));
  } catch (error) {
    if (!CapacityError.isInstance(error) || error.resource !== planResource) throw error;
    return fit(limitsOf(error.needed));
  }
}

function embeddingMemory(
  { sentenceTransformers, lateInteraction }: OpenedModel,
  file: ModelFile,
  description: EmbedderDescription | RerankerDescription,
  options: ResolvedOptions,
  sparse: SparseWeights | undefined,
): MemoryPlan {
  const planned = (pooling: Pooling, recommendedSize?: number): MemoryPlan => {
    const model = { description, pooling, recommendedSize, sparse };
    return orWhole(options, (limits) => fitEmbedding(model, options, limits).plan.memory);
  };
  if ('numLabels' in description) return planned(description.pooling);
  const settings = embeddingSettings(file, sentenceTransformers, { lateInteraction: lateInteraction() });
  return planned(choosePooling(description, undefined, settings.pooling), settings.recommendedSize);
}
