/** tokenizer.json: the tree. Tokenizers that can be read encode and decode hard texts. */
import { tokenizerFromJson } from '@winnow/tokenizers';
import { FormatError } from '@winnow/tensor';
import { mutateJsonText, type JsonTree } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyTokenizer } from '../tiny-model.ts';

const unigram = {
  version: '1.0',
  added_tokens: [{ id: 0, content: '<unk>', special: true }],
  normalizer: {
    type: 'Sequence',
    normalizers: [{ type: 'NFKC' }, { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' }],
  },
  pre_tokenizer: { type: 'Metaspace', replacement: '\u2581', add_prefix_space: true },
  decoder: { type: 'Metaspace', replacement: '\u2581', add_prefix_space: true },
  model: {
    type: 'Unigram',
    unk_id: 0,
    vocab: [
      ['<unk>', 0],
      ['\u2581', -2],
      ['a', -1],
      ['the', -0.5],
      ['\u2581the', -0.25],
    ],
  },
};
const wordPiece = {
  version: '1.0',
  added_tokens: [{ id: 2, content: '[CLS]', special: true, lstrip: true }],
  normalizer: {
    type: 'BertNormalizer',
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: {
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: '[CLS]', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [],
    special_tokens: { '[CLS]': { id: '[CLS]', ids: [2], tokens: ['[CLS]'] } },
  },
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  model: {
    ...{ type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100 },
    vocab: { '[UNK]': 0, a: 1, '[CLS]': 2, '##b': 3, the: 4 },
  },
};
const split = {
  ...tinyTokenizer,
  pre_tokenizer: {
    type: 'Sequence',
    pretokenizers: [
      {
        type: 'Split',
        pattern: { Regex: "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}{1,3}|\\s+(?!\\S)|\\s+" },
        behavior: 'Isolated',
        invert: false,
      },
      { type: 'Digits', individual_digits: true },
      { type: 'Punctuation', behavior: 'Contiguous' },
      tinyTokenizer.pre_tokenizer,
    ],
  },
};

const members: Readonly<Record<string, JsonTree>> = {
  type: 'Split',
  pattern: { Regex: '(a+)+$' },
  behavior: 'MergedWithPrevious',
  pre_tokenizer: { type: 'FixedLength', length: 0 },
  normalizer: { type: 'Prepend', prepend: '\u2581' },
  decoder: { type: 'Strip', content: ' ', start: 1, stop: 0 },
  invert: true,
  byte_fallback: true,
  ignore_merges: true,
  dropout: 0.5,
};

const texts: readonly string[] = [
  ...['', ' ', 'Once upon a time, the  cat\tsat.\n', 'a'.repeat(3000), ' '.repeat(2000), '\u{1F468}\u200D\u{1F469}'],
  ...['\0\uFFFD\uD800x', '1234567890.5e-3', '<s>[CLS]</s><unk>', 'the'.repeat(500), 'e\u0301'.repeat(300)],
];

export async function createTarget(): Promise<Target> {
  return {
    examples: [tinyTokenizer, unigram, wordPiece, split].map((tree) => bytesOf(JSON.stringify(tree))),
    mutate: (random, input) => bytesOf(mutateJsonText(random, textOf(input), members)),
    async run(input) {
      let json: unknown;
      try {
        json = JSON.parse(textOf(input));
      } catch (cause) {
        throw new FormatError({ source: 'tokenizer.json', field: 'JSON', message: 'not JSON' }, { cause });
      }
      const tokenizer = tokenizerFromJson(json);
      for (const text of texts) tokenizer.decode(tokenizer.encode(text));
    },
  };
}
