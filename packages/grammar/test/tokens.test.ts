/** Tokens that grammars name, and masks inside free text: a mask has a token if and only if `accept` takes it. */
import { describe, expect, test } from 'vitest';
import { createTokenGrammar, createTokenTrie, formatGrammar, parseGrammar, type GrammarMatcher } from '../src/index.js';
import { maskIds } from './vocabulary.js';

describe('tokens', () => {
  const texts = ['<think>', '</think>', 'ab', 'a', 'b', '<', '>'];
  const ids = new Map(texts.map((text, id) => [text, id]));
  const end = texts.length;
  // the first is a control token, the second has text
  const tokenBytes = (id: number): Uint8Array | undefined =>
    id === 0 || id === end ? undefined : new TextEncoder().encode(texts[id]);
  const trie = createTokenTrie({ vocabSize: texts.length + 1, tokenBytes });
  const matcherOf = (text: string): GrammarMatcher =>
    createTokenGrammar({
      grammar: parseGrammar(text),
      trie,
      endTokens: [end],
      tokenId: (name) => ids.get(name),
    }).start();

  test.each([
    ['root ::= <think> !</think>* </think> "a"', [0, 2, 5, 3, 1, 3], [[1], [0, 1, 4], [0, 5, 1, 3, 3]]],
    ['root ::= <[0]> "a"+ <[1]>', [0, 3, 3, 1], [[3], [0, 3, 5]]],
    ['root ::= !<[3]> | "a" "b"', [3, 4], [[3, 3], [0], [4, 4]]],
    ['root ::= (<[2]> | "a") "b"', [2, 4], [[4], [2, 3]]],
    // by its text, too
    ['root ::= <[2]> "c"? | "ab" "a"', [2, 3], [[2, 4]]],
  ])('%s', (grammar, accepted, refused) => {
    const again = formatGrammar(parseGrammar(grammar));
    for (const source of [grammar, again]) {
      const matcher = matcherOf(source);
      for (const id of accepted)
        expect([id, maskIds(matcher).includes(id), matcher.accept(id)]).toEqual([id, true, true]);
      expect(matcher.canEnd).toBe(true);
      for (const path of refused) {
        const other = matcherOf(source);
        const last = path.at(-1) as number;
        for (const id of path.slice(0, -1)) expect(other.accept(id)).toBe(true);
        expect([path, maskIds(other).includes(last), other.accept(last)]).toEqual([path, false, false]);
      }
    }
  });

  test('a token without bytes, or with too many, is not among those that a grammar does not name', () => {
    const bytes = [new Uint8Array(0), Uint8Array.of(0x61), new Uint8Array(0x1_0000), Uint8Array.of(0x62), undefined];
    const odd = createTokenTrie({ vocabSize: bytes.length, tokenBytes: (id) => bytes[id] });
    const grammar = parseGrammar('root ::= !<[3]>');
    const start = (): GrammarMatcher => createTokenGrammar({ grammar, trie: odd }).start();
    expect(maskIds(start())).toEqual([1]);
    expect(bytes.map((_, id) => start().accept(id))).toEqual([false, true, false, false, false]);
  });

  test('tokens that the vocabulary does not have are rejected', () => {
    expect(() => matcherOf('root ::= <none>')).toThrow('<none>');
    expect(() => matcherOf('root ::= <[99]>')).toThrow('<[99]>');
    expect(() => parseGrammar('root ::= !a')).toThrow('expected <[id]> or <text>');
  });
});

/** Texts, incomplete characters and long tokens. */
const encoded = [
  'abc',
  'é',
  'aé"',
  '"',
  '":',
  'a\\',
  '\\n',
  '😀',
  'x😀y',
  '\n',
  'ab cd',
  '€uro',
  'e',
  'zz}',
  't',
  'etab',
].map((text) => [...new TextEncoder().encode(text)]);
const broken = [
  [0xc3],
  [0x61, 0xe2, 0x82],
  [0x80],
  [0xe0, 0x80],
  [0xed, 0xa0],
  [0xf0, 0x9f, 0x98],
  [0xf4, 0x90],
  [0xff],
  [0xc0, 0x80],
];
const oddTokens = [
  ...encoded,
  ...broken,
  [...new TextEncoder().encode('abcdefghijklmnopqrst"')],
  [...new TextEncoder().encode('abcdefghijkl\n')],
  [0xa9, 0x61],
  [0xef, 0xbf, 0xbf, 0x22],
  [0xc3, 0xa9, 0xe2],
];

describe('masks inside free text', () => {
  const trie = createTokenTrie({
    vocabSize: oddTokens.length,
    tokenBytes: (id) => Uint8Array.from(oddTokens[id] as number[]),
  });

  test.each([
    ['root ::= "\\"" ([^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\n])* "\\""', ['"']],
    ['root ::= .* "}"', []],
    ['root ::= .{0,30} "}"', ['e']],
    ['root ::= .{0,3} "}"', ['e']],
    ['root ::= @{2,20}(! [^"\\n] 0) "\\""', ['e']],
    ['root ::= @{2,17}(! [^"\\n] 0) "\\""', ['e', 'e']],
    ['root ::= @{0,18}([a-z] 1 | ! [a-z] 0) "\\n"', ['e']],
    ['root ::= [^"\\n]+', ['e']],
    ['root ::= ([^t] | "t" [^a])* "ta"', ['t']],
    ['root ::= [a-z ]* "}"?', []],
    ['root ::= [a-z\\u00e9\\u20ac]* "é"?', ['e']],
    ['root ::= [a-zé-\\U0001F600]*', []],
    ['root ::= ([a-z] | [\\u0080-\\uffff])*', []],
  ])('%s: a token is in the mask if and only if it is accepted', (source, before) => {
    const tokens = createTokenGrammar({ grammar: parseGrammar(source), trie });
    const matcher = tokens.start();
    for (const text of before) {
      expect(
        matcher.accept(oddTokens.findIndex((bytes) => bytes.length === 1 && bytes[0] === text.charCodeAt(0))),
      ).toBe(true);
    }
    const accepted = oddTokens.flatMap((_, id) => (matcher.fork().accept(id) ? [id] : []));
    expect([accepted.length > 2, maskIds(matcher), matcher.mask().numTokens]).toEqual([
      true,
      accepted,
      accepted.length,
    ]);
  });
});
