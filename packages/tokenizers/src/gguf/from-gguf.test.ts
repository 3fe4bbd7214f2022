import { FormatError } from '@winnow/tensor';
import { characterAt, lastCharacter } from '@winnow/test-utils';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Architectures } from '../../test/fixtures.js';
import { architectureMetadata, readFixture } from '../../test/fixtures.js';
import { testCharsmap } from '../../test/tables.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { GgufVocabulary } from '../vocabulary/gguf-vocabulary.js';
import { ggufVocabulary } from '../vocabulary/gguf-vocabulary.js';
import { tokenizerFromGguf } from './from-gguf.js';

const fixture = readFixture<Architectures>('architectures.json');

function open(name: string, changes: Record<string, unknown> = {}): Tokenizer {
  const metadata = { ...architectureMetadata(fixture, name), ...changes };
  return tokenizerFromGguf(ggufVocabulary((key) => metadata[key]));
}

const plain = { addSpecialTokens: false };
const ids = (tokenizer: Tokenizer, text: string, options = {}): number[] => [
  ...tokenizer.encode(text, { ...plain, ...options }),
];

describe('architecture goldens', () => {
  it.each(fixture.architectures.map(({ name }) => name))('%s: ids of llama.cpp', (name) => {
    const tokenizer = open(name);
    const { tokenize, embedded } = fixture.architectures.find((architecture) => architecture.name === name)!;
    for (const { text, tokens } of tokenize) expect(ids(tokenizer, text)).toEqual(tokens);
    for (const { text, tokens } of embedded) expect([...tokenizer.encode(text)]).toEqual(tokens);
    for (const { text } of tokenize) {
      if (tokenizer.kind !== 'wordpiece') expect(tokenizer.decode(ids(tokenizer, text))).toBe(text);
    }
  });
});

describe('round trips', () => {
  const text = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 60 }),
    fc.string({ unit: fc.nat(lastCharacter).map(characterAt), maxLength: 60 }),
    fc.string({
      unit: fc.constantFrom(' ', '\n', '\u2581', 'a', 'the', '\ud800', '\udc00', '\u{1f600}', '\ufeff', '</s>'),
    }),
  );

  it.each(['llama', 'qwen2', 'llama3-ropefreqs', 'starcoder2'])('%s: decode(encode(x)) is x', (name) => {
    const tokenizer = open(name);
    const options = { ...plain, parseSpecialTokens: false };
    fc.assert(
      fc.property(text, (value) => {
        // SentencePiece uses one character for the space and its own marker.
        const expected = value.toWellFormed().replaceAll('\u2581', tokenizer.kind === 'spm' ? ' ' : '\u2581');
        expect(tokenizer.decode(tokenizer.encode(value, options))).toBe(expected);
      }),
      { numRuns: 300 },
    );
  });

  it('with BOS, and special tokens skipped on decode, gives the text, too', () => {
    const tokenizer = open('llama');
    const encoded = tokenizer.encode('Hello  world');
    expect(encoded[0]).toBe(tokenizer.bosId);
    expect(tokenizer.decode(encoded, { skipSpecialTokens: true })).toBe('Hello  world');
    expect(tokenizer.decode(encoded)).toBe('<s>Hello  world');
  });
});

describe('BOS and EOS', () => {
  it('follow the model type when the file does not specify them', () => {
    const silent = { 'tokenizer.ggml.add_bos_token': undefined, 'tokenizer.ggml.add_eos_token': undefined };
    expect(open('llama', silent).addBos).toBe(true);
    expect(open('qwen2', silent).addBos).toBe(false);
    expect(open('llama3-ropefreqs', silent).addBos).toBe(true);
    expect(open('bert-mean', silent)).toMatchObject({ addBos: true, addEos: true });
  });

  it('follow the file when it specifies them, and a text that spells BOS gets a second one', () => {
    const tokenizer = open('llama', { 'tokenizer.ggml.add_eos_token': true });
    expect([...tokenizer.encode('<s>x')]).toEqual([1, 1, ...ids(tokenizer, 'x'), 2]);
    expect([...tokenizer.encode('')]).toEqual([1, 2]);
    expect(open('llama', { 'tokenizer.ggml.add_bos_token': false }).addBos).toBe(false);
  });

  it('rejects BOS without an id', () => {
    const metadata = { ...architectureMetadata(fixture, 'qwen2'), 'tokenizer.ggml.add_bos_token': true };
    delete (metadata as Record<string, unknown>)['tokenizer.ggml.bos_token_id'];
    expect(() => tokenizerFromGguf(ggufVocabulary((key) => metadata[key as keyof typeof metadata]))).toThrow(
      FormatError,
    );
  });

  it('lists every id that ends a generation, EOS first', () => {
    const vocabulary: GgufVocabulary = {
      model: 'gpt2',
      tokens: ['a', '<|im_end|>', '<|endoftext|>', '<|end|>', '<|return|>', '<|call|>'],
      tokenTypes: [1, 4, 3, 3, 3, 3],
      merges: [],
      eosId: 2,
    };
    const tokenizer = tokenizerFromGguf(vocabulary);
    // <|end|> only separates messages where <|return|> and <|call|> exist.
    expect(tokenizer.eosIds).toEqual([2, 1, 4, 5]);
    expect([1, 2, 3, 4].map((id) => tokenizer.isSpecial(id))).toEqual([true, true, false, true]);
  });
});

describe('pairs of texts', () => {
  it('are separated by EOS, and by SEP where the file says so or the model is unigram', () => {
    const vocabulary: GgufVocabulary = {
      model: 't5',
      tokens: ['<s>', '<pad>', '</s>', '<unk>', 'a', '<sep>'],
      tokenTypes: [3, 3, 3, 2, 1, 3],
      scores: [0, 0, 0, 0, -1, 0],
      bosId: 0,
      eosId: 2,
      sepId: 5,
      unkId: 3,
      addBos: true,
    };
    const pairOf = (changes: Partial<GgufVocabulary>) => tokenizerFromGguf({ ...vocabulary, ...changes }).pair;
    expect(pairOf({})).toEqual({ prefix: [0], middle: [2, 5], suffix: [2], secondType: 0 });
    expect(pairOf({ addSep: false })?.middle).toEqual([2]);
    const bytes = { model: 'gpt2', merges: [], addEos: true };
    expect(pairOf(bytes)?.middle).toEqual([2]);
    expect(pairOf({ ...bytes, addSep: true })?.middle).toEqual([2, 5]);
    expect(pairOf({ ...bytes, addEos: false })).toBeUndefined();
  });

  it('have two segments with WordPiece', () => {
    const { clsId, sepId, pair } = open('bert-mean', {});
    expect(pair).toEqual({ prefix: [clsId], middle: [sepId], suffix: [sepId], secondType: 1 });
  });
});

describe('special tokens in texts', () => {
  const vocabulary: GgufVocabulary = {
    model: 'llama',
    modelName: 'Phi-3 mini',
    tokens: ['<unk>', '<s>', '</s>', '\u2581', 'a', '<|user|>', '<|endoftext|>', 'aa'],
    tokenTypes: [2, 3, 4, 1, 1, 3, 3, 4],
    scores: [0, 0, 0, -1, -2, 0, 0, 0],
    addBos: false,
  };

  it('strip white space after them if the model requires it', () => {
    const tokenizer = tokenizerFromGguf(vocabulary);
    expect([...tokenizer.encode('<|user|> \n a')]).toEqual([5, 3, 4]);
    expect([...tokenizer.encode('<|endoftext|> a')]).toEqual([6, 3, 3, 4]);
  });

  it('are text when parsing is off, except user-defined ones', () => {
    const tokenizer = tokenizerFromGguf(vocabulary);
    const options = { parseSpecialTokens: false };
    expect([...tokenizer.encode('<|user|>', options)]).not.toContain(5);
    expect([...tokenizer.encode('aa', options)]).toEqual([7]);
    expect([...tokenizer.encode('aaa', options)]).toEqual([7, 3, 4]);
  });

  it('are matched by length, then from the left', () => {
    const tokenizer = tokenizerFromGguf({
      model: 'gpt2',
      tokens: ['a', 'b', 'c', 'd', 'ab', 'bcd'],
      tokenTypes: [1, 1, 1, 1, 4, 4],
      merges: [],
    });
    expect([...tokenizer.encode('abcdab')]).toEqual([0, 5, 4]);
  });
});

describe('without byte tokens', () => {
  it('SentencePiece uses one unknown token per run of unknown characters', () => {
    const tokenizer = tokenizerFromGguf({
      model: 'llama',
      tokens: ['<unk>', '<s>', '</s>', '\u2581', 'a'],
      tokenTypes: [2, 3, 3, 1, 1],
      scores: [0, 0, 0, -1, -2],
    });
    expect(ids(tokenizer, 'a\u4e2d\u6587a\u{1f600}')).toEqual([3, 4, 0, 4, 0]);
  });

  it('byte-level BPE drops bytes that the vocabulary lacks', () => {
    const tokenizer = tokenizerFromGguf({ model: 'gpt2', tokens: ['a', 'b'], merges: [] });
    expect(ids(tokenizer, 'axb')).toEqual([0, 1]);
  });
});

describe('character BPE (gemma4)', () => {
  it('marks spaces, falls back to bytes, keeps newline runs whole', () => {
    const tokens = ['<bos>', '\u2581', 'a', 'b', '\u2581a', '\n', '\n\n', '<0xC3>', '<0xA9>'];
    const tokenizer = tokenizerFromGguf({
      model: 'gemma4',
      tokens,
      tokenTypes: [3, 1, 1, 1, 1, 1, 1, 6, 6],
      merges: ['\u2581 a'],
      bosId: 0,
    });
    expect([...tokenizer.encode('b a\n\n\u00e9')]).toEqual([0, 3, 4, 6, 7, 8]);
    expect(tokenizer.decode([3, 4, 6, 7, 8])).toBe('b a\n\n\u00e9');
  });
});

describe('unigram', () => {
  const vocabulary: GgufVocabulary = {
    model: 't5',
    tokens: ['<pad>', '</s>', '<unk>', '\u2581', 'a', 'b', '\u2581ab', 'X', '1', '/', '2', '<x>', 'ff'],
    tokenTypes: [3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 4, 1],
    scores: [0, 0, 0, -2, -3, -3, -4, -3, -3, -3, -3, 0, -1],
    addSpacePrefix: true,
    removeExtraWhitespaces: true,
  };

  it('maximizes the sum of scores and joins unknown characters', () => {
    const tokenizer = tokenizerFromGguf({ ...vocabulary, padId: 0 });
    expect([...tokenizer.encode('  ab   a\u4e2d\u6587')]).toEqual([6, 3, 4, 2, 1]);
    expect(tokenizer.decode(ids(tokenizer, 'ab a'))).toBe('ab a');
    expect(ids(tokenizer, '')).toEqual([]);
    expect(ids(tokenizer, '   ')).toEqual([]);
  });

  it('applies the normalization table, but not to user-defined tokens', () => {
    const tokenizer = tokenizerFromGguf({ ...vocabulary, precompiledCharsmap: testCharsmap() });
    expect(ids(tokenizer, 'ab\t\u00bd')).toEqual([3, 7, 3, 8, 9, 10]);
    expect(ids(tokenizer, '\ufb00<x>')).toEqual([3, 12, 11]);
  });

  it('keeps spaces if the file says so', () => {
    const tokenizer = tokenizerFromGguf({ ...vocabulary, removeExtraWhitespaces: false });
    expect(ids(tokenizer, ' a ')).toEqual([3, 3, 4, 3]);
  });

  it('rejects a broken table', () => {
    const table = testCharsmap();
    for (const broken of [
      table.slice(0, 3),
      table.slice(0, 5),
      table.slice(0, -1),
      Uint8Array.of(255, 255, 255, 255, 0),
    ]) {
      expect(() => tokenizerFromGguf({ ...vocabulary, precompiledCharsmap: broken })).toThrow(FormatError);
    }
  });
});

describe('WordPiece', () => {
  const tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '\u2581a', 'b', '\u2581e', '\u2581!', '\u2581\u4e2d', '\u2581ab'];
  const vocabulary: GgufVocabulary = { model: 'bert', tokens, unkId: 1, bosId: 2, sepId: 3 };

  it('lower-cases, strips accents, separates marks and ideographs', () => {
    const tokenizer = tokenizerFromGguf(vocabulary);
    expect([...tokenizer.encode('AB!\u00c9 \u4e2d\u4e2d zz abb')]).toEqual([2, 9, 7, 6, 8, 8, 1, 9, 5, 3]);
  });

  it('keeps case and accents if the file says so', () => {
    expect(ids(tokenizerFromGguf({ ...vocabulary, lowercase: false }), 'A a \u00e9')).toEqual([1, 4, 1]);
  });
});
