/** A provider of the AI SDK for several named models. */
import { NoSuchModelError, type EmbeddingModelV4, type LanguageModelV4, type ProviderV4 } from '@ai-sdk/provider';
import type { EmbeddingModel, Model } from '@winnow/engine';
import { embeddingModel } from './embedding-model.js';
import { languageModel } from './language-model.js';
import type { LanguageModelSettings } from './settings.js';

export interface WinnowProviderOptions {
  /** Loaded models by name. */
  readonly languageModels?: Readonly<Record<string, Model>>;
  readonly embeddingModels?: Readonly<Record<string, EmbeddingModel>>;
  /** Settings of all language models. */
  readonly settings?: Omit<LanguageModelSettings, 'modelId'>;
}

/** Also a function: `winnow('name')` is a language model. */
export interface WinnowProvider extends ProviderV4 {
  (modelId: string): LanguageModelV4;
}

/**
 * Creates a provider for `createProviderRegistry` and other uses of models by name. An unknown name throws
 * `NoSuchModelError`.
 */
export function createWinnow(options: WinnowProviderOptions): WinnowProvider {
  const { languageModels = {}, embeddingModels = {}, settings = {} } = options;

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

  return Object.assign((modelId: string) => language(modelId), {
    specificationVersion: 'v4' as const,
    languageModel: language,
    embeddingModel: embedding,
    imageModel(modelId: string): never {
      throw new NoSuchModelError({ modelId, modelType: 'imageModel' });
    },
  });
}
