/**
 * Models whose only output is a vector per token, as in ColBERT (arXiv:2004.12832): how folders of Stanford's library, of PyLate
 * and of sentence-transformers say how queries and documents are encoded.
 */
import { hasTokenVectors, isColbert, type HubModel, type JsonObject, type SentenceTransformers } from '@winnow/hub';
import type { EmbedderDescription, ModelFile, tokenOutputs } from '@winnow/models';
import { ArgumentError, FormatError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';

type Role = 'query' | 'document';

/** The settings of a folder. */
export interface LateInteraction {
  /** The file with the settings, for error messages. */
  readonly source: string;
  /** Prefixes by purpose, among them `query` and `document`, without markers. Texts with any other one are documents. */
  readonly prompts: Readonly<Record<string, string>>;
  /** Tokens that the two kinds of texts begin with, as text, with what may follow the token. */
  readonly markers: Readonly<Partial<Record<Role, string>>>;
  /** The prompt of texts without `promptName`. */
  readonly defaultName: string;
  /** How queries are filled up with mask tokens. `undefined`: they are not. */
  readonly expansion: QueryExpansion | undefined;
  /** Maximum number of tokens of each kind of text, if the folder says so. */
  readonly maxTokens: Readonly<Partial<Record<Role, number>>>;
  /** Words whose tokens get no vector. */
  readonly skippedWords: readonly string[];
  /** The kinds of texts in which they get none. */
  readonly skippedIn: readonly string[];
}

interface QueryExpansion {
  readonly length: number;
  /** Whether the other tokens attend to mask tokens. */
  readonly attends: boolean;
  /** Whether longer queries are allowed. */
  readonly isFloor: boolean;
  /** Default: the mask token. */
  readonly token: string | undefined;
}

const punctuation: readonly string[] = [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~'];

/** Mask tokens of ColBERT's own settings, where a folder leaves the number out. */
const usualQueryLength = 32;

/**
 * @returns `undefined` for a model with vectors of whole texts
 * @throws {FormatError} for settings that are not supported
 */
export function lateInteractionOf({
  config,
  sentenceTransformers: sentence,
  colbertMetadata,
}: Pick<HubModel, 'config' | 'sentenceTransformers' | 'colbertMetadata'>): LateInteraction | undefined {
  if (sentence !== undefined) return hasTokenVectors(sentence) ? ofModules(sentence) : undefined;
  return isColbert(config) ? ofMetadata(colbertMetadata) : undefined;
}

/** The settings of Stanford's library, in which mask tokens always fill up queries. */
function ofMetadata(metadata: JsonObject | undefined): LateInteraction {
  const documentTokens = metadata?.optionalInteger('doc_maxlen');
  return {
    source: 'artifact.metadata',
    prompts: { query: '', document: '' },
    markers: {
      query: `${metadata?.optionalString('query_token_id') ?? '[unused0]'} `,
      document: `${metadata?.optionalString('doc_token_id') ?? '[unused1]'} `,
    },
    defaultName: 'document',
    expansion: {
      length: metadata?.optionalInteger('query_maxlen') ?? usualQueryLength,
      attends: metadata?.optionalBoolean('attend_to_mask_tokens') ?? false,
      isFloor: false,
      token: undefined,
    },
    maxTokens: documentTokens === undefined ? {} : { document: documentTokens },
    skippedWords: metadata?.optionalBoolean('mask_punctuation') === false ? [] : punctuation,
    skippedIn: ['document'],
  };
}

/** Settings that PyLate has in one file, and sentence-transformers in those of the modules. */
function ofModules({ modules, bertConfig, config }: SentenceTransformers): LateInteraction {
  checkModules(modules);
  const mask = modules.find(({ type }) => /\bMultiVectorMask$/.test(type))?.config;
  if (mask?.optionalArray('keep_only_token_ids')?.length) {
    throw mask.invalid('keep_only_token_ids', 'expected none, since vectors of all other tokens would be left out');
  }
  const isPyLate = config?.optionalString('model_type') === 'ColBERT';
  const skipped = mask?.optionalStrings('skiplist_words') ?? config?.optionalStrings('skiplist_words');
  const tasks = mask?.value['skiplist_tasks'];
  const lengthOf = (role: Role): number | undefined =>
    bertConfig?.optionalInteger(`${role}_length`) ?? config?.optionalInteger(`${role}_length`);
  const [query, document] = [lengthOf('query'), lengthOf('document')];
  return {
    source: 'config_sentence_transformers.json',
    ...promptsOf(config),
    defaultName: config?.optionalString('default_prompt_name') ?? 'document',
    expansion: expansionOf(bertConfig, config, query),
    maxTokens: { ...(query === undefined ? {} : { query }), ...(document === undefined ? {} : { document }) },
    skippedWords: skipped ?? (isPyLate ? punctuation : []),
    skippedIn: typeof tasks === 'string' ? [tasks] : (mask?.optionalStrings('skiplist_tasks') ?? ['document']),
  };
}

/** @throws {FormatError} unless one layer computes the vectors of tokens */
function checkModules(modules: SentenceTransformers['modules']): void {
  const dense = modules.filter(({ type }) => /\bDense$/.test(type));
  const [first] = dense;
  if (first === undefined || dense.length > 1) {
    const message = `expected one Dense module for vectors of tokens, got ${dense.length}`;
    throw new FormatError({ source: 'modules.json', field: 'modules', message });
  }
  const input = first.config?.optionalString('module_input_name') ?? 'token_embeddings';
  if (input !== 'token_embeddings') {
    throw (first.config as JsonObject).invalid('module_input_name', `expected token_embeddings, found ${input}`);
  }
}

/** @throws {FormatError} for a model without the layer that computes the vectors */
export function checkProjection({ store }: ModelFile, { weights }: EmbedderDescription): void {
  const layer: keyof typeof tokenOutputs = 'colbert_linear';
  if (weights.has(`${layer}.weight`)) return;
  throw new FormatError({ source: store.name, field: 'linear.weight', message: 'the model needs this tensor' });
}

/** Prefixes of PyLate are tokens, and precede the prompts. */
function promptsOf(config: JsonObject | undefined): Pick<LateInteraction, 'prompts' | 'markers'> {
  const prompts: Record<string, string> = { query: '', document: '' };
  const markers: Partial<Record<Role, string>> = {};
  const stored = config?.optionalObject('prompts');
  for (const name of stored?.keys() ?? []) prompts[name] = stored?.optionalString(name) ?? '';
  for (const role of ['query', 'document'] as const) {
    const marker = config?.optionalString(`${role}_prefix`);
    const prompt = prompts[role] as string;
    if (marker === undefined || marker === '') continue;
    markers[role] = marker;
    if (prompt.startsWith(marker)) prompts[role] = prompt.slice(marker.length);
  }
  return { prompts, markers };
}

/** Settings of PyLate, any of which means that queries are filled up unless it says otherwise. */
const pyLateSettings: readonly string[] = [
  'query_length',
  'document_length',
  'do_query_expansion',
  'attend_to_expansion_tokens',
  'query_prefix',
  'document_prefix',
  'skiplist_words',
];

function expansionOf(
  bertConfig: JsonObject | undefined,
  config: JsonObject | undefined,
  queryLength: number | undefined,
): QueryExpansion | undefined {
  for (const holder of [bertConfig, config]) {
    // null turns it off
    if (holder === undefined || !Object.hasOwn(holder.value, 'query_expansion')) continue;
    const stored = holder.optionalObject('query_expansion');
    return stored && storedExpansion(stored);
  }
  if (config === undefined || !pyLateSettings.some((name) => Object.hasOwn(config.value, name))) return undefined;
  if (config.optionalBoolean('do_query_expansion') === false) return undefined;
  return {
    length: queryLength ?? usualQueryLength,
    attends: config.optionalBoolean('attend_to_expansion_tokens') ?? false,
    isFloor: false,
    token: undefined,
  };
}

function storedExpansion(stored: JsonObject): QueryExpansion {
  const strategy = stored.string('strategy');
  if (strategy !== 'fixed' && strategy !== 'min') {
    throw stored.invalid('strategy', `expected fixed or min, found ${strategy}`);
  }
  return {
    length: stored.integer('length'),
    attends: stored.optionalBoolean('attend') ?? false,
    isFloor: strategy === 'min',
    token: stored.optionalString('token'),
  };
}

/** The tokens of a text that the model was made for, if the folder says so. @param stored `max_seq_length` */
export function recommendedLength(
  { maxTokens, expansion }: LateInteraction,
  stored: number | undefined,
): number | undefined {
  const length = maxTokens.document ?? stored;
  return length === undefined ? undefined : Math.max(length, expansion?.length ?? 0);
}

/** How a text is encoded. */
export interface TextKind {
  /** Text before the text. */
  readonly prefix: string;
  /** The token after those that the tokenizer adds before a text. */
  readonly marker?: number;
  /** Maximum number of tokens. Default: the context. */
  readonly maxTokens?: number;
  /** Tokens that fill up a text to `length`. */
  readonly expansion?: { readonly length: number; readonly id: number; readonly attends: boolean };
  /** Ids of tokens without a vector. Default: only the first token has none. */
  readonly skippedIds?: ReadonlySet<number>;
}

/** How texts are encoded with each of the prompts. */
export interface TextKinds {
  readonly byPrompt: ReadonlyMap<string, TextKind>;
  /** The prompt of texts without `promptName`. */
  readonly defaultName: string;
}

/**
 * @throws {FormatError} when the tokenizer lacks a token
 * @throws {ArgumentError} when queries do not fit the context
 */
export function textKindsOf(late: LateInteraction, tokenizer: Tokenizer, contextSize: number): TextKinds {
  const { expansion, maxTokens, skippedIn } = late;
  const skippedIds = new Set(late.skippedWords.flatMap((word) => tokenizer.idOf(word) ?? []));
  if (expansion !== undefined && expansion.length > contextSize) {
    const expected = `at least ${expansion.length}, the tokens of a query of this model`;
    throw new ArgumentError({ argument: 'context', expected, actual: String(contextSize) });
  }
  const byPrompt = new Map<string, TextKind>();
  for (const [name, prompt] of Object.entries(late.prompts)) {
    const role: Role = name === 'query' ? 'query' : 'document';
    const { marker, rest } = markerOf(late.markers[role], tokenizer);
    const filled = role === 'query' ? expansion : undefined;
    const maxLength = filled === undefined ? maxTokens[role] : filled.isFloor ? maxTokens.query : filled.length;
    byPrompt.set(name, {
      prefix: rest + prompt,
      skippedIds: skippedIn.includes(role) ? skippedIds : new Set(),
      ...(marker === undefined ? {} : { marker }),
      // documents may have the context that the caller chose
      ...(role === 'document' || maxLength === undefined ? {} : { maxTokens: Math.min(maxLength, contextSize) }),
      ...(filled === undefined ? {} : { expansion: { ...filled, id: maskOf(late, filled, tokenizer) } }),
    });
  }
  return { byPrompt, defaultName: late.defaultName };
}

/** A marker that the tokenizer does not know as a token, with or without what follows it, is text. */
function markerOf(
  marker: string | undefined,
  tokenizer: Tokenizer,
): { readonly marker?: number; readonly rest: string } {
  if (marker === undefined) return { rest: '' };
  const [word = ''] = marker.trim().split(/\s/);
  for (const token of [marker, word]) {
    const id = token === '' ? undefined : tokenizer.idOf(token);
    if (id !== undefined) return { marker: id, rest: marker.slice(marker.indexOf(token) + token.length) };
  }
  return { rest: marker };
}

function maskOf({ source }: LateInteraction, { token }: QueryExpansion, tokenizer: Tokenizer): number {
  const id = token === undefined ? tokenizer.maskId : tokenizer.idOf(token);
  if (id !== undefined) return id;
  const message = `expected a tokenizer with ${token ?? 'a mask token'}, which queries are filled up with`;
  throw new FormatError({ source, field: 'query_expansion', message });
}

/** The kind of the texts of a call. @throws {ArgumentError} for a prompt of its own, and for an unknown name */
export function textKindOf(
  { byPrompt, defaultName }: TextKinds,
  prompt: string | undefined,
  promptName: string = defaultName,
): TextKind {
  if (prompt !== undefined && prompt !== '') {
    const expected = 'none: texts of this model are queries or documents, by promptName';
    throw new ArgumentError({ argument: 'prompt', expected, actual: JSON.stringify(prompt) });
  }
  const kind = byPrompt.get(promptName);
  if (kind !== undefined) return kind;
  const expected = [...byPrompt.keys()].join(' | ');
  throw new ArgumentError({ argument: 'promptName', expected, actual: String(promptName) });
}
