/** Converts the vocabulary of a folder to GGUF metadata. */
import { bytesOfBase64 } from '@winnow/tensor';
import type { GgufValueInput } from '@winnow/gguf';
import type { HubModel, JsonObject } from '@winnow/hub';
import { architectures, type DecoderConfig } from '@winnow/models';
import {
  preTokenizerNames,
  tokenizerFromGguf,
  tokenizerFromJson,
  tokenType,
  type GgufVocabulary,
  type Tokenizer,
} from '@winnow/tokenizers';
import { agreement, differenceNotice } from './probe-text.js';
import type { GgufPairs } from './rope-values.js';

const spaceMark = '\u2581';

const usualPres: readonly string[] = ['gpt-2', 'llama-bpe', 'qwen2', 'smollm', 'tekken', 'gpt-4o', 'default'];

interface Parts {
  readonly tokens: string[];
  readonly types: Int32Array;
}

/** Returns nothing and adds a notice when the folder has no tokenizer or one that GGUF cannot represent. */
export async function tokenizerToGguf(hub: HubModel, config: DecoderConfig, notices: string[]): Promise<GgufPairs> {
  const json = await hub.readTokenizerJson();
  if (json === undefined) {
    notices.push('the folder has no tokenizer.json: the model accepts and produces token ids only');
    return [];
  }
  const tokenizer = tokenizerFromJson(json.value, hub.tokenizerConfig?.value);
  const parts = readTokens(json, config.vocabSize);
  const found = vocabularyOf(json, tokenizer, parts, config.architecture);
  if (found === undefined) {
    notices.push(
      'GGUF has no tokenizer that produces the ids of tokenizer.json: the model accepts and produces token ids only',
    );
    return [];
  }
  if (agreement(tokenizerFromGguf(found), tokenizer) === 'most') notices.push(differenceNotice(tokenizer));
  return metadataOf(found, hub);
}

/** Texts and types of all ids, with placeholders for unused rows of the embedding table. */
function readTokens(json: JsonObject, vocabSize: number): Parts {
  const model = json.object('model');
  const stored = model.value['vocab'];
  const tokens: string[] = [];
  if (Array.isArray(stored)) stored.forEach((entry, id) => (tokens[id] = String((entry as unknown[])[0])));
  else for (const [text, id] of Object.entries(stored as Record<string, number>)) tokens[id] = text;
  const added = (json.optionalArray('added_tokens') ?? []) as readonly {
    readonly id: number;
    readonly content: string;
    readonly special?: boolean;
  }[];
  for (const { id, content } of added) tokens[id] = content;
  const size = Math.max(vocabSize, tokens.length);
  const types = new Int32Array(size).fill(tokenType.normal);
  for (let id = 0; id < size; id++) {
    if (tokens[id] !== undefined) continue;
    tokens[id] = `[PAD${id}]`;
    types[id] = tokenType.unused;
  }
  for (const { id, special } of added) types[id] = special === true ? tokenType.control : tokenType.userDefined;
  return { tokens, types };
}

function vocabularyOf(
  json: JsonObject,
  tokenizer: Tokenizer,
  parts: Parts,
  architecture: string,
): GgufVocabulary | undefined {
  const model = json.object('model');
  const ids = specialIds(tokenizer);
  const { addBos, addEos, pair, clsId, sepId } = tokenizer;
  // between two texts: EOS, or EOS and SEP
  const addSep = pair === undefined ? {} : { addSep: pair.middle.length > pair.suffix.length };
  // encoders may declare only CLS and SEP, which GGUF files add as BOS and EOS
  const frame = {
    ...(addBos && clsId !== undefined ? { bosId: clsId } : {}),
    ...(addEos && sepId !== undefined ? { eosId: sepId } : {}),
  };
  const common = { tokens: parts.tokens, tokenTypes: parts.types, addBos, addEos, ...addSep, ...frame };
  switch (model.optionalString('type')) {
    case 'WordPiece':
      return checked({ ...wordPiece(json, parts), ...ids }, tokenizer);
    case 'Unigram':
      return checked({ ...common, ...unigram(json, parts), ...ids }, tokenizer);
    default:
      break;
  }
  const merges = mergesOf(model);
  const isMarked = JSON.stringify([json.value['normalizer'], json.value['pre_tokenizer']]).includes(spaceMark);
  if (model.optionalBoolean('byte_fallback') === true || isMarked) {
    const pieces = { ...common, ...sentencePiece(json, parts), ...ids };
    // GGUF readers begin texts of this model with BOS
    const own = architecture === 'gemma4' && addBos ? { ...pieces, model: 'gemma4', merges } : pieces;
    return checked(own, tokenizer) ?? checked(pieces, tokenizer);
  }
  const names = [
    architectures.find(({ name }) => name === architecture)?.preTokenizer,
    ...usualPres,
    ...preTokenizerNames(),
  ];
  for (const pre of new Set(names)) {
    if (pre === undefined) continue;
    const found = checked({ ...common, model: 'gpt2', pre, merges, ...ids }, tokenizer);
    if (found !== undefined) return found;
  }
  return undefined;
}

function checked(vocabulary: GgufVocabulary, tokenizer: Tokenizer): GgufVocabulary | undefined {
  return agreement(tokenizerFromGguf(vocabulary), tokenizer) === 'none' ? undefined : vocabulary;
}

function specialIds(tokenizer: Tokenizer): Partial<GgufVocabulary> {
  const { bosId, eosId, unkId, padId, sepId, clsId, maskId } = tokenizer;
  const ids = { bosId, eosId, unkId, padId, sepId, clsId, maskId };
  return Object.fromEntries(Object.entries(ids).filter(([, id]) => id !== undefined));
}

function mergesOf(model: JsonObject): string[] {
  const merges = (model.optionalArray('merges') ?? []) as readonly (string | readonly [string, string])[];
  return merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' ')));
}

/** Converts merge ranks to scores: the rank of the first merge that produces a token counts. */
function sentencePiece(json: JsonObject, { tokens, types }: Parts): Partial<GgufVocabulary> & { model: string } {
  const model = json.object('model');
  const unknown = model.optionalString('unk_token');
  const rankOf = new Map<string, number>();
  for (const [rank, merge] of mergesOf(model).entries()) {
    const made = merge.replace(' ', '');
    if (!rankOf.has(made)) rankOf.set(made, rank);
  }
  const scores = Float32Array.from(tokens, (text) => -1 - (rankOf.get(text) ?? rankOf.size));
  tokens.forEach((text, id) => {
    if (text === unknown) types[id] = tokenType.unknown;
    else if (/^<0x[0-9A-F]{2}>$/.test(text)) types[id] = tokenType.byte;
    if (types[id] !== tokenType.normal) scores[id] = 0;
  });
  const text = JSON.stringify([json.value['normalizer'], json.value['pre_tokenizer']]);
  const addSpacePrefix = text.includes('"Prepend"') || /"prepend_scheme":"(first|always)"/.test(text);
  return { model: 'llama', pre: 'default', scores, addSpacePrefix };
}

/** Pieces at the start of a word get a prefix, the others lose their `##`. */
function wordPiece(json: JsonObject, { tokens, types }: Parts): GgufVocabulary {
  const prefix = json.object('model').optionalString('continuing_subword_prefix') ?? '##';
  const unknown = json.object('model').optionalString('unk_token');
  const normalizer = (json.value['normalizer'] ?? {}) as { lowercase?: boolean; strip_accents?: boolean | null };
  const texts = tokens.map((text, id) => {
    if (text === unknown) types[id] = tokenType.unknown;
    if (types[id] !== tokenType.normal || /^\[.+\]$/.test(text)) return text;
    return text.startsWith(prefix) ? text.slice(prefix.length) : spaceMark + text;
  });
  return {
    model: 'bert',
    pre: 'default',
    tokens: texts,
    tokenTypes: types,
    lowercase: normalizer.lowercase ?? false,
    ...(typeof normalizer.strip_accents === 'boolean' ? { stripAccents: normalizer.strip_accents } : {}),
  };
}

function unigram(json: JsonObject, { tokens, types }: Parts): Partial<GgufVocabulary> & { model: string } {
  const model = json.object('model');
  const entries = model.array('vocab') as readonly (readonly [string, number])[];
  const unkId = model.optionalInteger('unk_id');
  if (unkId !== undefined) types[unkId] = tokenType.unknown;
  const text = JSON.stringify([json.value['normalizer'], json.value['pre_tokenizer']]);
  const charsmap = /"precompiled_charsmap":"([^"]*)"/.exec(text)?.[1];
  return {
    model: 't5',
    pre: 'default',
    scores: Float32Array.from(tokens, (_, id) => entries[id]?.[1] ?? 0),
    addSpacePrefix: !/"prepend_scheme":"never"/.test(text),
    removeExtraWhitespaces: text.includes('{2,}') || text.includes('"WhitespaceSplit"'),
    ...(unkId === undefined ? {} : { unkId }),
    ...(charsmap === undefined ? {} : { precompiledCharsmap: bytesOfBase64(charsmap) }),
  };
}

const idKeys: Readonly<Record<string, string>> = {
  bosId: 'bos_token_id',
  eosId: 'eos_token_id',
  unkId: 'unknown_token_id',
  padId: 'padding_token_id',
  sepId: 'seperator_token_id',
  clsId: 'cls_token_id',
  maskId: 'mask_token_id',
};

function metadataOf(vocabulary: GgufVocabulary, hub: HubModel): GgufPairs {
  const pairs: GgufPairs = [];
  const push = (key: string, value: GgufValueInput | undefined): void => {
    if (value !== undefined) pairs.push([`tokenizer.ggml.${key}`, value]);
  };
  const { scores, tokenTypes, merges, precompiledCharsmap } = vocabulary;
  push('model', vocabulary.model);
  push('pre', vocabulary.pre);
  push('tokens', vocabulary.tokens);
  if (scores !== undefined) push('scores', { type: 'array', elementType: 'float32', value: Float32Array.from(scores) });
  if (tokenTypes !== undefined) {
    push('token_type', { type: 'array', elementType: 'int32', value: Int32Array.from(tokenTypes) });
  }
  if (merges !== undefined) push('merges', merges);
  if (vocabulary.model === 'bert') push('token_type_count', { type: 'uint32', value: 2 });
  for (const [name, key] of Object.entries(idKeys)) {
    const id = (vocabulary as unknown as Record<string, unknown>)[name];
    if (typeof id === 'number') push(key, { type: 'uint32', value: id });
  }
  if (vocabulary.model !== 'bert') {
    push('add_bos_token', vocabulary.addBos);
    push('add_eos_token', vocabulary.addEos);
    push('add_sep_token', vocabulary.addSep);
  }
  push('add_space_prefix', vocabulary.addSpacePrefix);
  push('remove_extra_whitespaces', vocabulary.removeExtraWhitespaces);
  push('normalizer.lowercase', vocabulary.lowercase);
  push('normalizer.strip_accents', vocabulary.stripAccents);
  if (precompiledCharsmap !== undefined) {
    push('precompiled_charsmap', { type: 'array', elementType: 'uint8', value: precompiledCharsmap });
  }
  if (hub.chatTemplate !== undefined) pairs.push(['tokenizer.chat_template', hub.chatTemplate]);
  return pairs;
}
