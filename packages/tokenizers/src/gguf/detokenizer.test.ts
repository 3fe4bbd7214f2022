import { ArgumentError } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Architectures } from '../../test/fixtures.js';
import { architectureMetadata, demoTokenizer, readFixture } from '../../test/fixtures.js';
import { tokenizerFromJson } from '../json/from-json.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { ggufVocabulary } from '../vocabulary/gguf-vocabulary.js';
import { tokenizerFromGguf } from './from-gguf.js';

const fixture = readFixture<Architectures>('architectures.json');
const open = (name: string): Tokenizer => {
  const metadata = architectureMetadata(fixture, name);
  return tokenizerFromGguf(ggufVocabulary((key) => metadata[key]));
};
const tokenizers: [string, Tokenizer][] = [
  ...['llama', 'qwen2', 'bert-mean'].map((name): [string, Tokenizer] => [name, open(name)]),
  ['demo', tokenizerFromJson(demoTokenizer())],
];

describe.each(tokenizers)('%s', (_, tokenizer) => {
  // Half of the ids are byte tokens, so that characters are split and broken.
  const bytes = Array.from({ length: tokenizer.vocabSize }, (_value, id) => id).filter((id) => {
    const piece = tokenizer.tokenBytes(id);
    return piece.length === 1 && piece[0]! >= 0x80;
  });
  const id = fc.nat({ max: tokenizer.vocabSize - 1 });
  const ids = fc.array(bytes.length === 0 ? id : fc.oneof(id, fc.constantFrom(...bytes)), { maxLength: 40 });

  it('streams the text of decode', () => {
    fc.assert(
      fc.property(ids, fc.boolean(), (list, skipSpecialTokens) => {
        const stream = tokenizer.createDetokenizer({ skipSpecialTokens });
        for (let round = 0; round < 2; round++) {
          const parts = list.map((next) => stream.push(next));
          parts.push(stream.flush());
          expect(parts.join('')).toBe(tokenizer.decode(list, { skipSpecialTokens }));
          for (const part of parts) expect(part.isWellFormed()).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('continues a text: prompt and continuation decode like one list', () => {
    fc.assert(
      fc.property(ids, ids, (before, after) => {
        const first = tokenizer.tokenBytes(after[0] ?? 0);
        // A split within a character is covered by the next test.
        fc.pre(before.length > 0 && !tokenizer.isSpecial(before[0]!) && !tokenizer.decode(before).includes('\ufffd'));
        fc.pre(first.length === 0 || first[0]! < 0x80 || first[0]! >= 0xc0);
        const stream = tokenizer.createDetokenizer({ continuation: true });
        const rest = after.map((next) => stream.push(next)).join('') + stream.flush();
        expect(tokenizer.decode(before) + rest).toBe(tokenizer.decode([...before, ...after]));
      }),
    );
  });
});

describe('multi-byte characters', () => {
  const tokenizer = open('llama');

  it('are emitted when they are complete', () => {
    const stream = tokenizer.createDetokenizer();
    const parts = [...tokenizer.encode('\u{1f600}!', { addSpecialTokens: false })].map((id) => stream.push(id));
    expect(parts.filter((part) => part !== '')).toEqual(['\u{1f600}', '!']);
  });

  it('become U+FFFD when they stay incomplete', () => {
    const stream = tokenizer.createDetokenizer();
    const byte = (value: string): number => tokenizer.idOf(value)!;
    expect(stream.push(byte('<0xF0>')) + stream.push(byte('<0x9F>'))).toBe('');
    expect(stream.flush()).toBe('\ufffd');
    expect(stream.push(byte('<0xF0>')) + stream.push(byte('<0x41>'))).toBe('\ufffdA');
    expect(stream.flush()).toBe('');
  });

  it('keeps a byte order mark', () => {
    expect(tokenizer.decode(tokenizer.encode('\ufeffa', { addSpecialTokens: false }))).toBe('\ufeffa');
  });
});

describe('single tokens', () => {
  const tokenizer = open('llama');

  it('have bytes, a spelling and an id', () => {
    expect(tokenizer.tokenText(1)).toBe('<s>');
    expect(tokenizer.idOf('<s>')).toBe(1);
    expect(tokenizer.idOf('no such token')).toBeUndefined();
    expect([...tokenizer.tokenBytes(tokenizer.idOf('<0x0A>')!)]).toEqual([10]);
    expect(new TextDecoder().decode(tokenizer.tokenBytes(tokenizer.idOf('\u2581the')!))).toBe(' the');
    expect([tokenizer.isSpecial(1), tokenizer.isSpecial(5)]).toEqual([true, false]);
  });

  it('cannot be changed through their bytes', () => {
    tokenizer.tokenBytes(5).fill(0xff);
    expect([...tokenizer.tokenBytes(5)]).toEqual([2]);
  });

  it.each([-1, 320, 1.5, Number.NaN])('id %d is rejected', (id) => {
    expect(() => tokenizer.tokenText(id)).toThrow(ArgumentError);
    expect(() => tokenizer.tokenBytes(id)).toThrow(ArgumentError);
    expect(() => tokenizer.decode([id])).toThrow(ArgumentError);
    expect(() => tokenizer.createDetokenizer().push(id)).toThrow(ArgumentError);
  });
});
