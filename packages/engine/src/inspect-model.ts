/** What a model file says, without loading its weights. */
import { describeModel } from '@winnow/models';
import { planModel } from './model-plan.js';
import type { OpenedModel } from './opened-model.js';
import type { LoadOptions, ModelInfo } from './types.js';

/** Takes over `opened` and closes it. */
export async function inspectOpenedModel(opened: OpenedModel, options: LoadOptions): Promise<ModelInfo> {
  try {
    const { name, metadata } = opened;
    const file = await opened.openFile();
    const description = await describeModel(file);
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
      plan: planModel(description, options).memory,
    };
  } finally {
    await opened.close();
  }
}
