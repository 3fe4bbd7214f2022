/** The functions of the package, for a host with or without a file system. */
import { ArgumentError, FormatError, checkOptions } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ChatTemplate } from '../chat/template.js';
import type { EmbeddingModel } from '../embedding/model.js';
import type { Reranker } from '../embedding/reranker.js';
import type { DecodeImage } from '../images/image-encoder.js';
import type { PromptStore, PromptStoreOptions } from '../runtime/prompt-cache/store.js';
import type { SessionFiles } from '../sessions/location.js';
import type { Model } from '../sessions/model.js';
import type { WeightHost } from '../weight-offload/options.js';
import { openAdapters, type OpenAdapterPath } from './adapters.js';
import { inspectOpenedModel, type ModelInfo } from './inspect-model.js';
import { embeddingKind, loadTextModel, rerankerKind } from './load-embedding-model.js';
import { weightsHash } from '../sparsity/weights-hash.js';
import { loadOpenedModel, templateOf } from './load-model.js';
import type { ModelLocation, OpenOptions } from './location.js';
import { withMmproj } from './mmproj.js';
import { openLocation, type OpenPath } from './open-location.js';
import {
  embeddingLoadOptionNames,
  openOptionNames,
  rerankerLoadOptionNames,
  type EmbeddingLoadOptions,
  type LoadOptions,
  type RerankerLoadOptions,
} from './options.js';
import { resolveOptions } from './resolved-options.js';
import { ModelResources } from './resources.js';

export interface EngineApi {
  loadModel(location: ModelLocation, options?: LoadOptions): Promise<Model>;
  loadEmbeddingModel(location: ModelLocation, options?: EmbeddingLoadOptions): Promise<EmbeddingModel>;
  loadReranker(location: ModelLocation, options?: RerankerLoadOptions): Promise<Reranker>;
  inspectModel(location: ModelLocation, options?: LoadOptions): Promise<ModelInfo>;
  openTokenizer(location: ModelLocation, options?: OpenOptions): Promise<ModelTokenizer>;
  weightsHash(location: ModelLocation, options?: OpenOptions): Promise<string>;
  openPromptStore(folder: string, options: PromptStoreOptions): Promise<PromptStore>;
}

/** A model's tokenizer and chat template. */
export interface ModelTokenizer {
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate | undefined;
}

/**
 * File access of the host. Hosts without a file system lack `openPath` and the like, and reject paths elsewhere.
 */
export interface EngineHost extends SessionFiles, WeightHost {
  /** Memory of the machine. */
  readonly memoryBytes?: number;
  readonly openPath?: OpenPath;
  /** The image encoder beside a GGUF model. */
  readonly findMmproj?: (location: ModelLocation) => Promise<string | undefined>;
  /** Decodes image files. */
  readonly decodeImage?: DecodeImage;
  readonly openAdapterPath?: OpenAdapterPath;
  readonly openPromptStore?: EngineApi['openPromptStore'];
}

export function createEngineApi(host: EngineHost): EngineApi {
  return {
    async loadModel(location, given = {}): Promise<Model> {
      const options = resolveOptions(given, location);
      const adapters = await openAdapters(options, host.openAdapterPath);
      const opened = await openLocation(location, options, host.openPath);
      const resources = await ModelResources.open(await withMmproj(opened, location, options, host), options);
      return loadOpenedModel(resources, options, adapters, host);
    },
    async loadEmbeddingModel(location, options = {}): Promise<EmbeddingModel> {
      checkOptions(options, embeddingLoadOptionNames);
      const adapters = await openAdapters(options, host.openAdapterPath);
      const resources = await ModelResources.open(await openLocation(location, options, host.openPath), options);
      return loadTextModel(resources, options, adapters, host, embeddingKind(options));
    },
    async loadReranker(location, options = {}): Promise<Reranker> {
      checkOptions(options, rerankerLoadOptionNames);
      const adapters = await openAdapters(options, host.openAdapterPath);
      const resources = await ModelResources.open(await openLocation(location, options, host.openPath), options);
      return loadTextModel(resources, options, adapters, host, rerankerKind);
    },
    async inspectModel(location, given = {}): Promise<ModelInfo> {
      const options = resolveOptions(given, location);
      const adapters = await openAdapters(options, host.openAdapterPath);
      const opened = await openLocation(location, options, host.openPath);
      return inspectOpenedModel(await withMmproj(opened, location, options, host), options, adapters, host);
    },
    async openTokenizer(location, options = {}): Promise<ModelTokenizer> {
      checkOptions(options, openOptionNames);
      const opened = await openLocation(location, options, host.openPath);
      try {
        const tokenizer = await opened.openTokenizer();
        if (tokenizer === undefined) {
          throw new FormatError({
            source: opened.name,
            field: opened.tokenizerField,
            message: 'missing, so the model has no tokenizer',
          });
        }
        return { tokenizer, chatTemplate: templateOf(opened, tokenizer) };
      } finally {
        await opened.close();
      }
    },
    async openPromptStore(folder, options): Promise<PromptStore> {
      if (host.openPromptStore !== undefined) return host.openPromptStore(folder, options);
      throw new ArgumentError({ argument: 'folder', expected: 'a host with a file system', actual: 'one without' });
    },
    async weightsHash(location, options = {}): Promise<string> {
      checkOptions(options, openOptionNames);
      const opened = await openLocation(location, options, host.openPath);
      try {
        const { store } = await opened.openFile();
        return await weightsHash(store, options.signal === undefined ? {} : { signal: options.signal });
      } finally {
        await opened.close();
      }
    },
  };
}
