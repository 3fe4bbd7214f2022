/** tokenizer.json files that cover every component; without imports, like `cases.ts`. */
type Json = Record<string, unknown>;

const byteLevel: Json = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
const gpt2: Json = { ...byteLevel, use_regex: true };
const spaces = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

function sequence(...pretokenizers: Json[]): Json {
  return { type: 'Sequence', pretokenizers };
}

function split(pattern: string, behavior = 'Isolated', invert = false): Json {
  return { type: 'Split', pattern: { Regex: pattern }, behavior, invert };
}

function added(id: number, content: string, flags: Json = {}): Json {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...flags };
}

type MakePairs = (preTokenizer: Json, parts?: Json, model?: Json) => Json;

function file(parts: Json): Json {
  return {
    ...{ version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null },
    ...{ pre_tokenizer: null, post_processor: null, decoder: null },
    ...parts,
  };
}

/**
 * @param pairs the vocabulary of `pairVocabulary`
 * @param words spellings for the unigram and WordPiece cases, byte-level (those of the demo model)
 * @param charsmap base64 of a normalization table
 */
export function jsonCases(
  { tokens, merges }: { readonly tokens: readonly string[]; readonly merges: readonly string[] },
  words: readonly string[],
  charsmap: string,
): Record<string, Json> {
  const pairIds: Record<string, number> = {};
  const merged = new Set(merges.map((merge) => merge.replace(' ', '')));
  tokens.slice(0, -1).forEach((token, id) => {
    if (token.length === 1 || merged.has(token)) pairIds[token] = id;
  });
  const pairs: MakePairs = (pre_tokenizer, parts = {}, model = {}) =>
    file({
      pre_tokenizer,
      decoder: gpt2,
      ...parts,
      model: {
        ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null },
        ...{ fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab: pairIds, merges },
        ...model,
      },
    });
  return {
    ...knownCases(pairs),
    ...componentCases(pairs, pairIds['ab']!),
    ...affixCases(pairIds, merges),
    ...wordLevelCases(words),
    ...unigramCases(words, charsmap),
    ...wordPieceCases(words),
  };
}

/** Byte-level BPE as in files of well-known models. */
function knownCases(pairs: MakePairs): Record<string, Json> {
  return {
    gpt2: pairs(gpt2),
    prefixSpace: pairs({ ...gpt2, add_prefix_space: true }),
    llama3: pairs(
      sequence(
        split(`${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${spaces}`),
        byteLevel,
      ),
    ),
    qwen2: pairs(
      sequence(
        split(`${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${spaces}`),
        byteLevel,
      ),
      { normalizer: { type: 'NFC' } },
    ),
    gpt4o: pairs(
      sequence(
        split(
          "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" +
            "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" +
            `\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${spaces}`,
        ),
        byteLevel,
      ),
      {},
      { ignore_merges: true },
    ),
    deepseek3: pairs(
      sequence(
        split('\\p{N}{1,3}'),
        split('[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+'),
        split(
          '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|' +
            '\\s*[\r\n]+|\\s+(?!\\S)|\\s+',
        ),
        byteLevel,
      ),
    ),
  };
}

/** Byte-level BPE with one additional component each. @param ab the id of the token `ab` */
function componentCases(pairs: MakePairs, ab: number): Record<string, Json> {
  const cases: Record<string, Json> = {
    digits: pairs(sequence({ type: 'Digits', individual_digits: true }, gpt2)),
    digitRuns: pairs(sequence({ type: 'Digits', individual_digits: false }, byteLevel)),
    splitString: pairs(
      sequence({ type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false }, byteLevel),
    ),
    punctuation: pairs(sequence({ type: 'Punctuation', behavior: 'Isolated' }, byteLevel)),
    punctuationRuns: pairs(sequence({ type: 'Punctuation', behavior: 'Contiguous' }, byteLevel)),
    whitespace: pairs(sequence({ type: 'Whitespace' }, byteLevel)),
    whitespaceSplit: pairs(sequence({ type: 'WhitespaceSplit' }, byteLevel)),
    fixedLength: pairs(sequence({ type: 'FixedLength', length: 3 }, byteLevel)),
    byteLevelFirst: pairs(sequence(gpt2, split('[aeiou\u0120]'), { type: 'Digits', individual_digits: true })),
    strip: pairs(byteLevel, { normalizer: { type: 'Strip', strip_left: true, strip_right: true } }),
    replace: pairs(byteLevel, { normalizer: { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' $1' } }),
    added: pairs(gpt2, {
      normalizer: { type: 'Lowercase' },
      added_tokens: [
        added(65792, '<s>'),
        added(65793, '<l>', { lstrip: true }),
        added(65794, '<r>', { rstrip: true }),
        added(ab, 'ab', { single_word: true, special: false }),
        added(65795, 'Hello', { normalized: true, special: false }),
        added(65796, '<s><l>'),
        added(65797, '  ', { special: false }),
        added(65798, 'world', { normalized: true, special: false, lstrip: true, rstrip: true }),
      ],
    }),
  };
  for (const behavior of ['MergedWithPrevious', 'MergedWithNext', 'Contiguous', 'Removed']) {
    for (const invert of [false, true]) {
      cases[`split${behavior}${invert ? 'Inverted' : ''}`] = pairs(
        sequence(split('[aeiou ]+|\\n', behavior, invert), byteLevel),
      );
    }
  }
  for (const type of ['NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents']) {
    cases[`normalizer${type}`] = pairs(byteLevel, { normalizer: { type } });
  }
  return cases;
}

/** BPE whose tokens tell the place in a word; all pairs of `pairIds` are also tokens with the affix. */
function affixCases(pairIds: Readonly<Record<string, number>>, merges: readonly string[]): Record<string, Json> {
  const marked = 70_000; // ids of tokens with the affix begin here
  const entries = Object.entries(pairIds);
  const bpe = (pre_tokenizer: Json, model: Json): Json =>
    file({ pre_tokenizer, decoder: gpt2, model: { type: 'BPE', unk_token: null, ...model } });
  const suffixed = {
    end_of_word_suffix: '</w>',
    vocab: { ...pairIds, ...Object.fromEntries(entries.map(([text, id]) => [`${text}</w>`, marked + id])) },
    merges: merges.flatMap((merge) => [merge, `${merge}</w>`]),
  };
  const prefixed = {
    continuing_subword_prefix: '##',
    vocab: { ...pairIds, ...Object.fromEntries(entries.map(([text, id]) => [`##${text}`, marked + id])) },
    merges: merges.flatMap((merge) => [merge.replace(' ', ' ##'), `##${merge.replace(' ', ' ##')}`]),
  };
  return {
    suffix: bpe(gpt2, suffixed),
    suffixCharacters: bpe({ type: 'Whitespace' }, ofAscii(suffixed)),
    prefix: bpe(gpt2, prefixed),
    prefixCharacters: bpe({ type: 'Whitespace' }, ofAscii(prefixed)),
  };
}

/** A model to which all other characters are unknown. */
function ofAscii<T extends { readonly vocab: object; readonly merges: readonly string[] }>(model: T): Json {
  const isAscii = (text: string): boolean => /^[ -~]*$/.test(text);
  const vocab = Object.fromEntries(Object.entries(model.vocab).filter(([text]) => isAscii(text)));
  const unknown = { unk_token: '<unk>', fuse_unk: true };
  return { ...model, ...unknown, vocab: { ...vocab, '<unk>': 69_999 }, merges: model.merges.filter(isAscii) };
}

/** @param words byte-level */
function wordLevelCases(words: readonly string[]): Record<string, Json> {
  const vocab = Object.fromEntries(['<unk>', ...words].map((text, id) => [text, id]));
  const wordLevel = (pre_tokenizer: Json): Json =>
    file({ pre_tokenizer, model: { type: 'WordLevel', unk_token: '<unk>', vocab } });
  const scores = ['<unk>', ...words].map((text, id) => [text, id === 0 ? 0 : -1 - ((id * 7919) % 1000) / 90]);
  return {
    wordLevel: wordLevel({ type: 'Whitespace' }),
    wordLevelBytes: wordLevel(gpt2),
    unigramByteLevel: file({ pre_tokenizer: gpt2, model: { type: 'Unigram', unk_id: 0, vocab: scores } }),
  };
}

function unigramCases(words: readonly string[], charsmap: string): Record<string, Json> {
  const marked = words.map((word) => word.replaceAll('\u0120', '\u2581'));
  const vocab = ['<unk>', '<s>', '</s>', ...marked].map((text, id) => [
    text,
    id < 3 ? 0 : -1 - ((id * 7919) % 1000) / 90,
  ]);
  for (let byte = 0; byte < 256; byte++) {
    vocab.push([`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`, -20]);
  }
  const unigram = (parts: Json, model: Json = {}): Json =>
    file({ ...parts, model: { type: 'Unigram', unk_id: 0, byte_fallback: false, vocab, ...model } });
  const metaspace = (prepend_scheme: string, splits = true): Json => ({
    ...{ type: 'Metaspace', replacement: '\u2581', prepend_scheme, split: splits },
  });
  const precompiled: Json = { type: 'Precompiled', precompiled_charsmap: charsmap };
  return {
    unigram: unigram({ pre_tokenizer: metaspace('always') }),
    unigramBytes: unigram(
      { pre_tokenizer: metaspace('first', false), added_tokens: [added(1, '<s>'), added(2, '</s>')] },
      { byte_fallback: true },
    ),
    unigramCharsmap: unigram({
      normalizer: precompiled,
      pre_tokenizer: sequence({ type: 'WhitespaceSplit' }, metaspace('always')),
    }),
    unigramReplace: unigram({
      normalizer: {
        type: 'Sequence',
        normalizers: [precompiled, { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' }],
      },
      pre_tokenizer: metaspace('never'),
    }),
  };
}

function wordPieceCases(words: readonly string[]): Record<string, Json> {
  const pieces: Record<string, number> = {};
  const addPiece = (text: string): void => void (pieces[text] ??= Object.keys(pieces).length);
  for (const special of ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']) addPiece(special);
  for (const word of words) {
    if (word.startsWith('\u0120')) addPiece(word.slice(1));
    else if (/^[\x21-\x7e]+$/u.test(word)) addPiece(`##${word}`);
  }
  for (const letter of "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?'-()\u4e2d\u6587\u03c3\u03bf") {
    addPiece(letter);
    addPiece(`##${letter}`);
  }
  const bert = (clean_text: boolean, strip_accents: boolean | null, lowercase: boolean): Json =>
    file({
      added_tokens: ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'].map((text) => added(pieces[text]!, text)),
      normalizer: { type: 'BertNormalizer', clean_text, handle_chinese_chars: clean_text, strip_accents, lowercase },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      post_processor: { type: 'BertProcessing', sep: ['[SEP]', pieces['[SEP]']], cls: ['[CLS]', pieces['[CLS]']] },
      decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
      model: {
        ...{ type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100 },
        vocab: pieces,
      },
    });
  return { bert: bert(true, null, true), bertCased: bert(true, null, false), bertRaw: bert(false, true, true) };
}
