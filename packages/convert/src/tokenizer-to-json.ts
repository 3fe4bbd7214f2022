/** Converts the vocabulary of a GGUF file to tokenizer.json and tokenizer_config.json. */
import {
  ggufVocabulary,
  tokenizerFromGguf,
  tokenizerFromJson,
  tokenType,
  type GgufVocabulary,
  type Tokenizer,
} from '@winnow/tokenizers';
import type { Json } from './hub-settings.js';
import { agreement, differenceNotice } from './probe-text.js';

const spaceMark = '\u2581';
const byteLevel = (useRegex: boolean): Json => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: useRegex,
});
const split = (pattern: string): Json => ({
  type: 'Split',
  pattern: { Regex: pattern },
  behavior: 'Isolated',
  invert: false,
});
const wordPattern = (digits: string): string =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;

/** Pre-tokenizers of byte-level BPE; the first that produces the same ids is used. */
const preTokenizers: readonly Json[] = [
  byteLevel(true),
  { type: 'Sequence', pretokenizers: [split(wordPattern('\\p{N}{1,3}')), byteLevel(false)] },
  { type: 'Sequence', pretokenizers: [split(wordPattern('\\p{N}')), byteLevel(false)] },
  { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, byteLevel(true)] },
];

export interface TokenizerFiles {
  readonly tokenizer: Json;
  readonly config: Json;
}

/**
 * @param get value of a metadata key
 * @returns nothing, and adds a notice, when the file has no vocabulary or one that tokenizer.json cannot represent
 */
export function tokenizerToJson(get: (key: string) => unknown, notices: string[]): TokenizerFiles | undefined {
  if (get('tokenizer.ggml.model') === undefined) {
    notices.push('the file has no vocabulary: tokenizer.json is not written');
    return undefined;
  }
  const vocabulary = ggufVocabulary(get);
  const source = tokenizerFromGguf(vocabulary);
  const config = configOf(source, vocabulary, get('tokenizer.chat_template'));
  for (const tokenizer of candidates(vocabulary, source)) {
    const agreed = agreement(tokenizerFromJson(tokenizer, config), source);
    if (agreed === 'none') continue;
    if (agreed === 'most') notices.push(differenceNotice(source));
    return { tokenizer, config };
  }
  notices.push('tokenizer.json cannot represent this vocabulary or would produce other ids: it is not written');
  return undefined;
}

function candidates(vocabulary: GgufVocabulary, source: Tokenizer): Json[] {
  const vocab = Object.fromEntries(vocabulary.tokens.map((text, id) => [text, id]));
  const frame = (fields: Json): Json => ({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: addedTokens(vocabulary),
    normalizer: null,
    pre_tokenizer: null,
    post_processor: surroundings(vocabulary, source),
    decoder: null,
    ...fields,
  });
  switch (vocabulary.model) {
    case 'gpt2':
      return preTokenizers.flatMap((preTokenizer) =>
        [false, true].map((ignoreMerges) =>
          frame({
            pre_tokenizer: preTokenizer,
            decoder: byteLevel(true),
            model: { ...bpe, vocab, merges: vocabulary.merges ?? [], ignore_merges: ignoreMerges },
          }),
        ),
      );
    case 'llama':
      return [frame(sentencePiece(vocabulary, vocab, scoredMerges(vocabulary)))];
    case 'gemma4':
      return [frame(sentencePiece({ ...vocabulary, addSpacePrefix: false }, vocab, vocabulary.merges ?? []))];
    case 'bert':
      return [frame(wordPiece(vocabulary, source))];
    default:
      return [];
  }
}

const bpe: Json = {
  type: 'BPE',
  dropout: null,
  unk_token: null,
  continuing_subword_prefix: null,
  end_of_word_suffix: null,
  fuse_unk: false,
  byte_fallback: false,
};

function addedTokens({ tokens, tokenTypes }: GgufVocabulary): Json[] {
  const { control, unknown, userDefined } = tokenType;
  return tokens.flatMap((content, id) => {
    const type = tokenTypes?.[id] ?? tokenType.normal;
    if (type !== control && type !== unknown && type !== userDefined) return [];
    const special = type !== userDefined;
    return [{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }];
  });
}

/** Special tokens before and after a text. */
function surroundings({ tokens, model }: GgufVocabulary, source: Tokenizer): Json | null {
  const { bosId, eosId, sepId, addBos, addEos, pair } = source;
  const first = addBos ? bosId : undefined;
  const last = addEos ? (model === 'bert' ? sepId : eosId) : undefined;
  if (first === undefined && last === undefined) return null;
  const special = (id: number | undefined, type: number): Json[] =>
    id === undefined ? [] : [{ SpecialToken: { id: tokens[id], type_id: type } }];
  const between = pair?.middle ?? [last];
  const type = pair?.secondType ?? 1;
  const text = (name: string, type: number): Json => ({ Sequence: { id: name, type_id: type } });
  const used = [...new Set([first, last, ...between].filter((id): id is number => id !== undefined))];
  return {
    type: 'TemplateProcessing',
    single: [...special(first, 0), text('A', 0), ...special(last, 0)],
    pair: [
      ...special(first, 0),
      text('A', 0),
      ...between.flatMap((id) => special(id, 0)),
      text('B', type),
      ...special(last, type),
    ],
    special_tokens: Object.fromEntries(
      used.map((id) => [tokens[id], { id: tokens[id], ids: [id], tokens: [tokens[id]] }]),
    ),
  };
}

/** Every split of a token into two tokens is a merge; better scores come first. */
function scoredMerges({ tokens, scores, tokenTypes }: GgufVocabulary): unknown[] {
  const idOf = new Map(tokens.map((text, id) => [text, id]));
  const merges: { readonly left: number; readonly right: number; readonly score: number; readonly id: number }[] = [];
  tokens.forEach((text, id) => {
    if (tokenTypes !== undefined && tokenTypes[id] !== tokenType.normal) return;
    const characters = [...text];
    for (let at = 1; at < characters.length; at++) {
      const left = idOf.get(characters.slice(0, at).join(''));
      const right = idOf.get(characters.slice(at).join(''));
      if (left !== undefined && right !== undefined) merges.push({ left, right, score: scores?.[id] ?? 0, id });
    }
  });
  merges.sort((a, b) => b.score - a.score || a.id - b.id);
  return merges.map(({ left, right }) => [tokens[left], tokens[right]]);
}

/** Characters with marks instead of spaces, and bytes for unknown ones. */
function sentencePiece(vocabulary: GgufVocabulary, vocab: Json, merges: readonly unknown[]): Json {
  const { tokens, tokenTypes, unkId, addSpacePrefix = true } = vocabulary;
  const hasBytes = tokenTypes !== undefined && Array.from(tokenTypes).includes(tokenType.byte);
  const unknown = unkId ?? (tokens[0] === '<unk>' ? 0 : undefined);
  return {
    normalizer: {
      type: 'Sequence',
      normalizers: [
        ...(addSpacePrefix ? [{ type: 'Prepend', prepend: spaceMark }] : []),
        { type: 'Replace', pattern: { String: ' ' }, content: spaceMark },
      ],
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: spaceMark }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(addSpacePrefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      ...bpe,
      unk_token: unknown === undefined ? null : tokens[unknown],
      fuse_unk: true,
      byte_fallback: hasBytes,
      ignore_merges: false,
      vocab,
      merges,
    },
  };
}

function wordPiece({ tokens, tokenTypes, lowercase = true, stripAccents }: GgufVocabulary, source: Tokenizer): Json {
  const spelled = tokens.map((text, id) => {
    if ((tokenTypes?.[id] ?? tokenType.normal) !== tokenType.normal || /^\[.+\]$/.test(text)) return text;
    return text.startsWith(spaceMark) ? text.slice(1) : `##${text}`;
  });
  return {
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: stripAccents ?? null,
      lowercase,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      type: 'WordPiece',
      unk_token: source.unkId === undefined ? '[UNK]' : tokens[source.unkId],
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(spelled.map((text, id) => [text, id])),
    },
  };
}

function configOf(source: Tokenizer, { tokens }: GgufVocabulary, chatTemplate: unknown): Json {
  const ids = {
    bos_token: source.bosId,
    eos_token: source.eosId,
    unk_token: source.unkId,
    pad_token: source.padId,
    sep_token: source.sepId,
    cls_token: source.clsId,
    mask_token: source.maskId,
  };
  const texts = Object.entries(ids).flatMap(([name, id]) => (id === undefined ? [] : [[name, tokens[id]]]));
  return {
    tokenizer_class: 'PreTrainedTokenizerFast',
    ...Object.fromEntries(texts),
    add_bos_token: source.addBos,
    add_eos_token: source.addEos,
    clean_up_tokenization_spaces: false,
    ...(typeof chatTemplate === 'string' ? { chat_template: chatTemplate } : {}),
  };
}
