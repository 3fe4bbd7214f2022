/** The extra files of sentence-transformers repositories, which describe pooling. */
import { FormatError, isRecord } from '@winnow/tensor';
import { isSafeFileName } from './file-name.js';
import type { HubFiles } from './files.js';
import { parseJson, readJsonFile, readTextFile, type JsonObject } from './json-object.js';
import { MAX_CONFIG_BYTES } from './limits.js';

/** One step of `modules.json`. */
export interface SentenceModule {
  readonly name: string;
  /** Folder of the module, `` for the root. */
  readonly path: string;
  /** Python class, for example `sentence_transformers.models.Pooling`. */
  readonly type: string;
  /** `config.json` of the module's folder, if there is one. */
  readonly config: JsonObject | undefined;
}

/** The settings of a sentence-transformers repository, uninterpreted. */
export interface SentenceTransformers {
  readonly modules: readonly SentenceModule[];
  /** Config of the pooling module. */
  readonly pooling: JsonObject | undefined;
  /** `sentence_bert_config.json`: `max_seq_length`, `do_lower_case`. */
  readonly bertConfig: JsonObject | undefined;
  /** `config_sentence_transformers.json`: prompts, similarity. */
  readonly config: JsonObject | undefined;
}

/** `undefined` when there is no `modules.json`. @throws {FormatError} */
export async function readSentenceTransformers(
  files: HubFiles,
  options: { signal?: AbortSignal },
): Promise<SentenceTransformers | undefined> {
  const source = 'modules.json';
  const text = await readTextFile(files, source, MAX_CONFIG_BYTES, options);
  if (text === undefined) return undefined;
  const list = parseJson(text, source);
  if (!Array.isArray(list)) {
    throw new FormatError({ source, byteOffset: 0, field: 'JSON', message: 'expected an array' });
  }
  const modules: SentenceModule[] = [];
  for (const [index, item] of list.entries()) {
    const { name, path, type } = isRecord(item) ? item : {};
    if (typeof name !== 'string' || typeof path !== 'string' || typeof type !== 'string') {
      throw new FormatError({ source, field: `[${index}]`, message: 'expected the strings "name", "path" and "type"' });
    }
    if (path !== '' && !isSafeFileName(path)) {
      throw new FormatError({
        source,
        field: `[${index}].path`,
        message: `expected a folder inside the repository, found ${JSON.stringify(path.slice(0, 60))}`,
      });
    }
    const config =
      path === '' ? undefined : await readJsonFile(files, `${path}/config.json`, MAX_CONFIG_BYTES, options);
    modules.push({ name, path, type, config });
  }
  return {
    modules,
    pooling: modules.find(({ type }) => /\bPooling$/.test(type))?.config,
    bertConfig: await readJsonFile(files, 'sentence_bert_config.json', MAX_CONFIG_BYTES, options),
    config: await readJsonFile(files, 'config_sentence_transformers.json', MAX_CONFIG_BYTES, options),
  };
}

/** Whether the modules compute a vector per token: they do not pool. */
export function hasTokenVectors({ modules }: SentenceTransformers): boolean {
  const has = (kind: RegExp): boolean => modules.some(({ type }) => kind.test(type));
  return has(/\b(Dense|MultiVectorMask)$/) && !has(/\bPooling$/);
}

const identity = 'torch.nn.modules.linear.Identity';

/** The dense layers of a folder. */
export interface DenseModules {
  /** Their weight files, in order. */
  readonly files: readonly string[];
  /** Whether they compute a vector per token. Otherwise they follow the pooling. */
  readonly isPerToken: boolean;
}

/** @throws {FormatError} for an activation other than the identity */
export function denseModules(sentence: SentenceTransformers | undefined): DenseModules {
  const dense = sentence?.modules.filter(({ type }) => /\bDense$/.test(type)) ?? [];
  const files = dense.map(({ path, config }) => {
    // the default of the library is tanh
    const activation = config?.optionalString('activation_function') ?? 'no activation';
    if (config?.optionalBoolean('use_residual') === true)
      throw config.invalid('use_residual', 'expected false, found true');
    if (path !== '' && activation === identity) return `${path}/model.safetensors`;
    const message = `expected ${identity} in a separate folder, got ${activation}`;
    throw new FormatError({ source: `${path}/config.json`, field: 'activation_function', message });
  });
  return { files, isPerToken: sentence !== undefined && hasTokenVectors(sentence) };
}
