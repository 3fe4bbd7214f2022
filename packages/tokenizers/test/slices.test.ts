/** Long texts are encoded in slices: none does more than a few thousand characters' work, and the ids stay the same. */
import { CapacityError, finish, type Sliced } from '@winnow/tensor';
import { expect, it, vi } from 'vitest';
import { BpeRules } from '../src/algorithms/bpe-rules.js';
import { ByteBpe } from '../src/algorithms/byte-bpe.js';
import { CharBpe } from '../src/algorithms/char-bpe.js';
import { SymbolTable } from '../src/algorithms/symbols.js';
import { Unigram } from '../src/algorithms/unigram.js';
import { WordPiece } from '../src/algorithms/wordpiece.js';
import { tokenizerFromGguf, tokenizerFromJson, type Tokenizer } from '../src/index.js';
import { readNormalizer } from '../src/json/normalizer.js';
import { PieceCutter, readPreTokenizer } from '../src/json/pre-tokenizer.js';
import { IdList } from '../src/tables/id-list.js';
import { newSliceCounter } from '../src/text/split.js';
import { TextBuilder } from '../src/text/text-builder.js';
import type { WordModel } from '../src/text/words.js';
import { pairVocabulary } from './cases.js';
import { demoTokenizer } from './fixtures.js';
import { testCharsmap } from './tables.js';

const { tokens, merges } = pairVocabulary();
const idByText = new Map(tokens.map((text, id) => [text, id]));
const mergePairs = merges.map((merge) => merge.split(' ') as [string, string]);
const eosId = tokens.length - 1;

function byteBpe(pre: string): Tokenizer {
  const tokenTypes = tokens.map((_, id) => (id === eosId ? 3 : 1));
  return tokenizerFromGguf({ model: 'gpt2', pre, tokens, merges, tokenTypes, bosId: eosId, eosId });
}

/** A vocabulary of pieces of a text, as SentencePiece or unigram. */
function pieces(model: 'llama' | 't5' | 'gemma4'): Tokenizer {
  const letters = ['\u2581', ...'abcdeghilnorstuw.,\n', '\u2581the', '\u2581a', 'th', 'he', 'an', 'in', 'er'];
  const texts = ['<unk>', '<s>', '</s>', ...letters];
  const tokenTypes = texts.map((_, id) => (id === 0 ? 2 : id < 3 ? 3 : 1));
  const scores = texts.map((_, id) => -id);
  const charsmap = model === 't5' ? { precompiledCharsmap: testCharsmap(), removeExtraWhitespaces: true } : {};
  const rules = model === 'gemma4' ? { merges: ['t h', 'h e', 'a n', 'i n', 'e r'] } : {};
  return tokenizerFromGguf({
    model,
    tokens: texts,
    tokenTypes,
    scores,
    unkId: 0,
    bosId: 1,
    eosId: 2,
    ...charsmap,
    ...rules,
  });
}

function wordPieces(): Tokenizer {
  const texts = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '\u2581the', '\u2581a', 'a', 'b', '\u2581b', '\u2581,'];
  return tokenizerFromGguf({ model: 'bert', tokens: texts, unkId: 1, clsId: 2, bosId: 2, sepId: 3, padId: 0 });
}

const json: Record<string, unknown> = demoTokenizer();
const normalized = (normalizer: unknown): Tokenizer => tokenizerFromJson({ ...json, normalizer });
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, use_regex: false };
const preTokenized = (...pretokenizers: readonly object[]): Tokenizer =>
  tokenizerFromJson({ ...json, pre_tokenizer: { type: 'Sequence', pretokenizers } });
const splitAt = (Regex: string): Tokenizer =>
  preTokenized({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }, byteLevel);
/** The tokenizer of the demo model with another model, which takes words in the byte-level spelling. */
const withModel = (model: object): Tokenizer => tokenizerFromJson({ ...json, pre_tokenizer: byteLevel, model });
const { model: demoModel } = demoTokenizer();

/** With the number of slices of each of the texts below: fewer would be work that is not counted. */
const tokenizers: readonly (readonly [string, () => Tokenizer, readonly number[]])[] = [
  ['llama-bpe', () => byteBpe('llama-bpe'), [22, 22, 22, 20, 5, 20, 53]],
  ['deepseek-llm', () => byteBpe('deepseek-llm'), [69, 35, 28, 60, 5, 27, 60]],
  ['tiny_aya', () => byteBpe('tiny_aya'), [23, 23, 23, 21, 5, 30, 54]],
  ['SentencePiece', () => pieces('llama'), [19, 19, 19, 22, 56, 19, 19]],
  ['characters', () => pieces('gemma4'), [20, 20, 20, 22, 57, 20, 20]],
  ['unigram', () => pieces('t5'), [23, 23, 32, 32, 94, 32, 37]],
  ['WordPiece', wordPieces, [11, 11, 21, 11, 32, 11, 11]],
  ['the demo model', () => tokenizerFromJson(json), [13, 13, 13, 15, 5, 13, 31]],
  ['a table of its expression', () => splitAt('(a+)+$|\\s+'), [19, 19, 19, 19, 5, 19, 37]],
  ['NFC', () => normalized({ type: 'NFC' }), [18, 18, 18, 19, 5, 18, 36]],
  ['BertNormalizer', () => normalized({ type: 'BertNormalizer' }), [33, 33, 33, 34, 5, 33, 68]],
  ['Strip', () => normalized({ type: 'Strip' }), [12, 12, 13, 15, 5, 13, 31]],
  [
    'Replace',
    () => normalized({ type: 'Replace', pattern: { String: ' ' }, content: '_' }),
    [13, 23, 13, 18, 5, 13, 31],
  ],
  ['FixedLength', () => preTokenized({ type: 'FixedLength', length: 7 }, byteLevel), [21, 21, 21, 21, 5, 21, 21]],
  [
    'a long FixedLength',
    () => preTokenized({ type: 'FixedLength', length: 1e9 }, byteLevel),
    [23, 23, 23, 33, 5, 23, 41],
  ],
  [
    'a step after ByteLevel',
    () => preTokenized(byteLevel, { type: 'Split', pattern: { String: 'e' } }),
    [27, 27, 27, 22, 5, 27, 50],
  ],
  ['end of words', () => withModel({ ...demoModel, end_of_word_suffix: '</w>' }), [27, 27, 27, 36, 5, 27, 50]],
  [
    'WordLevel',
    () => withModel({ type: 'WordLevel', unk_token: 'a', vocab: demoModel.vocab }),
    [13, 13, 13, 13, 5, 13, 13],
  ],
];

const length = 40_000;
const special = '<|endoftext|>';
const texts = ['\n', ' ', 'a', 'the man, and the sea. ', special, '1', '\u00e9\u4e2d'];

/** Number of slices, and the ids. */
function slicesOf(work: Sliced<Int32Array>): [number, Int32Array] {
  for (let numSlices = 1; ; numSlices++) {
    const step = work.next();
    if (step.done === true) return [numSlices, step.value];
  }
}

it.each(tokenizers)('%s encodes long texts in slices, while it encodes others', (_, create, numSlices) => {
  const tokenizer = create();
  for (const [index, unit] of texts.entries()) {
    // special tokens take little work: more of them for several slices
    const text = unit.repeat(((unit === special ? 3 : 1) * length) / unit.length);
    const work = tokenizer.encodeSliced(text);
    for (let slice = 0; slice < 2; slice++) work.next();
    tokenizer.encode(text.slice(0, 3000)); // must not disturb it
    const [numLater, ids] = slicesOf(work);
    expect(2 + numLater, JSON.stringify(unit)).toBe(numSlices[index]);
    expect(ids).toEqual(tokenizer.encode(text));
  }
});

it('pieces are used while the text is still being split', () => {
  const { steps } = readPreTokenizer({ type: 'WhitespaceSplit' }, 'pre_tokenizer');
  const text = 'ab '.repeat(40_000);
  const counter = newSliceCounter();
  let numPieces = 0;
  let numEnds = 0; // How often a slice should have ended since the last one did.
  let maxEnds = 0;
  const spend = counter.spend.bind(counter);
  vi.spyOn(counter, 'spend').mockImplementation((steps) => {
    const isEnd = spend(steps);
    if (isEnd) numEnds += 1;
    maxEnds = Math.max(maxEnds, numEnds);
    return isEnd;
  });
  const work = new PieceCutter(steps, text.length, true, counter).cut(text, function* () {
    numPieces += 1;
    if (counter.spend(1)) yield;
  });
  let numSlices = 1;
  for (; work.next().done !== true; numSlices++) numEnds = 0;
  expect(numPieces).toBe(40_000);
  expect(numSlices).toBeGreaterThan(10);
  expect(maxEnds).toBe(1);
});

it('a normalizer works on a script without cut points in slices', () => {
  const normalize = readNormalizer({ type: 'BertNormalizer' }, 'normalizer')!;
  const work = normalize('\u0e01\u0e34'.repeat(20_000), newSliceCounter());
  let numSlices = 0;
  while (work.next().done !== true) numSlices++;
  expect(numSlices).toBeGreaterThan(20); // cleaned, decomposed, stripped, in lower case
});

it('the bytes of a character without a token are looked up once', () => {
  const encode = vi.spyOn(TextEncoder.prototype, 'encode');
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const texts = ['<unk>', '<s>', '</s>', ...bytes, 'a'];
  const scores = texts.map(() => 0);
  const tokenizer = tokenizerFromGguf({ model: 'llama', tokens: texts, scores, unkId: 0, bosId: 1, eosId: 2 });
  encode.mockClear();
  expect(tokenizer.encode('\n\u00e9'.repeat(5000)).length).toBeGreaterThan(15_000);
  expect(encode.mock.calls.length).toBeLessThan(10);
  encode.mockRestore();
});

it('pieces become a text in their order, and the next text starts empty', () => {
  const builder = new TextBuilder();
  const pieces = Array.from({ length: 10_000 }, (_, index) => 'x'.repeat(index % 3) + String(index));
  for (const piece of pieces) builder.add(piece);
  expect(builder.isEmpty).toBe(false);
  expect(builder.take()).toBe(pieces.join(''));
  expect([builder.isEmpty, builder.take()]).toEqual([true, '']);
});

function idsOf(model: WordModel, word: string): [Int32Array, Int32Array] {
  const [atOnce, sliced] = [new IdList(), new IdList()];
  model.encodeWord(word, atOnce);
  finish(model.encodeWordSliced(word, sliced, newSliceCounter()));
  return [atOnce.toArray(), sliced.toArray()];
}

const symbols = (): SymbolTable => new SymbolTable(tokens, idByText);
const models: readonly (readonly [string, () => WordModel, number])[] = [
  [
    'byte-level BPE',
    () => new ByteBpe({ texts: tokens, idByText, merges: mergePairs, numMerges: merges.length, ignoreMerges: true }),
    1365,
  ],
  [
    'BPE',
    () => {
      const table = symbols();
      const unknown = { byteIds: undefined, unkId: eosId, fuse: true };
      return new CharBpe(table, new BpeRules(table, mergePairs, merges.length), unknown);
    },
    20_000,
  ],
  [
    'unigram',
    () =>
      new Unigram({
        tokens: ['a', 'bc', '\u4e2d', 'ab', 'c'].map((text, id) => ({ id, text, score: -id })),
        ...{ minScore: -5, unkId: 9, byteIds: undefined },
      }),
    20_000,
  ],
  [
    'WordPiece',
    () =>
      new WordPiece({
        tokens: [
          ['a', 0],
          ['bc', 1],
          ['\u4e2d', 2],
          ['\u00e9', 3],
        ],
        start: '',
        continuation: '',
        unkId: 9,
      }),
    20_000,
  ],
];

it.each(models)('%s: a long word in slices has the ids of the whole word', (_, create, numUnits) => {
  for (const unit of ['abc', 'a\u4e2d\u00e9', 'bcx']) {
    const [atOnce, sliced] = idsOf(create(), unit.repeat(numUnits));
    expect(sliced).toEqual(atOnce);
    expect(sliced.length).toBeGreaterThan(0);
  }
});

it('a text cut for its normal form is normalized like the whole', () => {
  const text = 'e\u0301\u1161\uac00\u11a8 A\u030a\uff21\u00c5 \u0b47\u0b56\u{1f600}\u{20000}'.repeat(2000);
  for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD'] as const) {
    const plain = tokenizerFromJson({ ...json, normalizer: null });
    expect(normalized({ type: form }).encode(text)).toEqual(plain.encode(text.normalize(form)));
  }
});

it('a character with thousands of combining marks is refused, which would be sorted in quadratic time', () => {
  expect(() => normalized({ type: 'NFC' }).encode(`a${'\u0301\u0327'.repeat(100_000)}`)).toThrow(CapacityError);
});

it('whitespace before a letter takes linear time where only whitespace at the end is cut', () => {
  const text = `${' '.repeat(200_000)}x ${' '.repeat(200_000)}`;
  const tokenizer = byteBpe('deepseek-llm');
  expect(tokenizer.decode(tokenizer.encode(text, { addSpecialTokens: false }))).toBe(text);
});
