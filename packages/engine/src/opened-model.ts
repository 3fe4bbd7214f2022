/** A model file that is open: its description, tokenizer and defaults, with the weights still where they are. */
import type { TensorStore } from '@winnow/bytes';
import type { GgufFile, GgufTypedValue } from '@winnow/gguf';
import { openHubFolder, type HubFiles, type HubModel } from '@winnow/hub';
import { Fields, type ModelFile } from '@winnow/models';
import { openSafetensors, openShardedSafetensors } from '@winnow/safetensors';
import { FormatError } from '@winnow/tensor';
import { ggufVocabulary, tokenizerFromGguf, tokenizerFromJson, type Tokenizer } from '@winnow/tokenizers';
import { createMissingTokenizer } from './missing-tokenizer.js';
import type { SamplingOptions } from './sampling-options.js';

export interface OpenedModel {
  readonly name: string;
  readonly file: ModelFile;
  /** Every setting of the file; long lists by their length. */
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly tokenizer: Tokenizer;
  /** Jinja source. */
  readonly chatTemplate: string | undefined;
  /** End tokens that the file names besides the tokenizer's own. */
  readonly eosIds: readonly number[];
  readonly defaultSampling: SamplingOptions;
  close(): Promise<void>;
}

/** Opens the parts of a GGUF model. Closing it closes the file. */
export function openGgufModel(file: GgufFile): OpenedModel {
  const { metadata } = file;
  const get = (key: string): unknown => plainValue(metadata.get(key));
  return {
    name: metadata.getString('general.name', undefined) ?? file.name,
    file: { format: 'gguf', fields: new Fields(file.name, get), store: file },
    metadata: Object.fromEntries([...metadata].map(([key, typed]) => [key, shortened(plainValue(typed))])),
    tokenizer: metadata.has(modelKey)
      ? tokenizerFromGguf(ggufVocabulary(get))
      : createMissingTokenizer(file.name, modelKey, rowsOf(file, 'token_embd.weight')),
    chatTemplate: metadata.getString('tokenizer.chat_template', undefined),
    eosIds: [],
    defaultSampling: {},
    close: () => file.close(),
  };
}

/** The key that every GGUF vocabulary has. */
const modelKey = 'tokenizer.ggml.model';

/** Size of the vocabulary by the embedding table; 0 without one, which the architecture will refuse. */
function rowsOf({ tensors }: TensorStore, name: string): number {
  return tensors.get(name)?.shape[0] ?? 0;
}

function plainValue(typed: GgufTypedValue | undefined): unknown {
  return typed?.value;
}

/** Opens the parts of a Hugging Face folder. Closing it closes the weight files. */
export async function openHubModel(files: HubFiles, options: { signal?: AbortSignal } = {}): Promise<OpenedModel> {
  const hub = await openHubFolder(files, options);
  const tokenizerJson = await hub.readTokenizerJson(options);
  const store = await openWeights(hub, options);
  try {
    const { config, generationConfig } = hub;
    return {
      name: hub.name,
      file: { format: 'safetensors', fields: Fields.ofJson(`${hub.name}/config.json`, config.value), store },
      metadata: Object.fromEntries(Object.entries(config.value).map(([key, value]) => [key, shortened(value)])),
      tokenizer:
        tokenizerJson === undefined
          ? createMissingTokenizer(hub.name, 'tokenizer.json', rowsOf(store, 'model.embed_tokens.weight'))
          : tokenizerFromJson(tokenizerJson.value, hub.tokenizerConfig?.value),
      chatTemplate: hub.chatTemplate,
      eosIds: [...idList(generationConfig?.value['eos_token_id']), ...idList(config.value['eos_token_id'])],
      defaultSampling: samplingOf(hub),
      close: () => store.close(),
    };
  } catch (error) {
    await store.close();
    throw error;
  }
}

async function openWeights(hub: HubModel, options: { signal?: AbortSignal }): Promise<TensorStore> {
  const { files, weightFiles } = hub;
  if (weightFiles === undefined) {
    throw new FormatError({ source: hub.name, field: 'model.safetensors', message: 'missing: no weights found' });
  }
  if (weightFiles.kind === 'sharded') {
    return openShardedSafetensors(weightFiles.indexJson, (name) => files.open(name), {
      name: weightFiles.indexName,
      ...options,
    });
  }
  const source = await files.open(weightFiles.name);
  try {
    return await openSafetensors(source, options);
  } catch (error) {
    await source.close();
    throw error;
  }
}

/** The recommended sampling of generation_config.json. */
function samplingOf({ generationConfig }: HubModel): SamplingOptions {
  if (generationConfig === undefined) return {};
  if (generationConfig.optionalBoolean('do_sample') === false) return { temperature: 0 };
  const settings: [keyof SamplingOptions, number | undefined][] = [
    ['temperature', generationConfig.optionalNumber('temperature')],
    ['topK', generationConfig.optionalNumber('top_k')],
    ['topP', generationConfig.optionalNumber('top_p')],
    ['minP', generationConfig.optionalNumber('min_p')],
    ['repetitionPenalty', generationConfig.optionalNumber('repetition_penalty')],
  ];
  return Object.fromEntries(settings.filter(([, value]) => value !== undefined));
}

function idList(value: unknown): number[] {
  const values: unknown[] = Array.isArray(value) ? value : [value];
  return values.filter((id): id is number => Number.isSafeInteger(id));
}

/** Longest list that `metadata` shows whole. */
const maxShownValues = 16;

function shortened(value: unknown): unknown {
  const isList = Array.isArray(value) || ArrayBuffer.isView(value);
  if (!isList) return typeof value === 'bigint' ? value.toString() : value;
  const list = value as unknown as ArrayLike<unknown>;
  return list.length <= maxShownValues ? Array.from(list) : { length: list.length };
}
