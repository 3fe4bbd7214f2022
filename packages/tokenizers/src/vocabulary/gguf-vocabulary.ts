/** The vocabulary of a GGUF file as a plain object, read and checked from `tokenizer.ggml.*` metadata. */
import { describeValue, FormatError } from '@winnow/tensor';

/** Token types of `tokenizer.ggml.token_type`. */
export const tokenType: {
  readonly normal: 1;
  readonly unknown: 2;
  readonly control: 3;
  readonly userDefined: 4;
  readonly unused: 5;
  readonly byte: 6;
} = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

/** A vocabulary in GGUF terms. `undefined` and absent mean the same. */
export interface GgufVocabulary {
  /** Algorithm: `llama` (SentencePiece BPE), `gpt2` (byte-level BPE), `gemma4`, `bert` (WordPiece), `t5` (unigram). */
  readonly model: string;
  /** Name of the pre-tokenizer of byte-level BPE; absent: `default`. */
  readonly pre?: string;
  /** Text of each id. */
  readonly tokens: readonly string[];
  /** Score of each id: merge priority (`llama`) or log-probability (`t5`). */
  readonly scores?: ArrayLike<number>;
  /** Type of each id, see `tokenType`; absent: all normal. */
  readonly tokenTypes?: ArrayLike<number>;
  /** BPE merges, best first, as `left right`. */
  readonly merges?: readonly string[];
  readonly bosId?: number;
  readonly eosId?: number;
  readonly eotId?: number;
  readonly eomId?: number;
  readonly unkId?: number;
  readonly sepId?: number;
  readonly padId?: number;
  readonly clsId?: number;
  readonly maskId?: number;
  readonly fimPadId?: number;
  readonly fimRepId?: number;
  readonly fimSepId?: number;
  /** When absent, the default of the kind and pre-tokenizer, as in llama.cpp. */
  readonly addBos?: boolean;
  readonly addEos?: boolean;
  /** Whether SEP follows EOS between two texts; absent: with SentencePiece unigram, if there is a SEP. */
  readonly addSep?: boolean;
  readonly addSpacePrefix?: boolean;
  readonly removeExtraWhitespaces?: boolean;
  /** WordPiece: default `true`; accents follow `lowercase` when absent. */
  readonly lowercase?: boolean;
  readonly stripAccents?: boolean;
  /** SentencePiece's normalization table (unigram). */
  readonly precompiledCharsmap?: Uint8Array;
  /** `general.name` and `general.architecture`: a few models strip whitespace around special tokens by name. */
  readonly modelName?: string;
  readonly architecture?: string;
}

const SOURCE = 'GGUF tokenizer';

/** Vocabulary types that `tokenizerFromGguf` implements. */
export const supportedModels: readonly string[] = ['llama', 'gpt2', 'gemma4', 'bert', 't5'];

/** A `FormatError` about one metadata field. */
export function vocabularyError(field: string, message: string): FormatError {
  return new FormatError({ source: SOURCE, field, message });
}

/**
 * Reads the vocabulary from GGUF metadata.
 * @param get returns the value of a metadata key (string, number, bigint, boolean, array or typed array) or `undefined`
 * @throws FormatError when a field is missing, has a wrong type, or contradicts another
 */
export function ggufVocabulary(get: (key: string) => unknown): GgufVocabulary {
  const reader = new MetadataReader(get);
  const model = reader.string('tokenizer.ggml.model');
  if (model === undefined) throw vocabularyError('tokenizer.ggml.model', 'expected a string, found nothing');
  if (!supportedModels.includes(model)) throw unsupportedModel(model);
  const tokens = reader.strings('tokenizer.ggml.tokens');
  if (tokens === undefined)
    throw vocabularyError('tokenizer.ggml.tokens', 'expected an array of strings, found nothing');
  if (tokens.length === 0) throw noTokens();
  const optional: { -readonly [K in keyof GgufVocabulary]?: GgufVocabulary[K] | undefined } = {
    pre: reader.string('tokenizer.ggml.pre'),
    scores: reader.numbers('tokenizer.ggml.scores'),
    tokenTypes: reader.numbers('tokenizer.ggml.token_type'),
    merges: reader.strings('tokenizer.ggml.merges'),
    bosId: reader.id('bos_token_id', tokens.length),
    eosId: reader.id('eos_token_id', tokens.length),
    eotId: reader.id('eot_token_id', tokens.length),
    eomId: reader.id('eom_token_id', tokens.length),
    unkId: reader.id('unknown_token_id', tokens.length),
    // The key is misspelled in the GGUF specification and in every file.
    sepId: reader.id('seperator_token_id', tokens.length) ?? reader.id('separator_token_id', tokens.length),
    padId: reader.id('padding_token_id', tokens.length),
    clsId: reader.id('cls_token_id', tokens.length),
    maskId: reader.id('mask_token_id', tokens.length),
    fimPadId: reader.id('fim_pad_token_id', tokens.length),
    fimRepId: reader.id('fim_rep_token_id', tokens.length),
    fimSepId: reader.id('fim_sep_token_id', tokens.length),
    addBos: reader.boolean('tokenizer.ggml.add_bos_token'),
    addEos: reader.boolean('tokenizer.ggml.add_eos_token'),
    addSep: reader.boolean('tokenizer.ggml.add_sep_token'),
    addSpacePrefix: reader.boolean('tokenizer.ggml.add_space_prefix'),
    removeExtraWhitespaces: reader.boolean('tokenizer.ggml.remove_extra_whitespaces'),
    lowercase: reader.boolean('tokenizer.ggml.normalizer.lowercase'),
    stripAccents: reader.boolean('tokenizer.ggml.normalizer.strip_accents'),
    precompiledCharsmap: reader.bytes('tokenizer.ggml.precompiled_charsmap'),
    modelName: reader.string('general.name'),
    architecture: reader.string('general.architecture'),
  };
  const vocabulary: GgufVocabulary = { model, tokens };
  for (const [name, value] of Object.entries(optional)) {
    if (value !== undefined) (vocabulary as unknown as Record<string, unknown>)[name] = value;
  }
  checkVocabulary(vocabulary);
  return vocabulary;
}

/** Checks lengths, id ranges and scores. @throws FormatError */
export function checkVocabulary(vocabulary: GgufVocabulary): void {
  const { model, tokens, scores, tokenTypes, merges } = vocabulary;
  if (!supportedModels.includes(model)) throw unsupportedModel(model);
  if (tokens.length === 0) throw noTokens();
  for (const [field, list] of [
    ['scores', scores],
    ['token_type', tokenTypes],
  ] as const) {
    if (list !== undefined && list.length !== tokens.length) {
      throw vocabularyError(
        `tokenizer.ggml.${field}`,
        `expected ${tokens.length} entries, one per token, found ${list.length}`,
      );
    }
  }
  if (scores !== undefined) {
    for (let id = 0; id < scores.length; id++) {
      if (Number.isNaN(scores[id]!)) {
        throw vocabularyError('tokenizer.ggml.scores', `expected a number for token ${id}, found NaN`);
      }
    }
  }
  if (model === 't5' && scores === undefined) {
    throw vocabularyError(
      'tokenizer.ggml.scores',
      'expected one score per token of a unigram vocabulary, found nothing',
    );
  }
  if ((model === 'gpt2' || model === 'gemma4') && merges === undefined && vocabulary.pre !== 'kimi-k2') {
    throw vocabularyError('tokenizer.ggml.merges', 'expected the merges of a BPE vocabulary, found nothing');
  }
  for (const [name, value] of Object.entries(vocabulary)) {
    if (!name.endsWith('Id') || value === undefined) continue;
    if (!Number.isInteger(value) || value < 0 || value >= tokens.length) {
      throw vocabularyError(name, `expected a token id below ${tokens.length}, found ${String(value)}`);
    }
  }
}

function noTokens(): FormatError {
  return vocabularyError('tokenizer.ggml.tokens', 'expected at least one token, found none');
}

function unsupportedModel(model: string): FormatError {
  return vocabularyError(
    'tokenizer.ggml.model',
    `expected one of ${supportedModels.join(', ')}, found ${JSON.stringify(model.slice(0, 80))}`,
  );
}

/** Typed access to metadata values. */
class MetadataReader {
  readonly #get: (key: string) => unknown;

  constructor(get: (key: string) => unknown) {
    this.#get = get;
  }

  string(key: string): string | undefined {
    const value = this.#value(key);
    if (value === undefined || typeof value === 'string') return value;
    throw vocabularyError(key, `expected a string, found ${describeValue(value)}`);
  }

  boolean(key: string): boolean | undefined {
    const value = this.#value(key);
    if (value === undefined || typeof value === 'boolean') return value;
    throw vocabularyError(key, `expected a boolean, found ${describeValue(value)}`);
  }

  id(name: string, vocabSize: number): number | undefined {
    const key = `tokenizer.ggml.${name}`;
    const value = this.#value(key);
    if (value === undefined) return undefined;
    const id = typeof value === 'bigint' ? Number(value) : value;
    if (typeof id !== 'number') throw vocabularyError(key, `expected a token id, found ${describeValue(value)}`);
    // Exporters write -1 for a missing token, as a signed or an unsigned number.
    if (id === -1 || id === 0xffffffff) return undefined;
    if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
      throw vocabularyError(key, `expected a token id below ${vocabSize}, found ${id}`);
    }
    return id;
  }

  strings(key: string): readonly string[] | undefined {
    const value = this.#value(key);
    if (value === undefined) return undefined;
    if (!Array.isArray(value))
      throw vocabularyError(key, `expected an array of strings, found ${describeValue(value)}`);
    const wrong = value.findIndex((item) => typeof item !== 'string');
    if (wrong >= 0) {
      throw vocabularyError(
        key,
        `expected an array of strings, found ${describeValue(value[wrong])} at index ${wrong}`,
      );
    }
    return value as string[];
  }

  numbers(key: string): ArrayLike<number> | undefined {
    const value = this.#value(key);
    if (value === undefined) return undefined;
    if (isNumberView(value)) return value;
    if (!Array.isArray(value))
      throw vocabularyError(key, `expected an array of numbers, found ${describeValue(value)}`);
    const wrong = value.findIndex((item) => typeof item !== 'number');
    if (wrong >= 0) {
      throw vocabularyError(
        key,
        `expected an array of numbers, found ${describeValue(value[wrong])} at index ${wrong}`,
      );
    }
    return value as number[];
  }

  bytes(key: string): Uint8Array | undefined {
    const numbers = this.numbers(key);
    if (numbers === undefined) return undefined;
    const bytes = new Uint8Array(numbers.length);
    for (let index = 0; index < numbers.length; index++) {
      const value = numbers[index]!;
      if (!Number.isInteger(value) || value < -128 || value > 255) {
        throw vocabularyError(key, `expected bytes, found ${value} at index ${index}`);
      }
      bytes[index] = value;
    }
    return bytes;
  }

  #value(key: string): unknown {
    return this.#get(key) ?? undefined;
  }
}

function isNumberView(value: unknown): value is Int32Array {
  return (
    ArrayBuffer.isView(value) &&
    !(value instanceof DataView) &&
    !(value instanceof BigInt64Array) &&
    !(value instanceof BigUint64Array)
  );
}
