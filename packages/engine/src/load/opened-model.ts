/** An open model: its parts are read on demand, and the weights stay in the file. */
import type { ByteSource, TensorStore } from '@winnow/bytes';
import type { GgufFile } from '@winnow/gguf';
import {
  denseModules,
  isColbert,
  openHubFolder,
  openStateDict,
  pageInsteadOf,
  type HubFiles,
  type HubModel,
  type SentenceTransformers,
  oneFileFolder,
} from '@winnow/hub';
import {
  colbertStore,
  Fields,
  openDenseLayers,
  openTokenLayers,
  type DenseLayers,
  type ModelFile,
} from '@winnow/models';
import {
  openSafetensors,
  openShardedSafetensors,
  type SafetensorsFile,
  type ShardedSafetensors,
} from '@winnow/safetensors';
import { FormatError } from '@winnow/tensor';
import { ggufVocabulary, tokenizerFromGguf, tokenizerFromJson, type Tokenizer } from '@winnow/tokenizers';
import { openOnnxWeights } from './onnx-weights.js';
import { lateInteractionOf, type LateInteraction } from '../embedding/late-interaction.js';
import { recommendedSampling } from '../generation/recommended-sampling.js';
import type { ImageSettings } from '../images/image-encoder.js';
import type { SamplingOptions } from '../generation/sampling-options.js';

export interface OpenedModel {
  readonly name: string;
  /** All settings of the file; long lists are replaced by their length. */
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Jinja source. */
  readonly chatTemplate: string | undefined;
  /** End tokens of the file in addition to the tokenizer's. */
  readonly eosIds: readonly number[];
  readonly defaultSampling: SamplingOptions;
  /** The embedding settings of a folder. */
  readonly sentenceTransformers: SentenceTransformers | undefined;
  /** How images are prepared; `undefined` when the files do not say it. */
  readonly imageSettings: ImageSettings | undefined;
  /** The image encoder of a GGUF model, in a file of its own. Default: none. */
  readonly mmproj?: {
    /** Whether it was found beside the model rather than named. */
    readonly isFound: boolean;
    openFile(): Promise<ModelFile>;
  };
  /** The field that a tokenizer would be read from, for error messages. */
  readonly tokenizerField: string;
  /**
   * Settings, and the tensors without their data.
   * @param hasLayers whether to add the layers of an embedding model that are in files of their own
   */
  openFile(hasLayers?: boolean): Promise<ModelFile>;
  /** The settings of a model with multi-vectors only. @throws {FormatError} for settings that are not supported */
  lateInteraction(): LateInteraction | undefined;
  /** `undefined` when the model has none. */
  openTokenizer(): Promise<Tokenizer | undefined>;
  close(): Promise<void>;
}

/** The key that every GGUF vocabulary has. */
const ggufTokenizerKey = 'tokenizer.ggml.model';

/** Opens the parts of a GGUF model. Closing it closes the file. */
export function openGgufModel(file: GgufFile): OpenedModel {
  const { metadata } = file;
  const get = (key: string): unknown => metadata.get(key)?.value;
  return {
    name: metadata.getString('general.name', '') || file.name,
    metadata: Object.fromEntries([...metadata].map(([key, { value }]) => [key, shortened(value)])),
    chatTemplate: metadata.getString('tokenizer.chat_template', undefined),
    eosIds: [],
    defaultSampling: {},
    sentenceTransformers: undefined,
    imageSettings: undefined,
    tokenizerField: ggufTokenizerKey,
    openFile: async () => ({ format: 'gguf', fields: new Fields(file.name, get), store: file }),
    lateInteraction: () => undefined,
    openTokenizer: async () => (metadata.has(ggufTokenizerKey) ? tokenizerFromGguf(ggufVocabulary(get)) : undefined),
    close: () => file.close(),
  };
}

/** How the files of a folder are opened. */
export interface OpenHubOptions {
  readonly signal?: AbortSignal;
  /** The ONNX file to read weights from, instead of the folder's other weights. */
  readonly onnxFile?: string;
}

/** Opens the parts of a Hugging Face folder. Closing it closes the weight files. */
export async function openHubModel(files: HubFiles, options: OpenHubOptions = {}): Promise<OpenedModel> {
  const hub = await openHubFolder(files, options.signal === undefined ? {} : { signal: options.signal });
  const { config, generationConfig } = hub;
  const stores: TensorStore[] = [];
  return {
    name: hub.name,
    metadata: Object.fromEntries(Object.entries(config.value).map(([key, value]) => [key, shortened(value)])),
    chatTemplate: hub.chatTemplate,
    eosIds: [...idList(generationConfig?.value['eos_token_id']), ...idList(config.value['eos_token_id'])],
    defaultSampling: generationConfig === undefined ? {} : recommendedSampling(generationConfig),
    sentenceTransformers: hub.sentenceTransformers,
    imageSettings: hub.preprocessorConfig && {
      source: `${hub.name}/preprocessor_config.json`,
      settings: hub.preprocessorConfig.value,
    },
    tokenizerField: 'tokenizer.json',
    async openFile(hasLayers = false) {
      const dense = hasLayers ? denseModules(hub.sentenceTransformers) : undefined;
      const whole = await openWeights(hub, options);
      const weights = isColbert(config) ? colbertStore(whole) : whole;
      const store = dense === undefined ? weights : await withLayers(weights, hub, dense, options);
      stores.push(store);
      const fields = Fields.ofJson(`${hub.name}/config.json`, config.value);
      return { format: 'safetensors', fields, store };
    },
    lateInteraction: () => lateInteractionOf(hub),
    async openTokenizer() {
      const json = await hub.readTokenizerJson(options);
      return json && tokenizerFromJson(json.value, hub.tokenizerConfig?.value);
    },
    async close() {
      for (const store of stores) await store.close();
    },
  };
}

/**
 * Opens the parts of a folder that is one safetensors file, and takes ownership of it.
 * @throws {FormatError} when the header does not describe a model
 */
async function openOneFileModel(source: ByteSource, options: { signal?: AbortSignal }): Promise<OpenedModel> {
  try {
    const { metadata } = await openSafetensors(source, options);
    const model = await openHubModel(oneFileFolder(source, metadata), options);
    return { ...model, close: () => model.close().finally(() => source.close()) };
  } catch (error) {
    await source.close();
    throw error;
  }
}

/** A format whose files are whole models. */
interface FileFormat {
  isName(name: string): boolean;
  /** @param bytes the first `headerBytes` of a file, or all of a shorter one */
  isHeader(bytes: Uint8Array): boolean;
  /** Takes ownership of the source. */
  open(source: ByteSource, options: { readonly signal?: AbortSignal }): Promise<OpenedModel>;
}

/** Bytes by which the format of a Blob or an open file is recognized when its name does not tell. */
export const headerBytes = 9;

/** A JSON header after its length of eight bytes. */
function hasJson(bytes: Uint8Array): boolean {
  return bytes[8] === '{'.charCodeAt(0) && new TextDecoder().decode(bytes.subarray(0, 4)) !== 'GGUF';
}

/** Files that none of these recognizes are read as GGUF, which may be split into several files. */
const fileFormats: readonly FileFormat[] = [
  { isName: (name) => /\.safetensors$/i.test(name), isHeader: hasJson, open: openOneFileModel },
];

export function formatOfName(name: string): FileFormat | undefined {
  return fileFormats.find((format) => format.isName(name));
}

export function formatOfHeader(bytes: Uint8Array): FileFormat | undefined {
  return fileFormats.find((format) => format.isHeader(bytes));
}

/** @throws {FormatError} also for tensors of unknown dtypes, since the model would be different without them */
async function openWeights(hub: HubModel, { onnxFile, ...options }: OpenHubOptions): Promise<TensorStore> {
  if (onnxFile !== undefined || hub.weightFiles === undefined) {
    const onnx = await openOnnxWeights(hub.files, onnxFile, options);
    if (onnx !== undefined) return onnx;
  }
  const store = await openWeightFiles(hub, options);
  const [unknown] = store.unsupported.values();
  if (unknown === undefined) return store;
  await store.close();
  const message = `expected a float or integer dtype of weights, got ${unknown.fileDType}`;
  throw new FormatError({ source: store.name, field: unknown.name, message });
}

/** Takes ownership of the store. */
async function withLayers(
  store: TensorStore,
  { files, config }: HubModel,
  dense: DenseLayers,
  options: { signal?: AbortSignal },
): Promise<TensorStore> {
  const open = async (name: string): Promise<TensorStore> => {
    const source = await files.open(name);
    return name.endsWith('.pt') ? openStateDict(source, options) : openSafetensors(source, options);
  };
  const whole = await openDenseLayers(store, dense, open);
  return dense.isPerToken
    ? whole
    : openTokenLayers(whole, config.value['model_type'], { has: (name) => files.has(name), open });
}

async function openWeightFiles(
  { name, files, weightFiles }: HubModel,
  options: { signal?: AbortSignal },
): Promise<SafetensorsFile | ShardedSafetensors> {
  if (weightFiles === undefined) {
    const message = (await pageInsteadOf(files, 'model.safetensors')) ?? 'missing: no weights found';
    throw new FormatError({ source: name, field: 'model.safetensors', message });
  }
  if (weightFiles.kind === 'single') return openSafetensors(await files.open(weightFiles.name), options);
  const { indexJson, indexName } = weightFiles;
  return openShardedSafetensors(indexJson, (shard) => files.open(shard), { name: indexName, ...options });
}

function idList(value: unknown): number[] {
  const values: unknown[] = Array.isArray(value) ? value : [value];
  return values.filter((id): id is number => Number.isSafeInteger(id));
}

/** Maximum length of a list that `metadata` shows in full. */
const maxShownValues = 16;

function shortened(value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return value;
  const list = value as unknown as ArrayLike<unknown>;
  return list.length <= maxShownValues ? Array.from(list, shortened) : { length: list.length };
}
