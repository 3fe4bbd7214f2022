import { createRng } from '@winnow/tensor';
import { characterAt, lastCharacter, testCoverage } from '@winnow/test-utils';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  createTokenGrammar,
  createTokenTrie,
  formatGrammar,
  literal,
  parseGrammar,
  type AutomatonState,
  type Grammar,
  type GrammarMatcher,
  type GrammarNode,
} from '../src/index.js';
import { recognizes } from './recognizer.js';
import { maskIds, sampleText, textOf, vocabularyOf } from './vocabulary.js';

const bytes = vocabularyOf([]);

function start(text: string | Grammar, { trie, endToken } = bytes): GrammarMatcher {
  const grammar = typeof text === 'string' ? parseGrammar(text) : text;
  return createTokenGrammar({ grammar, trie, endTokens: [endToken] }).start();
}

/** Feeds a text byte by byte. */
function matches(text: string | Grammar, input: string): boolean {
  const matcher = start(text);
  for (const byte of new TextEncoder().encode(input)) if (!matcher.accept(byte)) return false;
  return matcher.canEnd;
}

const json = String.raw`
# from the examples of llama.cpp, in our words
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
`;

test.each([
  ['root ::= "a" "b"', ['ab'], ['', 'a', 'abb']],
  ['root ::= "a" | "b"\n  | "c"', ['a', 'b', 'c'], ['ab', '']],
  ['root ::= ("a" | b)* "!" # comment\nb ::= "bb"?', ['!', 'a!', 'bb!', 'abba!', 'abb!'], ['b!', 'a']],
  ['root ::= "a"{2,3}', ['aa', 'aaa'], ['a', 'aaaa']],
  ['root ::= "ab"{2}', ['abab'], ['ab', 'ababab', 'abb']],
  ['root ::= [a-c]{2,}', ['ab', 'ccc'], ['a', 'ad']],
  ['root ::= [ab]{,2}', ['', 'a', 'ab'], ['aba']],
  ['root ::= [^a-z\\n]', ['A', 'é', '😀', '-'], ['b', '\n', '']],
  ['root ::= [a\\-z]', ['a', '-', 'z'], ['b']],
  ['root ::= [az-]', ['a', '-', 'z'], ['b']],
  ['root ::= .', ['a', '\n', '€', '😀'], ['', 'ab']],
  ['root ::= "\\x41\\u00e9\\U0001F600\\t\\""', ['Aé😀\t"'], ['A']],
  ['root ::= "x" root "y" | ""', ['', 'xy', 'xxxyyy'], ['xxy', 'xyy']],
  ['root ::= "x" root | "x"', ['x', 'xxxxx'], ['', 'xy']],
  ['root ::= a+ a*\na ::= "a"?', ['', 'a', 'aaaa'], ['b']],
  ['root ::= ( ( "a" ) )', ['a'], []],
  ['root ::= []', [], ['', 'a']],
  ['root ::=\nb ::= "b"', [''], ['b']],
  [json, ['{}', '{"a": [1, {"b": -2.5e3}, "\\u00e9é", true]}', '{ }'], ['{', '[]', '{"a":}', '{"a":1,}', '{"a":"\t"}']],
])('GBNF: %s', (grammar, accepted, refused) => {
  for (const text of accepted) expect([text, matches(grammar, text)]).toEqual([text, true]);
  for (const text of refused) expect([text, matches(grammar, text)]).toEqual([text, false]);
  for (const text of [...accepted, ...refused]) {
    expect([text, recognizes(parseGrammar(grammar), text)]).toEqual([text, accepted.includes(text)]);
  }
});

test.each([
  ['', 'root', 0],
  ['a ::= "b"', 'root', 0],
  ['root ::= b', 'b', 9],
  ['root = "a"', 'root', 5],
  ['root ::= "a', 'literal', 9],
  ['root ::= [a', 'class', 9],
  ['root ::= [z-a]', 'class', 10],
  ['root ::= ("a"', 'group', 9],
  ['root ::= "a")', 'root', 12],
  ['root ::= "\\q"', 'literal', 10],
  ['root ::= "\\x4"', 'literal', 10],
  ['root ::= "\\uD800"', 'literal', 10],
  ['root ::= "a"{3,2}', 'repetition', 12],
  ['root ::= "a"{x}', 'repetition', 12],
  ['root ::= "a"\nroot ::= "b"', 'root', 13],
  ['é ::= "a"', 'rule', 0],
  ['root ::= "é" \\', 'root', 14],
])('GBNF: %s is rejected with its place', (text, field, byteOffset) => {
  expect(() => parseGrammar(text)).toThrow(expect.objectContaining({ code: 'format', field, byteOffset }));
});

test.each([
  ['root ::= root "a" | "b"', 'root > root'],
  ['root ::= a\na ::= b? c\nb ::= "b"\nc ::= a', 'a > c > a'],
  ['root ::= ("x"? root)*', 'root > root'],
])('GBNF: left recursion is rejected: %s', (text, cycle) => {
  expect(() => start(text)).toThrow(
    expect.objectContaining({ code: 'format', message: expect.stringContaining(cycle) }),
  );
});

test('GBNF: grammars that are too large are rejected', () => {
  const refusal = expect.objectContaining({ code: 'capacity' });
  expect(() => parseGrammar('root ::= "a"{1,1000000}')).toThrow(refusal);
  expect(() => parseGrammar(`root ::= ${'('.repeat(10_000)}"a"`)).toThrow(refusal);
  expect(() => start('root ::= ("a"{1,90000}){1,90000}')).toThrow(refusal);
});

test('GBNF: tail calls of rules keep no stack; brackets keep one', () => {
  const flat = start('root ::= "a" root | "a" b\nb ::= "b" root | ""');
  for (let i = 0; i < 20_000; i++) expect(flat.accept(0x61)).toBe(true);
  const nested = start('root ::= "(" root ")" | ""');
  for (let i = 0; i < 1500; i++) expect(nested.accept(0x28)).toBe(true);
  expect(nested.canEnd).toBe(false);
  for (let i = 0; i < 1500; i++) expect(nested.accept(0x29)).toBe(true);
  expect(nested.canEnd && nested.isComplete).toBe(true);
  expect(() => {
    for (let i = 0; i < 10_000; i++) nested.accept(0x28);
    const deep = start('root ::= "(" root ")" | ""');
    for (let i = 0; i < 10_000; i++) deep.accept(0x28);
  }).toThrow(expect.objectContaining({ code: 'capacity' }));
});

test('GBNF: ambiguity does not multiply: 2^600 stacks are shared as 600', () => {
  const matcher = start('root ::= "x" root "y" | "x" root "z" | ""');
  for (let i = 0; i < 600; i++) expect(matcher.accept(0x78)).toBe(true);
  for (let i = 0; i < 600; i++) expect(matcher.accept(i % 3 === 0 ? 0x79 : 0x7a)).toBe(true);
  expect(matcher.isComplete).toBe(true);
});

test('GBNF: states are evicted when there are many, and matchers continue', () => {
  const matcher = start('root ::= "a"{0,50000} "b"');
  const early = matcher.fork();
  for (let i = 0; i < 49_999; i++) matcher.accept(0x61);
  expect(maskIds(matcher)).toEqual([0x61, 0x62]);
  expect(maskIds(early)).toEqual([0x61, 0x62]);
  expect(matcher.accept(0x61)).toBe(true);
  expect(maskIds(matcher)).toEqual([0x62]);
  expect(early.accept(0x62) && early.isComplete).toBe(true);
});

const numRules = 4;
const leaf = fc.oneof(
  fc.constantFrom('a', 'b', 'ab', 'é', '😀', '').map(literal),
  fc.constantFrom<GrammarNode>(
    { kind: 'class', ranges: [[0x61, 0x62]] },
    {
      kind: 'class',
      ranges: [
        [0x62, 0x63],
        [0xe8, 0xff],
        [0x1f5ff, 0x1f601],
      ],
    },
  ),
);
const countsWithin = (most: number): fc.Arbitrary<{ min: number; max?: number }> =>
  fc
    .tuple(fc.integer({ min: 0, max: most }), fc.option(fc.integer({ min: 0, max: most })))
    .map(([min, more]) => ({ min, ...(more === null ? {} : { max: min + more }) }));
const nonEmpty = (rest: fc.Arbitrary<GrammarNode>): fc.Arbitrary<GrammarNode> =>
  fc
    .tuple(fc.constantFrom('a', 'b', 'é'), rest)
    .map(([text, after]) => ({ kind: 'sequence', items: [literal(text), after] }));
const state = (rest: fc.Arbitrary<GrammarNode>): fc.Arbitrary<AutomatonState> =>
  fc.record({
    isAccepting: fc.boolean(),
    edges: fc.array(fc.record({ item: nonEmpty(rest), target: fc.nat(2) }), { maxLength: 2 }),
  });
const unordered = (rest: fc.Arbitrary<GrammarNode>): fc.Arbitrary<GrammarNode> =>
  fc
    .tuple(leaf, fc.array(fc.tuple(nonEmpty(rest), fc.option(countsWithin(2))), { maxLength: 3 }), countsWithin(2))
    .map(([separator, members, counts]) => ({
      ...{ kind: 'unordered', separator, ...counts },
      members: members.map(([item, own]) => (own === null ? item : { kind: 'repeat', item, ...own })),
    }));
const automaton = (rest: fc.Arbitrary<GrammarNode>): fc.Arbitrary<GrammarNode> =>
  fc.tuple(fc.array(state(rest), { minLength: 1, maxLength: 3 }), countsWithin(3)).map(([states, counts]) => ({
    ...{ kind: 'automaton', ...counts },
    states: states.map(({ edges, isAccepting }) => ({
      isAccepting,
      edges: edges.map(({ item, target }) => ({ item, target: target % states.length })),
    })),
  }));
const node = (own: number): fc.Arbitrary<GrammarNode> =>
  fc.letrec<{ node: GrammarNode }>((tie) => ({
    node: fc.oneof(
      { depthSize: 'small' },
      leaf,
      own + 1 < numRules
        ? fc.integer({ min: own + 1, max: numRules - 1 }).map((i) => ({ kind: 'rule', name: `r${i}` }))
        : leaf,
      fc
        .tuple(fc.constantFrom('a', 'b', 'é'), fc.integer({ min: 0, max: numRules - 1 }))
        .map(([text, i]) => ({ kind: 'sequence', items: [literal(text), { kind: 'rule', name: `r${i}` }] })),
      fc.array(tie('node'), { maxLength: 3 }).map((items) => ({ kind: 'sequence', items })),
      fc.array(tie('node'), { minLength: 1, maxLength: 3 }).map((alternatives) => ({ kind: 'choice', alternatives })),
      fc.tuple(tie('node'), countsWithin(2)).map(([item, counts]) => ({ kind: 'repeat', item, ...counts })),
      unordered(tie('node')),
      automaton(tie('node')),
    ) as fc.Arbitrary<GrammarNode>,
  })).node;
/** Rules r0 .. r3; a rule refers to later ones anywhere and to any rule after a character, so there is no left recursion. */
const grammars: fc.Arbitrary<Grammar> = fc
  .tuple(...Array.from({ length: numRules }, (_, own) => node(own)))
  .map((nodes) => ({ root: 'r0', rules: new Map(nodes.map((rule, own) => [`r${own}`, rule])) }));

describe('random grammars', () => {
  const texts = fc.array(fc.constantFrom('a', 'b', 'c', 'é', '😀'), { maxLength: 6 }).map((chars) => chars.join(''));

  test('bytes match exactly like the slow recognizer', () => {
    fc.assert(
      fc.property(grammars, fc.array(texts, { minLength: 8, maxLength: 8 }), (grammar, inputs) => {
        const tokens = createTokenGrammar({ grammar, trie: bytes.trie, endTokens: [bytes.endToken] });
        for (const input of inputs) {
          const matcher = tokens.start();
          const isMatch = [...new TextEncoder().encode(input)].every((byte) => matcher.accept(byte)) && matcher.canEnd;
          expect([input, isMatch]).toEqual([input, recognizes(grammar, input)]);
        }
      }),
      { numRuns: 400 },
    );
  });

  test('the text of a grammar parses to an equal grammar', () => {
    fc.assert(
      fc.property(grammars, fc.array(texts, { minLength: 4, maxLength: 4 }), (grammar, inputs) => {
        const again = parseGrammar(formatGrammar(grammar), 'r0');
        expect(formatGrammar(again)).toBe(formatGrammar(parseGrammar(formatGrammar(again), 'r0')));
        for (const input of inputs) expect(recognizes(again, input)).toBe(recognizes(grammar, input));
      }),
      { numRuns: 200 },
    );
  });

  test('a mask contains a token if and only if accept takes it', () => {
    const vocabulary = vocabularyOf(['ab', 'ba', 'aab', 'é', 'aé', '😀', 'abc', 'b😀']);
    fc.assert(
      fc.property(grammars, fc.array(fc.nat({ max: 1000 }), { maxLength: 6 }), (grammar, draws) => {
        const matcher = start(grammar, vocabulary);
        for (const draw of draws) {
          const ids = maskIds(matcher);
          const accepted = [...Array(vocabulary.endToken + 1).keys()].filter((id) => matcher.fork().accept(id));
          expect(ids).toEqual(accepted);
          const id = ids[draw % ids.length];
          if (id === undefined) return;
          matcher.accept(id);
        }
      }),
      { numRuns: 150 },
    );
  });
});

describe('texts under a mask', () => {
  const vocabulary = vocabularyOf([
    '{"',
    '":',
    '": ',
    '", "',
    '"}',
    '}}',
    'true',
    ' null',
    '[[',
    '"a',
    '123',
    '\\u00',
    '\n  ',
    'é',
    '😀',
  ]);

  test('always parse, by the recognizer and by JSON.parse', () => {
    const rng = createRng(5);
    const grammar = parseGrammar(json);
    const tokens = createTokenGrammar({ grammar, trie: vocabulary.trie, endTokens: [vocabulary.endToken] });
    let numEnded = 0;
    for (let run = 0; run < 60; run++) {
      const { text, isEnded } = sampleText(tokens.start(), vocabulary, () => rng.nextFloat());
      if (!isEnded) continue;
      numEnded++;
      if (text.length < 200) expect([text, recognizes(grammar, text)]).toEqual([text, true]);
      expect(typeof JSON.parse(text)).toBe('object');
    }
    expect(numEnded).toBeGreaterThan(50);
  });

  test('every valid text is accepted in every tokenization', () => {
    const text = '{"é": [true, "😀", 12]}';
    const whole = new TextEncoder().encode(text);
    fc.assert(
      fc.property(fc.uniqueArray(fc.integer({ min: 1, max: whole.length - 1 })), (cuts) => {
        const places = [0, ...cuts.sort((a, b) => a - b), whole.length];
        const pieces = places.slice(1).map((end, i) => whole.slice(places[i], end));
        expect(textOf(pieces)).toBe(text);
        const tokens = [...Array(256).keys()].map((byte) => Uint8Array.of(byte)).concat(pieces);
        const trie = createTokenTrie({ vocabSize: tokens.length, tokenBytes: (id) => tokens[id] });
        const matcher = createTokenGrammar({ grammar: parseGrammar(json), trie, endTokens: [] }).start();
        for (let i = 0; i < pieces.length; i++) {
          expect(maskIds(matcher)).toContain(256 + i);
          expect(matcher.accept(256 + i)).toBe(true);
        }
        expect(matcher.canEnd).toBe(true);
      }),
      { numRuns: 60 },
    );
  });
});

describe('fuzz', () => {
  test('parsing and compiling any text gives a grammar or a typed error', () => {
    const piece = fc.constantFrom(
      'root',
      ' ::= ',
      '"a"',
      '"',
      '[a-z]',
      '[^',
      ']',
      '(',
      ')',
      '|',
      '*',
      '+',
      '?',
      '{2,3}',
      '{',
      '}',
      '\n',
      '#x\n',
      'b',
      '\\',
      '\\x41',
      '.',
      ' ',
      'é',
      '\ud800',
    );
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(piece, { maxLength: 30 }).map((all) => all.join('')),
          fc.string({ unit: fc.nat(lastCharacter).map(characterAt) }),
        ),
        (text) => {
          for (const source of [text, `root ::= ${text}`]) {
            try {
              start(source).mask();
            } catch (error) {
              expect(['format', 'capacity']).toContain((error as { code?: string }).code);
            }
          }
        },
      ),
      { numRuns: testCoverage === 'full' ? 3000 : 400 },
    );
  });
});

test('GBNF: masks are recomputed after states were evicted', () => {
  const matcher = start('root ::= "a"{25000} "b"');
  for (let i = 0; i < 25_000; i++) {
    if (i < 10_000) expect(matcher.mask().numTokens).toBe(1); // of states whose ids are reused
    matcher.accept(0x61);
  }
  expect(maskIds(matcher)).toEqual([0x62]);
});

test('a token without bytes is never accepted', () => {
  const trie = createTokenTrie({
    vocabSize: 2,
    tokenBytes: (id) => (id === 0 ? new Uint8Array(0) : Uint8Array.of(0x61)),
  });
  const matcher = createTokenGrammar({ grammar: parseGrammar('root ::= "a"*'), trie }).start();
  expect(maskIds(matcher)).toEqual([1]);
  expect([matcher.accept(0), matcher.accept(1)]).toEqual([false, true]);
});
