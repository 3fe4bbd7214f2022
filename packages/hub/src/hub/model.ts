/** Opens a Hugging Face model folder: everything except the weights. */
import { checkOptions, FormatError } from '@winnow/tensor';
import { DEFAULT_TEMPLATE, readChatTemplates } from '../chat-template.js';
import type { HubFiles } from '../files.js';
import { pageInsteadOf, readJsonFile, type JsonObject } from '../json-object.js';
import { MAX_CONFIG_BYTES, MAX_TOKENIZER_JSON_BYTES } from '../limits.js';
import { readSentenceTransformers, type SentenceTransformers } from '../sentence-transformers.js';
import { findWeightFiles, type WeightFiles } from '../weight-files.js';

/** A model folder. Missing files are `undefined`. */
export interface HubModel {
  readonly name: string;
  readonly files: HubFiles;
  /** `config.json`. */
  readonly config: JsonObject;
  /** `generation_config.json`. */
  readonly generationConfig: JsonObject | undefined;
  /** `tokenizer_config.json`. */
  readonly tokenizerConfig: JsonObject | undefined;
  /** `special_tokens_map.json`. */
  readonly specialTokensMap: JsonObject | undefined;
  /** The default template. */
  readonly chatTemplate: string | undefined;
  /** All templates by name, including `default`. */
  readonly chatTemplates: ReadonlyMap<string, string>;
  readonly sentenceTransformers: SentenceTransformers | undefined;
  /** `artifact.metadata` of models of the class `HF_ColBERT`: tokens and lengths of queries and documents. */
  readonly colbertMetadata: JsonObject | undefined;
  /** `preprocessor_config.json`: how images are prepared. */
  readonly preprocessorConfig: JsonObject | undefined;
  /** The weight files, to be opened with `files.open`. */
  readonly weightFiles: WeightFiles | undefined;
  readonly hasTokenizerJson: boolean;
  /** Reads and parses `tokenizer.json`, which can be large; not cached. @throws {FormatError} @throws {IoError} */
  readTokenizerJson(options?: { signal?: AbortSignal }): Promise<JsonObject | undefined>;
}

/** Whether config.json names the class of Stanford's library, whose checkpoints have the layer of multi-vectors. */
export function isColbert({ value }: JsonObject): boolean {
  const classes = value['architectures'];
  return Array.isArray(classes) && classes.includes('HF_ColBERT');
}

/**
 * Reads the small files of a model folder and locates the weights.
 * @throws {FormatError} with file and field (and byte offset for malformed JSON), also when there is no `config.json`
 * @throws {IoError} when a file cannot be read
 */
export async function openHubFolder(files: HubFiles, options: { signal?: AbortSignal } = {}): Promise<HubModel> {
  checkOptions(options, { signal: true });
  const read = (name: string): Promise<JsonObject | undefined> => readJsonFile(files, name, MAX_CONFIG_BYTES, options);
  const config = await read('config.json');
  if (config === undefined) {
    const page = await pageInsteadOf(files, 'config.json');
    if (page !== undefined) throw new FormatError({ source: files.name, field: 'config.json', message: page });
    const names = await files.list();
    const found = names.length === 0 ? 'no files' : `${names.slice(0, 8).join(', ')}${names.length > 8 ? ', ...' : ''}`;
    throw new FormatError({ source: files.name, field: 'config.json', message: `missing, found ${found}` });
  }
  const tokenizerConfig = await read('tokenizer_config.json');
  const chatTemplates = await readChatTemplates(files, tokenizerConfig, options);
  return {
    name: files.name,
    files,
    config,
    generationConfig: await read('generation_config.json'),
    tokenizerConfig,
    specialTokensMap: await read('special_tokens_map.json'),
    chatTemplate: chatTemplates.get(DEFAULT_TEMPLATE),
    chatTemplates,
    sentenceTransformers: await readSentenceTransformers(files, options),
    colbertMetadata: isColbert(config) ? await read('artifact.metadata') : undefined,
    preprocessorConfig: await read('preprocessor_config.json'),
    weightFiles: await findWeightFiles(files, options),
    hasTokenizerJson: await files.has('tokenizer.json'),
    readTokenizerJson: (readOptions = {}) =>
      readJsonFile(files, 'tokenizer.json', MAX_TOKENIZER_JSON_BYTES, readOptions),
  };
}
