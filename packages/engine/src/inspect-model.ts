/** What a model file says, without loading its weights. */
import { describeEmbedder, type EmbedderDescription, type ModelFile, type ScaledLora } from '@winnow/models';
import { planEmbedding } from './embed-plan.js';
import { choosePooling, embeddingSettings } from './embed-settings.js';
import { adaptWeights } from './adapt-weights.js';
import type { MemoryPlan } from './memory-plan.js';
import { planModel } from './model-plan.js';
import type { OpenedModel } from './opened-model.js';
import type { LoadOptions, ModelInfo } from './types.js';

/** Takes over `opened` and closes it. */
export async function inspectOpenedModel(
  opened: OpenedModel,
  options: LoadOptions,
  adapters: readonly ScaledLora[] = [],
): Promise<ModelInfo> {
  try {
    const { name, metadata } = opened;
    const file = await opened.openFile();
    const description = await describeEmbedder(file);
    await adaptWeights(description, options, file.format, adapters);
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
          ? planModel(description, options).memory
          : embeddingMemory(opened, file, description, options),
    };
  } finally {
    await opened.close();
  }
}

function embeddingMemory(
  { sentenceTransformers }: OpenedModel,
  file: ModelFile,
  description: EmbedderDescription,
  { contextSize }: LoadOptions,
): MemoryPlan {
  const settings = embeddingSettings(file, sentenceTransformers);
  const pooling = choosePooling(description.config, undefined, settings.pooling);
  const options = contextSize === undefined ? {} : { contextSize };
  return planEmbedding(description, pooling, settings.recommendedSize, options).memory;
}
