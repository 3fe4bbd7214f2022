/** Wraps a model of the engine as an embedding model of the AI SDK. */
import type { EmbeddingModelV4, EmbeddingModelV4CallOptions, EmbeddingModelV4Result } from '@ai-sdk/provider';
import type { EmbeddingModel, EmbedOptions } from '@winnow/engine';
import { checkOptions, type OptionNames } from '@winnow/tensor';

/** Settings for all calls; `providerOptions.winnow` has the same names for one call. */
export interface EmbeddingModelSettings extends Pick<
  EmbedOptions,
  'normalize' | 'overflow' | 'dimensions' | 'prompt' | 'promptName'
> {
  /** Name of the model in the SDK. Default: the name in its file. */
  readonly modelId?: string;
}

const callNames: OptionNames<Omit<EmbeddingModelSettings, 'modelId'>> = {
  normalize: true,
  overflow: true,
  dimensions: true,
  prompt: true,
  promptName: true,
};
const settingNames: OptionNames<EmbeddingModelSettings> = { ...callNames, modelId: true };

/**
 * The caller loads the model, owns it and disposes of it. Concurrent calls are serialized.
 * @throws {UnknownOptionError} for a setting that does not exist, here and in `providerOptions.winnow`
 */
export function embeddingModel(model: EmbeddingModel, settings: EmbeddingModelSettings = {}): EmbeddingModelV4 {
  checkOptions(settings, settingNames);
  const { modelId = model.name, ...defaults } = settings;
  return {
    specificationVersion: 'v4',
    provider: 'winnow',
    modelId,
    maxEmbeddingsPerCall: undefined, // long lists are computed in several steps
    supportsParallelCalls: true,

    async doEmbed(options: EmbeddingModelV4CallOptions): Promise<EmbeddingModelV4Result> {
      const { values, dimensions, abortSignal, providerOptions } = options;
      const own: Omit<EmbeddingModelSettings, 'modelId'> = providerOptions?.['winnow'] ?? {};
      checkOptions(own, callNames);
      const embeddings = await model.embedTexts(values, {
        ...defaults,
        ...own,
        ...(dimensions === undefined ? {} : { dimensions }),
        ...(abortSignal === undefined ? {} : { signal: abortSignal }),
      });
      return {
        embeddings: embeddings.map(({ vector }) => Array.from(vector)),
        usage: { tokens: embeddings.reduce((sum, { numTokens }) => sum + numTokens, 0) },
        warnings: [],
      };
    },
  };
}
