/** Wraps a model of the engine as an embedding model of the AI SDK. */
import type {
  EmbeddingModelV4,
  EmbeddingModelV4CallOptions,
  EmbeddingModelV4Result,
  SharedV4Warning,
} from '@ai-sdk/provider';
import type { EmbeddingModel, EmbedOptions } from '@winnow/engine';

/** Settings for all calls; `providerOptions.winnow` has the same names for one call. */
export interface EmbeddingModelSettings extends Pick<
  EmbedOptions,
  'normalize' | 'overflow' | 'dimensions' | 'prompt' | 'promptName'
> {
  /** Name of the model in the SDK. Default: the name in its file. */
  readonly modelId?: string;
}

const ownOptions = ['normalize', 'overflow', 'dimensions', 'prompt', 'promptName'];

/** The caller owns the model, and loads and disposes it. Concurrent calls are serialized. */
export function embeddingModel(model: EmbeddingModel, settings: EmbeddingModelSettings = {}): EmbeddingModelV4 {
  const { modelId = model.name, ...defaults } = settings;
  return {
    specificationVersion: 'v4',
    provider: 'winnow',
    modelId,
    maxEmbeddingsPerCall: undefined, // long lists are computed in several steps
    supportsParallelCalls: true,

    async doEmbed(options: EmbeddingModelV4CallOptions): Promise<EmbeddingModelV4Result> {
      const { values, dimensions, abortSignal, providerOptions } = options;
      const own = providerOptions?.['winnow'] ?? {};
      const unknown = Object.keys(own).filter((name) => !ownOptions.includes(name));
      const known = Object.fromEntries(Object.entries(own).filter(([name]) => ownOptions.includes(name)));
      const embeddings = await model.embedTexts(values, {
        ...defaults,
        ...(known as EmbedOptions),
        ...(dimensions === undefined ? {} : { dimensions }),
        ...(abortSignal === undefined ? {} : { signal: abortSignal }),
      });
      return {
        embeddings: embeddings.map(({ vector }) => Array.from(vector)),
        usage: { tokens: embeddings.reduce((sum, { numTokens }) => sum + numTokens, 0) },
        warnings: unknown.map((name): SharedV4Warning => ({
          type: 'unsupported',
          feature: `providerOptions.winnow.${name}`,
        })),
      };
    },
  };
}
