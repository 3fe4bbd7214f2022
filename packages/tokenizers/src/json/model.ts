/** Models of tokenizer.json, implemented with Winnow's own algorithms. */
import { describeValue } from '@winnow/tensor';
import type { MergePair } from '../algorithms/bpe-rules.js';
import { BpeRules } from '../algorithms/bpe-rules.js';
import { ByteBpe } from '../algorithms/byte-bpe.js';
import { CharBpe, type Affixes } from '../algorithms/char-bpe.js';
import { SymbolTable, findByteIds } from '../algorithms/symbols.js';
import { Unigram } from '../algorithms/unigram.js';
import { WordLevel } from '../algorithms/wordlevel.js';
import { WordPiece } from '../algorithms/wordpiece.js';
import { hexTokenText } from '../text/byte-level.js';
import type { WordModel } from '../text/words.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { JsonObject } from './value.js';
import { asArray, asId, asNumber, asString, jsonError } from './value.js';
import { optionalBoolean, optionalString, unsupported } from './value.js';
import type { JsonVocabulary } from './vocabulary.js';

export interface JsonModel {
  readonly kind: Tokenizer['kind'];
  readonly unkId: number | undefined;
  readonly words: WordModel;
  /** Whether it takes plain words and applies the byte-level mapping itself. */
  readonly mapsBytes: boolean;
}

/**
 * @param byteLevel whether the last pre-tokenizer applies the byte-level mapping
 * @throws FormatError for malformed fields and for a model that Winnow does not implement
 */
export function readModel(model: JsonObject, vocabulary: JsonVocabulary, byteLevel: boolean): JsonModel {
  const type = modelType(model);
  switch (type) {
    case 'BPE':
      return readBpe(model, vocabulary, byteLevel);
    case 'WordPiece':
      return readWordPiece(model, vocabulary);
    case 'Unigram':
      return readUnigram(model, vocabulary);
    case 'WordLevel':
      return readWordLevel(model, vocabulary);
    default:
      throw unsupported('model.type', type);
  }
}

/** Old files name no type. */
function modelType(model: JsonObject): string {
  const type = optionalString(model['type'], 'model.type');
  if (type !== undefined) return type;
  if (Array.isArray(model['vocab'])) return 'Unigram';
  return model['merges'] === undefined ? 'WordPiece' : 'BPE';
}

function unknownId(model: JsonObject, vocabulary: JsonVocabulary): number | undefined {
  const text = optionalString(model['unk_token'], 'model.unk_token');
  return text === undefined ? undefined : idOfUnknown(text, vocabulary);
}

function idOfUnknown(text: string, vocabulary: JsonVocabulary): number {
  const id = vocabulary.idByText.get(text);
  if (id === undefined)
    throw jsonError('model.unk_token', `expected a token of the vocabulary, found ${describeValue(text)}`);
  return id;
}

function readBpe(model: JsonObject, vocabulary: JsonVocabulary, byteLevel: boolean): JsonModel {
  const affixes = readAffixes(model);
  const unkId = unknownId(model, vocabulary);
  const merges = asArray(model['merges'], 'model.merges');
  const ignoreMerges = optionalBoolean(model['ignore_merges'], 'model.ignore_merges') ?? false;
  const byteFallback = optionalBoolean(model['byte_fallback'], 'model.byte_fallback') ?? false;
  const fuse = optionalBoolean(model['fuse_unk'], 'model.fuse_unk') ?? false;
  const { texts, modelIds } = vocabulary;
  const pairs = readMerges(merges);
  if (byteLevel && affixes === undefined) {
    const words = new ByteBpe({
      texts,
      idByText: modelIds,
      merges: pairs,
      numMerges: merges.length,
      ignoreMerges,
      unkId,
    });
    return { kind: 'bpe', unkId, words, mapsBytes: true };
  }
  const symbols = new SymbolTable(texts, modelIds);
  const byteIds = byteFallback ? findByteIds(modelIds, hexTokenText) : undefined;
  const words = new CharBpe(
    symbols,
    new BpeRules(symbols, pairs, merges.length, affixes?.prefix.length),
    { byteIds, unkId, fuse },
    { ignoreMerges, cacheWords: true, ...(affixes && { affixes }) },
  );
  return { kind: 'bpe', unkId, words, mapsBytes: false };
}

function readAffixes(model: JsonObject): Affixes | undefined {
  const read = (name: string): string => optionalString(model[name], `model.${name}`) ?? '';
  const affixes = { prefix: read('continuing_subword_prefix'), suffix: read('end_of_word_suffix') };
  return affixes.prefix === '' && affixes.suffix === '' ? undefined : affixes;
}

function readMerges(merges: readonly unknown[]): MergePair[] {
  return merges.map((merge, rank) => {
    const field = `model.merges[${rank}]`;
    if (typeof merge === 'string') {
      const space = merge.indexOf(' ', 1);
      if (space > 0 && space < merge.length - 1) return [merge.slice(0, space), merge.slice(space + 1)];
    } else if (Array.isArray(merge) && merge.length === 2) {
      const pair = merge as readonly unknown[];
      return [asString(pair[0], `${field}[0]`), asString(pair[1], `${field}[1]`)];
    }
    throw jsonError(field, `expected "left right" or ["left", "right"], found ${describeValue(merge)}`);
  });
}

function readWordPiece(model: JsonObject, vocabulary: JsonVocabulary): JsonModel {
  const unkId = unknownId({ unk_token: '[UNK]', ...model }, vocabulary);
  const continuation = optionalString(model['continuing_subword_prefix'], 'model.continuing_subword_prefix') ?? '##';
  const limit = model['max_input_chars_per_word'];
  const maxWordLength = limit === undefined ? 100 : asNumber(limit, 'model.max_input_chars_per_word');
  const words = new WordPiece({ tokens: vocabulary.modelIds, start: '', continuation, unkId, maxWordLength });
  return { kind: 'wordpiece', unkId, words, mapsBytes: false };
}

function readUnigram(model: JsonObject, vocabulary: JsonVocabulary): JsonModel {
  const { scores, texts, special } = vocabulary;
  if (scores === undefined) throw jsonError('model.vocab', 'expected an array of [text, score] of a Unigram model');
  const unkId = asId(model['unk_id'], 'model.unk_id');
  if (unkId >= texts.length) throw jsonError('model.unk_id', `expected an id below ${texts.length}, found ${unkId}`);
  const byteFallback = optionalBoolean(model['byte_fallback'], 'model.byte_fallback') ?? false;
  const tokens: { id: number; text: string; score: number }[] = [];
  let minScore = Number.POSITIVE_INFINITY;
  scores.forEach((score, id) => {
    minScore = Math.min(minScore, score);
    if (special[id] === 0 && id !== unkId) tokens.push({ id, text: texts[id]!, score });
  });
  const byteIds = byteFallback ? findByteIds(vocabulary.modelIds, hexTokenText) : undefined;
  return { kind: 'unigram', unkId, words: new Unigram({ tokens, minScore, unkId, byteIds }), mapsBytes: false };
}

function readWordLevel(model: JsonObject, vocabulary: JsonVocabulary): JsonModel {
  const unkId = idOfUnknown(optionalString(model['unk_token'], 'model.unk_token') ?? '<unk>', vocabulary);
  return { kind: 'wordlevel', unkId, words: new WordLevel(vocabulary.modelIds, unkId), mapsBytes: false };
}
