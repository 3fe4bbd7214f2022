/** A provider of the AI SDK for several named models. */
import {
  NoSuchModelError,
  type EmbeddingModelV4,
  type LanguageModelV4,
  type ProviderV4,
  type RerankingModelV4,
} from '@ai-sdk/provider';
import type { EmbeddingModel, Model, Reranker } from '@winnow/engine';
import { embeddingModel } from './embedding-model.js';
import { languageModel } from './language-model.js';
import { rerankingModel } from './reranking-model.js';
import { languageModelNames, type LanguageModelSettings } from './settings.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface WinnowProviderOptions {
  /** Loaded language models by name. Default: none. */
  readonly languageModels?: Readonly<Record<string, Model>>;
  /** Loaded embedding models by name. Default: none. */
  readonly embeddingModels?: Readonly<Record<string, EmbeddingModel>>;
  /** Loaded rerankers by name. Default: none. */
  readonly rerankingModels?: Readonly<Record<string, Reranker>>;
  /** Settings of all language models. Default: those of `languageModel`. */
  readonly settings?: Omit<LanguageModelSettings, 'modelId'>;
}

const { modelId: _, ...settingNames } = languageModelNames;
const providerNames: OptionNames<WinnowProviderOptions> = {
  languageModels: true,
  embeddingModels: true,
  rerankingModels: true,
  settings: settingNames,
};

/** Also a function: `winnow('name')` is a language model. */
export interface WinnowProvider extends ProviderV4 {
  (modelId: string): LanguageModelV4;
  rerankingModel(modelId: string): RerankingModelV4;
}

/**
 * Creates a provider for `createProviderRegistry` and other uses of models by name. An unknown name throws
 * `NoSuchModelError`.
 * @throws {UnknownOptionError} for an option that does not exist
 */
export function createWinnow(options: WinnowProviderOptions): WinnowProvider {
  checkOptions(options, providerNames);
  const { languageModels = {}, embeddingModels = {}, rerankingModels = {}, settings = {} } = options;

  function language(modelId: string): LanguageModelV4 {
    const model = Object.hasOwn(languageModels, modelId) ? languageModels[modelId] : undefined;
    if (model === undefined) throw new NoSuchModelError({ modelId, modelType: 'languageModel' });
    return languageModel(model, { ...settings, modelId });
  }

  function embedding(modelId: string): EmbeddingModelV4 {
    const model = Object.hasOwn(embeddingModels, modelId) ? embeddingModels[modelId] : undefined;
    if (model === undefined) throw new NoSuchModelError({ modelId, modelType: 'embeddingModel' });
    return embeddingModel(model, { modelId });
  }

  function reranking(modelId: string): RerankingModelV4 {
    const model = Object.hasOwn(rerankingModels, modelId) ? rerankingModels[modelId] : undefined;
    if (model === undefined) throw new NoSuchModelError({ modelId, modelType: 'rerankingModel' });
    return rerankingModel(model, { modelId });
  }

  return Object.assign((modelId: string) => language(modelId), {
    specificationVersion: 'v4' as const,
    languageModel: language,
    embeddingModel: embedding,
    rerankingModel: reranking,
    imageModel(modelId: string): never {
      throw new NoSuchModelError({ modelId, modelType: 'imageModel' });
    },
  });
}
