import { CapacityError, FormatError, WinnowError } from '@winnow/tensor';
import fc from 'fast-check';
import { characterAt, lastCharacter, testCoverage } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { idsHash, mixedTexts, pairVocabulary } from '../../test/cases.js';
import { demoTokenizer, hashAt, readFixture } from '../../test/fixtures.js';
import { jsonCases } from '../../test/json-cases.js';
import { testCharsmap } from '../../test/tables.js';
import { tokenizerFromJson } from './from-json.js';

type Json = Record<string, unknown>;

const demo = demoTokenizer();
const charsmap = btoa(String.fromCharCode(...testCharsmap()));
const { texts: count, components } = readFixture<{ texts: number; components: Record<string, string> }>(
  'hugging-face-hashes.json',
);
const texts = mixedTexts(count);
const pairs = pairVocabulary(testCoverage === 'full' ? undefined : texts);
const cases = jsonCases(pairs, Object.keys(demo.model.vocab), charsmap);

describe('components', () => {
  it.each(Object.keys(cases))('%s gives the ids of Hugging Face tokenizers on mixed texts', (name) => {
    const tokenizer = tokenizerFromJson(cases[name]);
    texts.forEach((text, index) => {
      expect(idsHash(tokenizer.encode(text)), JSON.stringify(text)).toBe(hashAt(components[name]!, index));
    });
  });
});

/** A small SentencePiece-like file, as used by Llama 2. */
function llamaLike(): Json {
  const vocab: Record<string, number> = { '<unk>': 0, '<s>': 1, '</s>': 2 };
  for (let byte = 0; byte < 256; byte++) vocab[`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`] = 3 + byte;
  for (const text of ['\u2581', 'a', 'b', 'ab', '\u2581ab']) vocab[text] = Object.keys(vocab).length;
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  return {
    added_tokens: ['<unk>', '<s>', '</s>'].map((content, id) => ({ id, content, ...flags })),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '\u2581' },
        { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      fuse_unk: true,
      byte_fallback: true,
      vocab,
      merges: ['a b', '\u2581 ab'],
    },
  };
}

const config = { bos_token: '<s>', eos_token: { content: '</s>' }, unk_token: '<unk>' };

it('tokenizerFromJson: reads a SentencePiece-like file', () => {
  const tokenizer = tokenizerFromJson(llamaLike(), config);
  expect(tokenizer).toMatchObject({
    kind: 'bpe',
    bosId: 1,
    eosId: 2,
    unkId: 0,
    eosIds: [2],
    addBos: true,
    addEos: false,
  });
  expect([...tokenizer.encode('ab \u00e9')]).toEqual([1, 263, 259, 3 + 0xc3, 3 + 0xa9]);
  expect(tokenizer.decode(tokenizer.encode('ab \u00e9'), { skipSpecialTokens: true })).toBe('ab \u00e9');
  expect([...tokenizer.encode('</s>ab')]).toEqual([1, 2, 263]);
  expect([...tokenizer.encode('</s>', { parseSpecialTokens: false })]).not.toContain(2);
  expect([...tokenizer.tokenBytes(3 + 0xc3)]).toEqual([0xc3]);
});

it('tokenizerFromJson: the configuration overrides BOS and EOS of the template', () => {
  const without = tokenizerFromJson(llamaLike(), { ...config, add_bos_token: false, add_eos_token: true });
  expect([...without.encode('ab')]).toEqual([263, 2]);
  const bare = { ...llamaLike(), post_processor: null };
  expect([...tokenizerFromJson(bare, { ...config, add_bos_token: true }).encode('ab')]).toEqual([1, 263]);
  expect([...tokenizerFromJson(bare, config).encode('ab')]).toEqual([263]);
});

it('tokenizerFromJson: removes EOS from the template if the configuration says so', () => {
  const file = llamaLike();
  const template = file['post_processor'] as { single: object[]; special_tokens: object };
  template.single.push({ SpecialToken: { id: '</s>', type_id: 0 } });
  template.special_tokens = { ...template.special_tokens, '</s>': { id: '</s>', ids: [2], tokens: ['</s>'] } };
  expect([...tokenizerFromJson(file, config).encode('ab')]).toEqual([1, 263, 2]);
  expect([...tokenizerFromJson(file, { ...config, add_eos_token: false }).encode('ab')]).toEqual([1, 263]);
});

it('tokenizerFromJson: works without a configuration', () => {
  expect(tokenizerFromJson(llamaLike())).toMatchObject({ bosId: 1, eosId: 2, unkId: 0, addBos: true });
});

it('tokenizerFromJson: reads the tokenizer of the demo model', () => {
  const tokenizer = tokenizerFromJson(demo, { bos_token: '<|endoftext|>', eos_token: '<|endoftext|>' });
  expect(tokenizer).toMatchObject({ kind: 'bpe', vocabSize: 2048, eosIds: [2045, 2047], addBos: false });
  // Ids of the model's own goldens.
  const text = 'The old man looked at the sea and';
  expect([...tokenizer.encode(text)]).toEqual([603, 705, 434, 912, 353, 261, 1713, 279]);
  fc.assert(
    fc.property(fc.string({ unit: fc.nat(lastCharacter).map(characterAt) }), (value) => {
      expect(tokenizer.decode(tokenizer.encode(value, { parseSpecialTokens: false }))).toBe(value.toWellFormed());
    }),
  );
});

it.each([0, -1, 0.5, 1e300, '2', null])('tokenizerFromJson: rejects pieces of %j characters', (length) => {
  const step = { type: 'FixedLength', length };
  const nested = { type: 'Sequence', pretokenizers: [{ type: 'Whitespace' }, step] };
  const open = (parts: Json) => () => tokenizerFromJson({ ...llamaLike(), ...parts });
  expect(open({ pre_tokenizer: step })).toThrow(FormatError);
  expect(open({ pre_tokenizer: step })).toThrow(/pre_tokenizer\.length: expected a/);
  expect(open({ pre_tokenizer: nested })).toThrow(/pre_tokenizer\.pretokenizers\[1\]\.length: expected a/);
});

it('tokenizerFromJson: an expression that backtracks without end takes linear time', () => {
  const split = { type: 'Split', pattern: { Regex: '(a+)+$' }, behavior: 'Isolated', invert: false };
  const replace = { type: 'Replace', pattern: { Regex: '(b+)+$' }, content: 'a' };
  const tokenizer = tokenizerFromJson({ ...llamaLike(), normalizer: replace, pre_tokenizer: split });
  const text = `${'ab'.repeat(20_000)}${'a'.repeat(30_000)}!`;
  expect(tokenizer.decode(tokenizer.encode(text), { skipSpecialTokens: true })).toContain('!');
  expect([...tokenizer.encode('abb')]).toEqual([...tokenizer.encode('aa')]);
});

const doubling = { type: 'Replace', pattern: { String: 'a' }, content: 'aa' };
const spaces = { type: 'Metaspace', replacement: '  ', split: false };
const ideograph = { type: 'Replace', pattern: { Regex: '\\p{L}' }, content: '\ufdfa' };
it.each<[string, Json]>([
  ['replace', { normalizer: { type: 'Sequence', normalizers: new Array<Json>(40).fill(doubling) } }],
  [
    'replace while they split',
    { pre_tokenizer: { type: 'Sequence', pretokenizers: new Array<Json>(40).fill(doubling) } },
  ],
  ['mark spaces', { pre_tokenizer: { type: 'Sequence', pretokenizers: new Array<Json>(40).fill(spaces) } }],
  [
    'decompose',
    { normalizer: { type: 'Sequence', normalizers: new Array<Json[]>(40).fill([ideograph, { type: 'NFKC' }]).flat() } },
  ],
  ['insert a long text', { normalizer: { ...doubling, content: 'a'.repeat(50_000) } }],
])('tokenizerFromJson: steps that %s do not make a text endlessly longer', (_, parts) => {
  const tokenizer = tokenizerFromJson({ ...llamaLike(), normalizer: null, ...parts });
  expect(() => tokenizer.encode('a a '.repeat(100))).toThrow(CapacityError);
});

it.each<[string, Json, RegExp]>([
  ['no model', { model: undefined }, /model: expected an object, found nothing/],
  ['no vocabulary', { model: { type: 'BPE', vocab: {}, merges: [] }, added_tokens: [] }, /at least one token/],
  ['an absurd id', { model: { type: 'BPE', vocab: { a: 1e9 }, merges: [] } }, /expected a token id below/],
  [
    'a broken merge',
    { model: { type: 'BPE', vocab: { a: 0 }, merges: ['a'] } },
    /model\.merges\[0\]: expected "left right"/,
  ],
  ['an unknown normalizer', { normalizer: { type: 'Nonsense' } }, /normalizer: not supported: "Nonsense"/],
  ['an unknown pre-tokenizer', { pre_tokenizer: { type: 'Nonsense' } }, /pre_tokenizer: not supported: "Nonsense"/],
  ['an unknown model', { model: { type: 'Nonsense', vocab: { a: 0 } } }, /model\.type: not supported: "Nonsense"/],
  [
    'words without an unknown token',
    { model: { type: 'WordLevel', vocab: { a: 3 } }, added_tokens: [] },
    /unk_token: expected/,
  ],
  ['an unknown post-processor', { post_processor: { type: 'Nonsense' } }, /post_processor\.type: expected Template/],
  [
    'a template without its token',
    { post_processor: { type: 'TemplateProcessing', single: [{ SpecialToken: { id: 'x' } }] } },
    /special_tokens\["x"\]/,
  ],
  [
    'a template id out of range',
    { post_processor: { type: 'BertProcessing', cls: ['a', 9999], sep: ['b', 1] } },
    /below 264/,
  ],
  [
    'an untranslatable expression',
    { pre_tokenizer: { type: 'Split', pattern: { Regex: '(' }, behavior: 'Isolated' } },
    /cannot translate/,
  ],
  ['a broken table', { normalizer: { type: 'Precompiled', precompiled_charsmap: 'AAAA' } }, /precompiled_charsmap/],
])('tokenizerFromJson: rejects %s', (_, changes, message) => {
  const file = { ...llamaLike(), ...changes };
  expect(() => tokenizerFromJson(file)).toThrow(FormatError);
  expect(() => tokenizerFromJson(file)).toThrow(message);
});

it.each([undefined, null, 1, 'x', []])('tokenizerFromJson: rejects %j as a file', (value) => {
  expect(() => tokenizerFromJson(value)).toThrow(FormatError);
});

it.each([
  [{ type: 'CTC', pad_token: '<pad>' }, 'decoder.type'],
  [{ type: 'Sequence', decoders: [{ type: 'Fuse' }, { type: 'Reversed' }] }, 'decoder.decoders[1].type'],
  [{ type: 'Replace', pattern: { Regex: 'a+' }, content: '' }, 'decoder.pattern'],
])('tokenizerFromJson: rejects the decoder %j, whose texts would be wrong', (decoder, field) => {
  expect(() => tokenizerFromJson({ ...llamaLike(), decoder })).toThrow(expect.objectContaining({ field }));
});

describe('the template for pairs', () => {
  const special = (id: string, type: number): Json => ({ SpecialToken: { id, type_id: type } });
  const text = (id: string, type: number): Json => ({ Sequence: { id, type_id: type } });
  const tokens = {
    '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] },
    '</s>': { id: '</s>', ids: [2], tokens: ['</s>'] },
  };
  const pairOf = (pair: readonly Json[]): unknown =>
    tokenizerFromJson({
      ...llamaLike(),
      post_processor: { type: 'TemplateProcessing', single: [text('A', 0)], pair, special_tokens: tokens },
    }).pair;

  it('has what surrounds two texts, and the segment of the second', () => {
    const [begin, end] = [special('<s>', 0), special('</s>', 0)];
    const joined = [begin, text('A', 0), end, end, text('B', 0), end];
    expect(pairOf(joined)).toEqual({ prefix: [1], middle: [2, 2], suffix: [2], secondType: 0 });
    const segments = [begin, text('A', 0), end, text('B', 1), special('</s>', 1)];
    expect(pairOf(segments)).toEqual({ prefix: [1], middle: [2], suffix: [2], secondType: 1 });
  });

  it.each([
    ['no texts', []],
    ['texts in another order', [text('B', 0), text('A', 1)]],
    ['a text twice', [text('A', 0), text('B', 1), text('B', 1)]],
    ['segments that do not follow each other', [text('A', 1), text('B', 0)]],
    ['a separator of the second segment', [text('A', 0), special('</s>', 1), text('B', 1)]],
    ['a third segment', [text('A', 0), text('B', 2)]],
  ])('is undefined for one with %s', (_, pair) => {
    expect(pairOf(pair)).toBeUndefined();
  });

  it.each([
    ['BertProcessing', [2], 1],
    ['RobertaProcessing', [2, 2], 0],
  ])('of %s', (type, middle, secondType) => {
    const processor = { type, cls: ['<s>', 1], sep: ['</s>', 2], trim_offsets: true, add_prefix_space: false };
    const nested = { type: 'Sequence', processors: [processor, { type: 'ByteLevel' }] };
    for (const post_processor of [processor, nested]) {
      const { pair } = tokenizerFromJson({ ...llamaLike(), post_processor });
      expect(pair).toEqual({ prefix: [1], middle, suffix: [2], secondType });
    }
  });
});

it('tokenizerFromJson: throws only Winnow errors for changed files', () => {
  const paths: (string | number)[][] = [];
  const collect = (value: unknown, path: (string | number)[]): void => {
    if (typeof value !== 'object' || value === null || path.length > 5) return;
    for (const key of Object.keys(value).slice(0, 12)) {
      paths.push([...path, key]);
      collect((value as Json)[key], [...path, key]);
    }
  };
  const sources: Json[] = [llamaLike(), cases['unigramBytes']!, cases['bert']!, cases['digits']!];
  const junk = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom<unknown>(undefined, Number.NaN, -1, 1e12, '', '(', '\\p{', 'Sequence', 'ByteLevel', 'Split', 'BPE'),
    fc.constantFrom<unknown>('Unigram', 'WordPiece', 'Metaspace', 'Precompiled', { type: 'ByteLevel' }, { String: '' }),
  );
  sources.forEach((source) => collect(source, [String(sources.indexOf(source))]));
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.constantFrom(...paths), junk), { minLength: 1, maxLength: 3 }), (changes) => {
      const source = sources[Number(changes[0]![0][0])]!;
      let file: unknown = source;
      for (const [path, value] of changes) file = replaceAt(file, path.slice(1), value);
      try {
        const tokenizer = tokenizerFromJson(file, file);
        tokenizer.decode(tokenizer.encode('Hello <s> \u00e9\u4e2d 12'));
      } catch (error) {
        if (!WinnowError.isInstance(error)) throw error;
      }
    }),
    { numRuns: testCoverage === 'full' ? 400 : 50 },
  );
});

/** A copy with one value replaced; objects off the path are shared. */
function replaceAt(value: unknown, path: readonly (string | number)[], replacement: unknown): unknown {
  if (path.length === 0) return replacement;
  if (typeof value !== 'object' || value === null) return value;
  const copy = (Array.isArray(value) ? [...(value as unknown[])] : { ...value }) as Record<string | number, unknown>;
  copy[path[0]!] = replaceAt(copy[path[0]!], path.slice(1), replacement);
  return copy;
}

it('maxTokenBytes: a text has at least as many tokens as its bytes require', () => {
  const tokenizers = [demo, cases['punctuationRuns'], cases['splitContiguous']].map((file) => tokenizerFromJson(file));
  const texts = ['\n'.repeat(999), ' '.repeat(999), 'the '.repeat(99), '\ud800a', ...mixedTexts(8)];
  for (const tokenizer of tokenizers) {
    for (const text of texts) {
      for (const parseSpecialTokens of [false, true]) {
        const numIds = tokenizer.encode(text, { addSpecialTokens: false, parseSpecialTokens }).length;
        expect(numIds * tokenizer.maxTokenBytes!).toBeGreaterThanOrEqual(new TextEncoder().encode(text).length);
      }
    }
  }
});

it('maxTokenBytes: unknown for tokenizers that drop text or fuse it', () => {
  expect(tokenizerFromJson(llamaLike(), config).maxTokenBytes).toBeUndefined();
  for (const name of ['bert', 'unigramBytes', 'splitRemoved', 'added']) {
    expect(tokenizerFromJson(cases[name]).maxTokenBytes, name).toBeUndefined();
  }
});
