/** The functions of the package, for a host with or without a file system. */
import { FormatError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { openAdapters, type OpenAdapterPath } from './load/adapters.js';
import type { ChatTemplate } from './chat/template.js';
import type { EmbeddingLoadOptions, LoadOptions } from './load/options.js';
import type { EmbeddingModel } from './embedding/model.js';
import { inspectOpenedModel, type ModelInfo } from './load/inspect-model.js';
import type { OpenColdFolder } from './memory/cold-files.js';
import { loadOpenedModel, templateOf } from './load/load-model.js';
import { loadOpenedEmbeddingModel } from './load/load-embedding-model.js';
import { openLocation, type OpenPath } from './load/open-location.js';
import type { SessionFiles } from './sessions/location.js';
import type { WeightHost } from './weight-offload/options.js';
import type { Model } from './sessions/model.js';
import type { ModelLocation, OpenOptions } from './load/location.js';

export interface EngineApi {
  loadModel(location: ModelLocation, options?: LoadOptions): Promise<Model>;
  loadEmbeddingModel(location: ModelLocation, options?: EmbeddingLoadOptions): Promise<EmbeddingModel>;
  inspectModel(location: ModelLocation, options?: LoadOptions): Promise<ModelInfo>;
  openTokenizer(location: ModelLocation, options?: OpenOptions): Promise<ModelTokenizer>;
}

/** A model's tokenizer and chat template. */
export interface ModelTokenizer {
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate | undefined;
}

export function createEngineApi(
  openPath: OpenPath | undefined,
  files?: SessionFiles,
  openFolder?: OpenColdFolder,
  openAdapterPath?: OpenAdapterPath,
  weightHost: WeightHost = {},
): EngineApi {
  return {
    async loadModel(location, options = {}): Promise<Model> {
      const adapters = await openAdapters(options.adapters, options, openAdapterPath);
      const opened = await openLocation(location, options, openPath);
      return loadOpenedModel(opened, options, files, openFolder, adapters, weightHost);
    },
    async loadEmbeddingModel(location, options = {}): Promise<EmbeddingModel> {
      const adapters = await openAdapters(options.adapters, options, openAdapterPath);
      const opened = await openLocation(location, options, openPath);
      return loadOpenedEmbeddingModel(opened, options, adapters, weightHost);
    },
    async inspectModel(location, options = {}): Promise<ModelInfo> {
      const adapters = await openAdapters(options.adapters, options, openAdapterPath);
      return inspectOpenedModel(await openLocation(location, options, openPath), options, adapters, weightHost);
    },
    async openTokenizer(location, options = {}): Promise<ModelTokenizer> {
      const opened = await openLocation(location, options, openPath);
      try {
        const tokenizer = await opened.openTokenizer();
        if (tokenizer === undefined) {
          throw new FormatError({ source: opened.name, field: opened.tokenizerField, message: 'missing' });
        }
        return { tokenizer, chatTemplate: templateOf(opened, tokenizer) };
      } finally {
        await opened.close();
      }
    },
  };
}
