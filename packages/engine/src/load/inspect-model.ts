/** The contents of a model file, read without loading its weights. */
import type { Backend } from '@winnow/ops';
import { type DType, CapacityError } from '@winnow/tensor';
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
import { resolveAuto } from '../plan/auto-attention.js';
import { fitModel } from '../plan/fit-model.js';
import { openSparse } from '../sparsity/options.js';
import { checkWeightTiers, type WeightHost } from '../weight-offload/options.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { choosePooling, embeddingSettings } from '../embedding/settings.js';
import { adaptWeights } from './adapt-weights.js';
import { noLimits, planResource, type MemoryPlan } from '../plan/memory-plan.js';
import type { OpenedModel } from './opened-model.js';
import { createOwnBackend } from './resources.js';
import type { LoadOptions } from './options.js';
import { guardedListener } from '../metrics/events.js';

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
  options: LoadOptions,
  adapters: readonly ScaledLora[],
  weightHost: WeightHost,
): Promise<ModelInfo> {
  try {
    const { name, metadata } = opened;
    const file = await opened.openFile();
    const description = await describeFile(file);
    await adaptWeights(description, options, file.format, adapters);
    checkWeightTiers(options.memory);
    const sparse = await withRatios(options, (backend) => openSparse(description, file, options, weightHost, backend));
    const notice = (text: string): void => guardedListener(options.onEvent)({ kind: 'notice', text });
    const resolved = await resolveAuto(options, file.store, weightHost, notice);
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
              resolved,
              (fitting) => fitModel(description, options, fitting, sparse, notice, noLimits).plan.memory,
            )
          : embeddingMemory(opened, file, description, options, sparse),
    };
  } finally {
    await opened.close();
  }
}

async function describeFile(file: ModelFile): Promise<EmbedderDescription | ModelDescription | RerankerDescription> {
  if (hasRankingHead(file)) return describeReranker(file, () => undefined);
  return describeEmbedder(file);
}

/** Runs a task with the backend that would load the model. Without a calibration, nothing asks for break-even ratios. */
async function withRatios<T>(
  options: LoadOptions,
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
function orWhole(options: LoadOptions, fit: (options: LoadOptions) => MemoryPlan): MemoryPlan {
  try {
    return fit(options);
  } catch (error) {
    if (!CapacityError.isInstance(error) || error.resource !== planResource) throw error;
    const { memory } = options;
    return fit({ ...options, memory: { ...(typeof memory === 'object' ? memory : {}), budget: error.needed } });
  }
}

function embeddingMemory(
  { sentenceTransformers }: OpenedModel,
  file: ModelFile,
  description: EmbedderDescription | RerankerDescription,
  options: LoadOptions,
  sparse: SparseWeights | undefined,
): MemoryPlan {
  const planned = (pooling: Pooling, recommendedSize?: number): MemoryPlan =>
    orWhole(
      options,
      (fitting) => fitEmbedding(description, pooling, recommendedSize, fitting, sparse, noLimits).plan.memory,
    );
  if ('numLabels' in description) return planned(description.pooling);
  const settings = embeddingSettings(file, sentenceTransformers);
  return planned(choosePooling(description.config, undefined, settings.pooling), settings.recommendedSize);
}
