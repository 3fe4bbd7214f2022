/** Wraps a reranker of the engine as a reranking model of the AI SDK. */
import type {
  RerankingModelV4,
  RerankingModelV4CallOptions,
  RerankingModelV4Result,
  SharedV4Warning,
} from '@ai-sdk/provider';
import type { Reranker, RerankOptions } from '@winnow/engine';
import { checkOptions, type OptionNames } from '@winnow/tensor';

/** Settings for all calls; `providerOptions.winnow` has the same names for one call. */
export interface RerankingModelSettings extends Pick<RerankOptions, 'normalize' | 'overflow' | 'instruction'> {
  /** Name of the model in the SDK. Default: the name in its file. */
  readonly modelId?: string;
}

const callNames: OptionNames<Omit<RerankingModelSettings, 'modelId'>> = {
  normalize: true,
  overflow: true,
  instruction: true,
};
const settingNames: OptionNames<RerankingModelSettings> = { ...callNames, modelId: true };

/**
 * The caller loads the model, owns it and disposes of it. Concurrent calls are serialized. Documents that are objects are
 * ranked as JSON, with a warning.
 * @throws {UnknownOptionError} for a setting that does not exist, here and in `providerOptions.winnow`
 */
export function rerankingModel(model: Reranker, settings: RerankingModelSettings = {}): RerankingModelV4 {
  checkOptions(settings, settingNames);
  const { modelId = model.name, ...defaults } = settings;
  return {
    specificationVersion: 'v4',
    provider: 'winnow',
    modelId,

    async doRerank(options: RerankingModelV4CallOptions): Promise<RerankingModelV4Result> {
      const { query, documents, topN, abortSignal, providerOptions } = options;
      const own: Omit<RerankingModelSettings, 'modelId'> = providerOptions?.['winnow'] ?? {};
      checkOptions(own, callNames);
      const texts =
        documents.type === 'text' ? documents.values : documents.values.map((document) => JSON.stringify(document));
      const ranked = await model.rerank(query, texts, {
        ...defaults,
        ...own,
        ...(topN === undefined ? {} : { topN }),
        ...(abortSignal === undefined ? {} : { signal: abortSignal }),
      });
      return {
        ranking: ranked.map(({ index, score }) => ({ index, relevanceScore: score })),
        warnings: documents.type === 'text' ? [] : [objectWarning],
      };
    },
  };
}

const objectWarning: SharedV4Warning = {
  type: 'compatibility',
  feature: 'object documents',
  details: 'They are ranked as JSON.',
};
