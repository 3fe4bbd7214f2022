/** The embedding settings in the files of a model. */
import type { JsonObject, SentenceTransformers } from '@winnow/hub';
import { storedPooling, type EmbedderDescription, type ModelFile, type Pooling } from '@winnow/models';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { recommendedLength, type LateInteraction } from './late-interaction.js';

export interface EmbeddingSettings {
  readonly pooling: Pooling | undefined;
  /** For models with multi-vectors only. */
  readonly lateInteraction: LateInteraction | undefined;
  /** Maximum number of tokens per text that the model recommends. */
  readonly recommendedSize: number | undefined;
  readonly isLowerCased: boolean;
  readonly normalizes: boolean;
  readonly prompts: Readonly<Record<string, string>>;
  readonly defaultPrompt: string;
  /** Whether pooling must skip the tokens of the prompt. */
  readonly skipsPrompt: boolean;
  readonly matryoshkaDimensions: readonly number[] | 'any' | 'none';
  /** Default number of dimensions that vectors are truncated to. */
  readonly defaultDimensions: number | undefined;
}

interface SettingsOptions {
  readonly isMatryoshka?: boolean;
  readonly lateInteraction?: LateInteraction | undefined;
}

/** Supported modules of sentence-transformers, of which one is for models without pooling. */
const knownModules = /\b(Transformer|Pooling|Dense|Normalize)$/;
const maskModule = /\bMultiVectorMask$/;

/** @throws {FormatError} for modules and settings that would change the vectors and are not supported */
export function embeddingSettings(
  file: ModelFile,
  sentence: SentenceTransformers | undefined,
  { isMatryoshka = false, lateInteraction }: SettingsOptions = {},
): EmbeddingSettings {
  for (const { type, name } of sentence?.modules ?? []) {
    if (knownModules.test(type) || (lateInteraction !== undefined && maskModule.test(type))) continue;
    const message = `expected Transformer, Pooling, Dense or Normalize, got ${type}`;
    throw new FormatError({ source: 'modules.json', field: name, message });
  }
  const config = sentence?.config;
  const storedSize = sentence?.bertConfig?.optionalInteger('max_seq_length');
  const prompts = lateInteraction?.prompts ?? promptsOf(config);
  const defaultName = config?.optionalString('default_prompt_name');
  const hasNorm = sentence?.modules.some(({ type }) => /\bNormalize$/.test(type)) === true;
  return {
    pooling: sentence?.pooling === undefined ? storedPooling(file) : poolingOf(sentence.pooling),
    lateInteraction,
    recommendedSize: lateInteraction === undefined ? storedSize : recommendedLength(lateInteraction, storedSize),
    isLowerCased: sentence?.bertConfig?.optionalBoolean('do_lower_case') ?? false,
    normalizes: hasNorm || config?.optionalString('similarity_fn_name') !== 'dot',
    prompts,
    defaultPrompt: defaultName === undefined ? '' : namedPrompt(prompts, defaultName),
    skipsPrompt: sentence?.pooling?.optionalBoolean('include_prompt') === false,
    matryoshkaDimensions: isMatryoshka ? 'any' : matryoshkaOf(file),
    defaultDimensions: config?.optionalInteger('truncate_dim'),
  };
}

/** @throws {ArgumentError} */
export function namedPrompt(prompts: Readonly<Record<string, string>>, name: string): string {
  const prompt = Object.hasOwn(prompts, name) ? prompts[name] : undefined;
  if (prompt !== undefined) return prompt;
  const names = Object.keys(prompts);
  const expected = names.length === 0 ? 'no name, since this model has no prompts' : names.join(' | ');
  throw new ArgumentError({ argument: 'promptName', expected, actual: name });
}

/** The pooling of the options, of the model, or the default. @throws {ArgumentError} when there is none */
export function choosePooling(
  { config: { isEncoder, architecture }, pooling: own }: Pick<EmbedderDescription, 'config' | 'pooling'>,
  asked: Pooling | undefined,
  stored: Pooling | undefined,
): Pooling {
  if (own !== undefined) {
    if (asked === undefined || asked === own) return own;
    throw new ArgumentError({ argument: 'pooling', expected: `${own}, as ${architecture} was trained`, actual: asked });
  }
  const pooling = asked ?? stored ?? (isEncoder === true ? 'mean' : undefined);
  if (pooling === undefined) {
    const expected = `${poolings.join(' | ')}, since this decoder does not declare one`;
    throw new ArgumentError({ argument: 'pooling', expected, actual: 'nothing' });
  }
  if (!poolings.includes(pooling)) {
    throw new ArgumentError({ argument: 'pooling', expected: poolings.join(' | '), actual: String(pooling) });
  }
  if (pooling === 'cls' && isEncoder !== true) {
    const expected = `another pooling, since in ${architecture} the first token attends only to itself`;
    throw new ArgumentError({ argument: 'pooling', expected, actual: pooling });
  }
  return pooling;
}

const poolings: readonly Pooling[] = ['mean', 'cls', 'last', 'max', 'weighted-mean', 'mean-sqrt'];

/** Boolean flags of a pooling module. */
const modes: Readonly<Record<string, Pooling>> = {
  pooling_mode_cls_token: 'cls',
  pooling_mode_mean_tokens: 'mean',
  pooling_mode_max_tokens: 'max',
  pooling_mode_mean_sqrt_len_tokens: 'mean-sqrt',
  pooling_mode_weightedmean_tokens: 'weighted-mean',
  pooling_mode_lasttoken: 'last',
};

/** Names that newer files have instead of flags. */
const modeNames: Readonly<Record<string, Pooling>> = {
  cls: 'cls',
  mean: 'mean',
  max: 'max',
  mean_sqrt_len_tokens: 'mean-sqrt',
  weightedmean: 'weighted-mean',
  lasttoken: 'last',
};

function poolingOf(config: JsonObject): Pooling {
  const name = config.optionalString('pooling_mode');
  if (name !== undefined) {
    const pooling = Object.hasOwn(modeNames, name) ? modeNames[name] : undefined;
    if (pooling !== undefined) return pooling;
    throw config.invalid('pooling_mode', `expected ${Object.keys(modeNames).join(', ')}, found ${name}`);
  }
  const chosen = config.keys().filter((key) => key.startsWith('pooling_mode_') && config.optionalBoolean(key) === true);
  const [only] = chosen;
  const pooling = only !== undefined && Object.hasOwn(modes, only) ? modes[only] : undefined;
  if (chosen.length === 1 && pooling !== undefined) return pooling;
  const found = chosen.length === 0 ? 'none' : chosen.join(' and ');
  throw config.invalid('pooling_mode', `expected one of ${Object.keys(modes).join(', ')}, found ${found}`);
}

function promptsOf(config: JsonObject | undefined): Record<string, string> {
  const prompts: Record<string, string> = {};
  const value = config?.value['prompts'];
  if (config === undefined || value === undefined || value === null) return prompts;
  if (typeof value !== 'object' || Array.isArray(value)) throw config.invalid('prompts', 'expected an object');
  for (const [name, prompt] of Object.entries(value)) {
    if (typeof prompt !== 'string') throw config.invalid(`prompts.${name}`, 'expected a string');
    prompts[name] = prompt;
  }
  return prompts;
}

function matryoshkaOf({ format, fields }: ModelFile): readonly number[] | 'any' | 'none' {
  if (format === 'gguf') return 'none';
  const list = fields.raw('matryoshka_dimensions');
  if (list === undefined) return fields.boolean('is_matryoshka', false) ? 'any' : 'none';
  if (Array.isArray(list) && list.every((size) => Number.isSafeInteger(size) && size > 0)) return list as number[];
  throw fields.refusal('matryoshka_dimensions', 'a list of positive integers', list);
}
