import { sampled, testCoverage } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { idsHash, mixedTexts, pairVocabulary } from '../../test/cases.js';
import { hashAt, readFixture } from '../../test/fixtures.js';
import { tokenizerFromGguf } from '../gguf/from-gguf.js';
import { IdList } from '../tables/id-list.js';
import { preTokenizerNames, preTokenizerRules } from './pre-tokenizers.js';

interface Hashes {
  readonly texts: number;
  readonly preTokenizers: Record<string, string>;
}

function cut(name: string, text: string): string[] {
  const ends = new IdList();
  preTokenizerRules(name)!.split().split(text, ends);
  let start = 0;
  return [...ends.toArray()].map((end) => text.slice(start, (start = end)));
}

describe('vectors of llama.cpp', () => {
  const { texts: count, preTokenizers } = readFixture<Hashes>('llama-cpp-hashes.json');
  const texts = mixedTexts(count);
  const { tokens, merges } = pairVocabulary(testCoverage === 'full' ? undefined : texts);
  const eosId = tokens.length - 1;
  const tokenTypes = tokens.map((_, id) => (id === eosId ? 3 : 1));

  /** The first name with the same rules. */
  const firstOf = (name: string): string =>
    Object.keys(preTokenizers).find((other) => preTokenizerRules(other) === preTokenizerRules(name))!;

  // names that share rules cut texts alike: `npm test` runs the first one and compares the vectors of the others
  it.each([...Object.keys(preTokenizers).entries()])('%i: %s gives the ids of llama.cpp on mixed texts', (at, pre) => {
    if (testCoverage !== 'full' && firstOf(pre) !== pre) {
      expect(preTokenizers[pre]).toBe(preTokenizers[firstOf(pre)]);
      return;
    }
    const tokenizer = tokenizerFromGguf({ model: 'gpt2', pre, tokens, merges, tokenTypes, bosId: eosId, eosId });
    for (const [index, text] of sampled([...texts.entries()], 6, at % 6)) {
      const ids = tokenizer.encode(text, { addSpecialTokens: false, parseSpecialTokens: false });
      expect(idsHash(ids), JSON.stringify(text)).toBe(hashAt(preTokenizers[pre]!, index));
    }
  });

  it('has vectors for every name except those that work on characters', () => {
    const missing = preTokenizerNames().filter((name) => !Object.hasOwn(preTokenizers, name));
    expect(missing).toEqual(['gemma4', 'granite-embed-multi-311m', 'sarvam-moe']);
  });
});

describe('pre-tokenizers', () => {
  it.each([
    ['gpt-2', "I'm 12  x!\n", ['I', "'m", ' 12', ' ', ' x', '!', '\n']],
    ['llama-bpe', "I'M 1234  x!\n", ['I', "'M", ' ', '123', '4', ' ', ' x', '!\n']],
    ['qwen2', 'ab 12\r\n \n c', ['ab', ' ', '1', '2', '\r\n \n', ' c']],
    ['starcoder', 'x12 y', ['x', '1', '2', ' y']],
    ['falcon', 'a--b 1234', ['a', '--', 'b', ' ', '123', '4']],
    ['deepseek-llm', 'a\u3000\u3002b \u4e2d1', ['a', '\u3000', '\u3002', 'b', ' ', '\u4e2d', '1']],
    ['gpt-4o', "HTTPServer don't", ['HTTPServer', " don't"]],
    ['tekken', 'fooBar 12', ['foo', 'Bar', ' ', '1', '2']],
    ['superbpe', 'ab 1234567', ['ab ', '1', '234', '567']],
    ['gemma4', 'a b\n\nc', ['a b', '\n\n', 'c']],
  ])('%s splits %j', (name, text, pieces) => {
    expect(cut(name, text)).toEqual(pieces);
  });

  const distinct = preTokenizerNames().filter(
    (name, index, names) => names.findIndex((other) => preTokenizerRules(other) === preTokenizerRules(name)) === index,
  );

  const longLength = testCoverage === 'full' ? 1 << 20 : 1 << 18;

  it.each(distinct)('%s handles long repetitive texts without exhausting the stack', (name) => {
    const units = ['a', 'A', ' ', '!', '\u4e2d', '\u{1f600}', 'e\u0301', ' \n'];
    for (const unit of sampled(units, 3, distinct.indexOf(name) % 3)) {
      const text = unit.repeat(longLength / unit.length);
      const ends = new IdList();
      preTokenizerRules(name)!.split().split(text, ends);
      let last = 0;
      for (let index = 0; index < ends.length; index++) {
        if (ends.values[index]! < last) throw new Error(`${name}: ends go back at ${last}`);
        last = ends.values[index]!;
      }
      expect(last).toBe(text.length);
    }
  });
});
