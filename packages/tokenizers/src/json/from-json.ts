/**
 * Builds a tokenizer from tokenizer.json and tokenizer_config.json; it produces the same ids as Hugging Face
 * tokenizers.
 */
import { finish, isRecord, type SliceCounter, type Sliced } from '@winnow/tensor';
import { maxBytesOfTokens } from '../algorithms/byte-bpe.js';
import { END_OF_GENERATION } from '../vocabulary/end-of-generation.js';
import type { IdList } from '../tables/id-list.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { longLength, newSliceCounter } from '../text/split.js';
import type { SpecialIds, TextEncoderModel } from '../tokenizer/vocabulary-tokenizer.js';
import { VocabularyTokenizer, utf8 } from '../tokenizer/vocabulary-tokenizer.js';
import { AddedTokenSplitter } from './added-tokens.js';
import { readDecoder } from './decoder.js';
import type { JsonModel } from './model.js';
import { readModel } from './model.js';
import type { Normalizer } from './normalizer.js';
import { readNormalizer } from './normalizer.js';
import type { Surroundings } from './post-processor.js';
import { readPostProcessor } from './post-processor.js';
import type { PieceStep, PreTokenizer } from './pre-tokenizer.js';
import { PieceCutter, mapBytes, readPreTokenizer } from './pre-tokenizer.js';
import type { JsonObject } from './value.js';
import { asObject, jsonError, optionalBoolean } from './value.js';
import type { JsonVocabulary } from './vocabulary.js';
import { configToken, readVocabulary } from './vocabulary.js';

const CONFIG = 'tokenizer_config.json';

/**
 * Builds a tokenizer from parsed JSON: models of type BPE, WordPiece, Unigram and WordLevel. See
 * docs/decisions/0003-tokenizer-library.md.
 * @param tokenizerJson parsed tokenizer.json
 * @param tokenizerConfig parsed tokenizer_config.json: which tokens are BOS, EOS and so on, `add_bos_token`
 * @throws FormatError for a malformed file and for an unknown component
 */
export function tokenizerFromJson(tokenizerJson: unknown, tokenizerConfig?: unknown): Tokenizer {
  const root = asObject(tokenizerJson, '(root)');
  const config: JsonObject = tokenizerConfig === undefined || tokenizerConfig === null ? {} : asConfig(tokenizerConfig);
  const modelConfig = asObject(root['model'], 'model');
  const vocabulary = readVocabulary(root, modelConfig);
  const template = readPostProcessor(root['post_processor'], 'post_processor', vocabulary.texts.length);
  const { encoder, kind, unkId, maxTokenBytes } = createEncoder(root, modelConfig, vocabulary);
  const ids = resolveIds(config, vocabulary, template, unkId);
  const decoder = readDecoder(root['decoder']);
  const special = vocabulary.special;
  if (ids.unkId !== undefined && vocabulary.isAdded[ids.unkId] === 1) special[ids.unkId] = 1;
  return new VocabularyTokenizer({
    kind,
    texts: vocabulary.texts,
    idByText: vocabulary.idByText,
    bytesOf: (id) => {
      const text = vocabulary.texts[id]!;
      return vocabulary.isAdded[id] === 1 ? utf8(text) : text === '' ? new Uint8Array(0) : decoder.bytesOf(text);
    },
    special,
    ids,
    eosIds: endingIds(vocabulary, ids.eosId),
    ...surroundings(config, template, ids),
    pair: template.pair,
    stripLeadingSpace: decoder.stripLeadingSpace,
    maxTokenBytes,
    encoder,
  });
}

function asConfig(value: unknown): JsonObject {
  if (isRecord(value)) return value;
  throw jsonError('(root)', 'expected an object', CONFIG);
}

function createEncoder(
  root: JsonObject,
  modelConfig: JsonObject,
  vocabulary: JsonVocabulary,
): {
  encoder: TextEncoderModel;
  kind: Tokenizer['kind'];
  unkId: number | undefined;
  maxTokenBytes: number | undefined;
} {
  const normalizer = readNormalizer(root['normalizer'], 'normalizer');
  const preTokenizer = readPreTokenizer(root['pre_tokenizer'], 'pre_tokenizer');
  const model = readModel(modelConfig, vocabulary, preTokenizer.byteLevel);
  const steps = preTokenizer.byteLevel && !model.mapsBytes ? [...preTokenizer.steps, mapBytes] : preTokenizer.steps;
  return {
    encoder: new JsonEncoder(vocabulary, normalizer, steps, model),
    kind: model.kind,
    unkId: model.unkId,
    maxTokenBytes: normalizer === undefined && model.mapsBytes ? maxTokenBytesOf(vocabulary, preTokenizer) : undefined,
  };
}

function maxTokenBytesOf(vocabulary: JsonVocabulary, { keepsText }: PreTokenizer): number | undefined {
  const strips = vocabulary.added.some(({ leftStrip, rightStrip }) => leftStrip || rightStrip);
  if (!keepsText || strips) return undefined;
  return maxBytesOfTokens(vocabulary.texts, vocabulary.modelIds, (id) => vocabulary.isAdded[id] === 1);
}

/** Splits at added tokens, then runs normalizer, pre-tokenizer and model on the text between them. */
class JsonEncoder implements TextEncoderModel {
  readonly #normalizer: Normalizer | undefined;
  readonly #steps: readonly PieceStep[];
  readonly #model: JsonModel;
  // Splitters by whether special tokens are parsed: one for raw text and one for normalized text.
  readonly #splitters: readonly { readonly given: AddedTokenSplitter; readonly normalized: AddedTokenSplitter }[];

  constructor(
    vocabulary: JsonVocabulary,
    normalizer: Normalizer | undefined,
    steps: readonly PieceStep[],
    model: JsonModel,
  ) {
    this.#normalizer = normalizer;
    this.#steps = steps;
    this.#model = model;
    this.#splitters = [false, true].map((parse) => {
      const tokens = vocabulary.added.filter((token) => parse || !token.special);
      const contentOf = (content: string): string =>
        normalizer === undefined ? content : finish(normalizer(content, newSliceCounter()));
      return {
        given: new AddedTokenSplitter(
          tokens.filter((token) => !token.normalized),
          (token) => token.content,
        ),
        normalized: new AddedTokenSplitter(
          tokens.filter((token) => token.normalized),
          (token) => contentOf(token.content),
        ),
      };
    });
  }

  *encode(text: string, parseSpecialTokens: boolean, ids: IdList, work: SliceCounter): Sliced<void> {
    const { given, normalized } = this.#splitters[parseSpecialTokens ? 1 : 0]!;
    for (const outer of yield* given.split(text, work)) {
      if (work.spend(1)) yield;
      if (outer.id >= 0) {
        ids.push(outer.id);
        continue;
      }
      const plain = this.#normalizer === undefined ? outer.text : yield* this.#normalizer(outer.text, work);
      for (const inner of yield* normalized.split(plain, work)) {
        if (inner.id >= 0) ids.push(inner.id);
        else yield* this.#encodePlain(inner.text, outer.start + inner.start === 0, ids, work);
        if (work.spend(1)) yield;
      }
    }
  }

  *#encodePlain(text: string, atStart: boolean, ids: IdList, work: SliceCounter): Sliced<void> {
    const { words } = this.#model;
    const pieces = new PieceCutter(this.#steps, text.length, atStart, work);
    yield* pieces.cut(text, function* (word) {
      if (word.length > longLength) yield* words.encodeWordSliced(word, ids, work);
      else words.encodeWord(word, ids);
      if (work.spend(word.length)) yield;
    });
  }
}

function resolveIds(
  config: JsonObject,
  vocabulary: JsonVocabulary,
  template: Surroundings,
  modelUnkId: number | undefined,
): SpecialIds {
  const idOf = (name: string): number | undefined => {
    const text = configToken(config, name);
    return text === undefined ? undefined : vocabulary.idByText.get(text);
  };
  const clsId = idOf('cls_token');
  const first = template.prefix[0];
  const eosByName = END_OF_GENERATION.map((text) => vocabulary.idByText.get(text)).find(
    (id) => id !== undefined && vocabulary.special[id] === 1,
  );
  return {
    bosId: idOf('bos_token') ?? (clsId === undefined ? first : undefined),
    eosId: idOf('eos_token') ?? (Object.hasOwn(config, 'eos_token') || clsId !== undefined ? undefined : eosByName),
    unkId: idOf('unk_token') ?? modelUnkId,
    padId: idOf('pad_token'),
    sepId: idOf('sep_token'),
    clsId,
    maskId: idOf('mask_token'),
  };
}

function endingIds(vocabulary: JsonVocabulary, eosId: number | undefined): number[] {
  const ending = new Set<number>();
  if (eosId !== undefined) ending.add(eosId);
  for (const text of END_OF_GENERATION) {
    const id = vocabulary.idByText.get(text);
    if (id !== undefined && vocabulary.special[id] === 1) ending.add(id);
  }
  return [...ending];
}

/** The template decides, unless the configuration overrides BOS or EOS. */
function surroundings(
  config: JsonObject,
  template: Surroundings,
  ids: SpecialIds,
): { prefix: number[]; suffix: number[] } {
  const addBos = optionalBoolean(config['add_bos_token'], 'add_bos_token');
  const addEos = optionalBoolean(config['add_eos_token'], 'add_eos_token');
  let prefix = [...template.prefix];
  let suffix = [...template.suffix];
  if (addBos === false) prefix = prefix.filter((id) => id !== ids.bosId);
  if (addBos === true && ids.bosId !== undefined && !prefix.includes(ids.bosId)) prefix.unshift(ids.bosId);
  if (addEos === false) suffix = suffix.filter((id) => id !== ids.eosId);
  if (addEos === true && ids.eosId !== undefined && !suffix.includes(ids.eosId)) suffix.push(ids.eosId);
  return { prefix, suffix };
}
