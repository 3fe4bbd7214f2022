/** Builds a tokenizer from a GGUF vocabulary; it produces the same ids as llama.cpp. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { MergePair } from '../algorithms/bpe-rules.js';
import { BpeRules } from '../algorithms/bpe-rules.js';
import { ByteBpe, maxBytesOfTokens } from '../algorithms/byte-bpe.js';
import { CharBpe, ScoreRules } from '../algorithms/char-bpe.js';
import { SymbolTable, findByteIds } from '../algorithms/symbols.js';
import { Unigram } from '../algorithms/unigram.js';
import { WordPiece } from '../algorithms/wordpiece.js';
import type { IdList } from '../tables/id-list.js';
import { BertWords } from '../text/bert-words.js';
import { byteLevelDecode, hexTokenByte, hexTokenText } from '../text/byte-level.js';
import type { PreTokenizerRules } from '../text/pre-tokenizers.js';
import { preTokenizerNames, preTokenizerRules } from '../text/pre-tokenizers.js';
import { Charsmap } from '../text/charsmap.js';
import { UnigramNormalizer } from '../text/unigram-normalizer.js';
import type { WordModel } from '../text/words.js';
import { encodeWord, encodeWords, replaceSpaces } from '../text/words.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { SpecialIds, TextEncoderModel } from '../tokenizer/vocabulary-tokenizer.js';
import { VocabularyTokenizer, utf8 } from '../tokenizer/vocabulary-tokenizer.js';
import type { FormatError } from '@winnow/tensor';
import type { GgufVocabulary } from '../vocabulary/gguf-vocabulary.js';
import { checkVocabulary, vocabularyError } from '../vocabulary/gguf-vocabulary.js';
import { SpecialTokenSplitter } from '../vocabulary/special-tokens.js';
import { attribute, correctedAttributes, declaredAttributes, specialTokens } from './gguf-attributes.js';

const SPACE_MARK = '\u2581';

/** Fields shared by all kinds of vocabularies. */
interface Context {
  readonly vocabulary: GgufVocabulary;
  readonly texts: readonly string[];
  readonly idByText: ReadonlyMap<string, number>;
  readonly ids: SpecialIds;
  /** Attributes as declared, before corrections. */
  readonly declared: Uint8Array;
}

/** What each kind of vocabulary defines. */
interface Kind {
  readonly kind: Tokenizer['kind'];
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly stripLeadingSpace: boolean;
  /** Byte-level BPE, of which no byte of a text is dropped. */
  readonly byteLevel?: boolean;
  /** Bytes of a normal token. */
  readonly bytesOf: (text: string) => Uint8Array;
  /** Encodes text between special tokens. */
  readonly encode: (text: string, afterSpecial: boolean, ids: IdList, work: SliceCounter) => Sliced<void>;
}

/**
 * Builds the tokenizer of a GGUF file; it produces the same ids as llama.cpp. The vocabulary is copied into compact
 * tables; the input is not retained. Cost: linear in the vocabulary (150 000 tokens: a few tenths of a second);
 * encoding is O(n log n) in the text.
 * @throws FormatError for an unknown model or pre-tokenizer (it names the known ones) and for contradictory fields
 */
export function tokenizerFromGguf(vocabulary: GgufVocabulary): Tokenizer {
  checkVocabulary(vocabulary);
  const texts = vocabulary.tokens.map((text, id) => (text === '' ? `[EMPTY_${id}]` : text));
  const idByText = new Map<string, number>();
  texts.forEach((text, id) => {
    if (!idByText.has(text)) idByText.set(text, id);
  });
  const ids = resolveIds(vocabulary);
  const context: Context = { vocabulary, texts, idByText, ids, declared: declaredAttributes(vocabulary) };
  const kind = createKind(context);
  const { bits, eosIds } = correctedAttributes(vocabulary, idByText, ids.eosId);
  const splitter = new SpecialTokenSplitter(specialTokens(texts, bits));
  const { prefix, suffix } = surroundings(vocabulary, ids, kind);
  const middle = middleOf(vocabulary, ids, suffix);
  return new VocabularyTokenizer({
    kind: kind.kind,
    texts,
    idByText,
    bytesOf: (id) => tokenBytes(texts[id]!, bits[id]!, kind.bytesOf),
    special: bits.map((flags) => ((flags & (attribute.control | attribute.unknown)) === 0 ? 0 : 1)),
    ids,
    eosIds,
    prefix,
    suffix,
    pair: middle.length === 0 ? undefined : { prefix, middle, suffix, secondType: vocabulary.model === 'bert' ? 1 : 0 },
    stripLeadingSpace: kind.stripLeadingSpace,
    maxTokenBytes: kind.byteLevel === true ? maxTokenBytesOf(texts, idByText, bits) : undefined,
    encoder: fragmentEncoder(splitter, kind),
  });
}

/** Undefined for a file with tokens that strip the whitespace around them. */
function maxTokenBytesOf(
  texts: readonly string[],
  idByText: ReadonlyMap<string, number>,
  bits: Uint8Array,
): number | undefined {
  if (bits.some((flags) => (flags & (attribute.leftStrip | attribute.rightStrip)) !== 0)) return undefined;
  return maxBytesOfTokens(texts, idByText, (id) => (bits[id]! & attribute.normal) === 0);
}

function fragmentEncoder(splitter: SpecialTokenSplitter, kind: Kind): TextEncoderModel {
  return {
    *encode(text, parseSpecialTokens, ids, work) {
      let afterSpecial = true;
      for (const fragment of yield* splitter.split(text, parseSpecialTokens, work)) {
        if (fragment.id >= 0) ids.push(fragment.id);
        else yield* kind.encode(text.slice(fragment.start, fragment.end), afterSpecial, ids, work);
        afterSpecial = fragment.id >= 0;
        if (work.spend(1)) yield;
      }
    },
  };
}

/** Ids from the file, or the kind's defaults where the vocabulary contains them. */
function resolveIds(vocabulary: GgufVocabulary): SpecialIds {
  const defaults: Partial<Record<keyof SpecialIds, number>> =
    vocabulary.model === 'llama'
      ? { bosId: 1, eosId: 2, unkId: 0 }
      : vocabulary.model === 'bert'
        ? { bosId: vocabulary.clsId ?? 101, unkId: 100, sepId: 102, padId: 0, maskId: 103 }
        : vocabulary.model === 't5'
          ? { eosId: 1, unkId: 2, padId: 0 }
          : {};
  const pick = (name: keyof SpecialIds): number | undefined => {
    const fallback = defaults[name];
    return vocabulary[name] ?? (fallback !== undefined && fallback < vocabulary.tokens.length ? fallback : undefined);
  };
  const bosId = pick('bosId');
  return {
    bosId,
    eosId: pick('eosId'),
    unkId: pick('unkId'),
    padId: pick('padId'),
    sepId: pick('sepId'),
    clsId: vocabulary.clsId ?? (vocabulary.model === 'bert' ? bosId : undefined),
    maskId: pick('maskId'),
  };
}

function surroundings(vocabulary: GgufVocabulary, ids: SpecialIds, kind: Kind): { prefix: number[]; suffix: number[] } {
  const require = (id: number | undefined, flag: string, field: string): number => {
    if (id === undefined) throw vocabularyError(field, `expected a token id, because ${flag} is set, found none`);
    return id;
  };
  if (vocabulary.model === 'bert') {
    return {
      prefix: [require(ids.bosId, 'WordPiece', 'tokenizer.ggml.bos_token_id')],
      suffix: [require(ids.sepId, 'WordPiece', 'tokenizer.ggml.seperator_token_id')],
    };
  }
  return {
    prefix: kind.addBos ? [require(ids.bosId, 'add_bos_token', 'tokenizer.ggml.bos_token_id')] : [],
    suffix: kind.addEos ? [require(ids.eosId, 'add_eos_token', 'tokenizer.ggml.eos_token_id')] : [],
  };
}

/** The special tokens between two texts, as in llama.cpp's server. */
function middleOf({ model, addSep }: GgufVocabulary, { sepId }: SpecialIds, suffix: readonly number[]): number[] {
  const separates = model !== 'bert' && (addSep ?? model === 't5');
  return separates && sepId !== undefined ? [...suffix, sepId] : [...suffix];
}

function tokenBytes(text: string, bits: number, ordinary: (text: string) => Uint8Array): Uint8Array {
  if ((bits & (attribute.control | attribute.unknown | attribute.userDefined)) !== 0) return utf8(text);
  if ((bits & attribute.byte) !== 0) {
    const byte = hexTokenByte(text);
    if (byte >= 0) return Uint8Array.of(byte);
  }
  return ordinary(text);
}

function createKind(context: Context): Kind {
  switch (context.vocabulary.model) {
    case 'llama':
      return createSpm(context);
    case 'bert':
      return createWordPiece(context);
    case 't5':
      return createUnigram(context);
    default:
      return createBpe(context);
  }
}

function unmark(text: string): Uint8Array {
  return utf8(text.replaceAll(SPACE_MARK, ' '));
}

function createSpm({ vocabulary, texts, idByText, ids }: Context): Kind {
  const symbols = new SymbolTable(texts, idByText);
  const unknown = { byteIds: findByteIds(idByText, hexTokenText), unkId: ids.unkId, fuse: true };
  const model = new CharBpe(symbols, new ScoreRules(symbols, vocabulary.scores), unknown);
  const addSpacePrefix = vocabulary.addSpacePrefix ?? true;
  return {
    kind: 'spm',
    addBos: vocabulary.addBos ?? true,
    addEos: vocabulary.addEos ?? false,
    stripLeadingSpace: addSpacePrefix,
    bytesOf: unmark,
    *encode(text, afterSpecial, out, work) {
      const prefix = addSpacePrefix && afterSpecial ? SPACE_MARK : '';
      yield* encodeWord(prefix + (yield* replaceSpaces(text, SPACE_MARK, work)), model, out, work);
    },
  };
}

function createBpe({ vocabulary, texts, idByText }: Context): Kind {
  const name =
    vocabulary.model === 'gemma4' ? 'gemma4' : vocabulary.pre === '' ? 'default' : (vocabulary.pre ?? 'default');
  const rules = preTokenizerRules(name);
  if (rules === undefined) {
    throw vocabularyError(
      'tokenizer.ggml.pre',
      `expected one of ${preTokenizerNames().join(', ')}, found ${JSON.stringify(name.slice(0, 80))}`,
    );
  }
  const merges = vocabulary.merges ?? [];
  const splitter = rules.split();
  const common = {
    kind: 'bpe' as const,
    addBos: rules.wholeNewlines === true || (vocabulary.addBos ?? rules.addBos ?? false),
    addEos: vocabulary.addEos ?? false,
    stripLeadingSpace: false,
  };
  if (rules.characters === true) return { ...common, ...characterBpe(rules, merges, texts, idByText) };
  const model = new ByteBpe({
    texts,
    idByText,
    merges: mergePairs(merges),
    numMerges: merges.length,
    ignoreMerges: rules.ignoreMerges ?? false,
  });
  return {
    ...common,
    byteLevel: true,
    bytesOf: byteLevelDecode,
    encode: (text, _, out, work) => encodeWords(text, splitter, model, out, work),
  };
}

function characterBpe(
  rules: PreTokenizerRules,
  merges: readonly string[],
  texts: readonly string[],
  idByText: ReadonlyMap<string, number>,
): Pick<Kind, 'bytesOf' | 'encode'> {
  const symbols = new SymbolTable(texts, idByText);
  const unknown = { byteIds: findByteIds(idByText, hexTokenText), unkId: undefined, fuse: false };
  const splitter = rules.split();
  const model = new CharBpe(symbols, new BpeRules(symbols, mergePairs(merges), merges.length), unknown, {
    ignoreMerges: rules.ignoreMerges ?? false,
  });
  const newlinesOf = (word: string): number | undefined =>
    rules.wholeNewlines === true && word.startsWith('\n') ? idByText.get(word) : undefined;
  const words: WordModel = {
    encodeWord(word: string, out: IdList): void {
      const newlines = newlinesOf(word);
      if (newlines === undefined) model.encodeWord(word, out);
      else out.push(newlines);
    },
    *encodeWordSliced(word: string, out: IdList, work: SliceCounter): Sliced<void> {
      const newlines = newlinesOf(word);
      if (newlines === undefined) yield* model.encodeWordSliced(word, out, work);
      else out.push(newlines);
    },
  };
  return {
    bytesOf: unmark,
    *encode(text, _, out, work) {
      yield* encodeWords(yield* replaceSpaces(text, SPACE_MARK, work), splitter, words, out, work);
    },
  };
}

function* mergePairs(merges: readonly string[]): Generator<MergePair> {
  for (let rank = 0; rank < merges.length; rank++) {
    const merge = merges[rank]!;
    const space = merge.indexOf(' ', 1);
    if (space < 0 || space === merge.length - 1) {
      const found = JSON.stringify(merge.slice(0, 80));
      throw vocabularyError('tokenizer.ggml.merges', `expected "left right" at index ${rank}, found ${found}`);
    }
    yield [merge.slice(0, space), merge.slice(space + 1)];
  }
}

function createWordPiece({ vocabulary, idByText, ids }: Context): Kind {
  const model = new WordPiece({ tokens: idByText, start: SPACE_MARK, continuation: '', unkId: ids.unkId });
  const lowercase = vocabulary.lowercase ?? true;
  const words = new BertWords({ lowercase, stripAccents: vocabulary.stripAccents ?? lowercase });
  return {
    kind: 'wordpiece',
    addBos: true,
    addEos: true,
    stripLeadingSpace: true,
    bytesOf: unmark,
    encode: (text, _, out, work) => words.encode(text, model, out, work),
  };
}

function createUnigram({ vocabulary, texts, ids, declared }: Context): Kind {
  if (ids.unkId === undefined) {
    throw vocabularyError('tokenizer.ggml.unknown_token_id', 'expected the id of the unknown token, found none');
  }
  const scores = vocabulary.scores!;
  const tokens: { id: number; text: string; score: number }[] = [];
  const userDefined: string[] = [];
  let minScore = Number.POSITIVE_INFINITY;
  texts.forEach((text, id) => {
    const bits = declared[id]!;
    if ((bits & attribute.normal) !== 0) minScore = Math.min(minScore, scores[id]!);
    if ((bits & attribute.userDefined) !== 0) userDefined.push(text);
    if ((bits & (attribute.normal | attribute.userDefined | attribute.unused)) === 0) return;
    tokens.push({ id, text, score: (bits & attribute.userDefined) === 0 ? Math.fround(scores[id]!) : 0 });
  });
  const addSpacePrefix = vocabulary.addSpacePrefix ?? false;
  const removeExtraWhitespaces = vocabulary.removeExtraWhitespaces ?? false;
  const table = vocabulary.precompiledCharsmap;
  const tableError = (message: string): FormatError => vocabularyError('tokenizer.ggml.precompiled_charsmap', message);
  const charsmap = table === undefined ? undefined : new Charsmap(table, tableError);
  const normalizer = new UnigramNormalizer({ charsmap, userDefined, addSpacePrefix, removeExtraWhitespaces });
  const model = new Unigram({
    tokens,
    minScore: Number.isFinite(minScore) ? minScore : 0,
    unkId: ids.unkId,
    byteIds: undefined,
  });
  return {
    kind: 'unigram',
    addBos: vocabulary.addBos ?? false,
    addEos: vocabulary.addEos ?? true,
    stripLeadingSpace: addSpacePrefix || removeExtraWhitespaces,
    bytesOf: unmark,
    *encode(text, _, out, work) {
      yield* encodeWord(yield* normalizer.normalize(text, work), model, out, work);
    },
  };
}
