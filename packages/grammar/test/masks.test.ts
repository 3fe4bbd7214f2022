/** Masks are computed from what states have in common: each must equal the tokens that `accept` takes one by one. */
import { createRng } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import {
  createTokenGrammar,
  jsonSchemaGrammar,
  parseGrammar,
  type Grammar,
  type JsonSchema,
  type TokenGrammar,
} from '../src/index.js';
import { maskIds, vocabularyOf } from './vocabulary.js';

const names = ['name', 'names', 'nation', 'street', 'straße', 'zip', 'zip_code', '名前', 'a"b'];
const properties = Object.fromEntries(names.map((name) => [name, { type: 'integer' }]));

/** Pieces of the texts below, as a tokenizer would have them, and words. */
function piecesOf(texts: readonly string[], count: number): string[] {
  const rng = createRng(3);
  const pieces = new Set<string>();
  const joined = texts.join('');
  while (pieces.size < count) {
    const begin = Math.floor(rng.nextFloat() * joined.length);
    pieces.add(joined.slice(begin, begin + 2 + Math.floor(rng.nextFloat() * 7)));
  }
  return [...pieces];
}

const vocabulary = vocabularyOf([
  ...['x\u2028y', '\u2028', 'a\u2040', 'b\u20ac'],
  ...piecesOf(
    [
      ...names.flatMap((name) => [`{"${name}": 1}`, `,"${name}":12`, ` ${name} `, name.toUpperCase()]),
      'the quick brown fox jumps over the lazy dog, twice: "é" 😀 \\n \\u00e9 \\" \\\\ 𝒳 €uro',
      'https://example.com/a%20b?c=d#e ABC-12_x 2024-02-29T12:30:00Z me@example.org',
      '語 名前\u2028x\u00a0ł\u3000😀 á',
      '"abc", "def"]} [{"x": [true, null, -1.5e10]}] aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
    ],
    600,
  ),
]);

const grammars: readonly [string, () => Grammar][] = [
  ['declared names among others', () => jsonSchemaGrammar({ type: 'object', properties })],
  ['the same within a length', () => jsonSchemaGrammar({ properties, propertyNames: { maxLength: 7 } })],
  [
    'names by patterns',
    () => jsonSchemaGrammar({ properties, patternProperties: { '^n': { type: 'integer' }, e$: false } }),
  ],
  [
    'strings within a length, except some',
    () => jsonSchemaGrammar({ maxLength: 12, minLength: 2, type: 'string', not: { enum: names } }),
  ],
  ['a pattern', () => jsonSchemaGrammar({ type: 'string', pattern: '^[A-Za-z][\\w-]{2,12}$' })],
  ['another pattern', () => jsonSchemaGrammar({ type: 'string', pattern: '^(ab?|[^b]c)*x$', maxLength: 20 })],
  ['a pattern that may match anywhere', () => jsonSchemaGrammar({ pattern: 'fox\\w*\\.|é.*é', type: 'string' })],
  [
    'letters only, but for the first ones',
    () => parseGrammar('root ::= [ -!#-~é]{3} [a-z ]+ | [ -!#-~]{4} "." | [ -!#-~\\u0080-\\uffff]{17,}'),
  ],
  ['a pattern of few characters', () => jsonSchemaGrammar({ pattern: '^[a-z ]{5}-[A-Z]{2,6}$', type: 'string' })],
  ['letters of every script', () => jsonSchemaGrammar({ pattern: '\\p{L}', type: 'string', maxLength: 16 })],
  ['formats', () => jsonSchemaGrammar({ anyOf: [{ format: 'uri' }, { format: 'email' }], type: 'string' })],
  ['unions', () => jsonSchemaGrammar({ anyOf: [{ enum: names }, { type: 'string', minLength: 5 }, { properties }] })],
  ['words and spaces', () => jsonSchemaGrammar({ pattern: '^(\\S+\\s+){0,9}\\S+$', type: 'string', maxLength: 30 })],
  ['any value', () => jsonSchemaGrammar(true)],
  ['text without a word', () => parseGrammar('root ::= ([^n] | "n" [^a])* "na"')],
  ['fewer characters later', () => parseGrammar('root ::= ([ -~\\u0080-\\uffff] [ -~\\u0080-\\u07ff] [ -~])+')],
  ['a part of the characters of a first byte', () => parseGrammar('root ::= [a-z \\u2040-\\u2fff]+ "."?')],
  ['escapes among letters', () => parseGrammar('root ::= ([a-z ] | "x" [0-9] | "é" "x"?)* "."')],
];

function* walks(tokens: TokenGrammar, count: number): Generator<ReturnType<TokenGrammar['start']>> {
  const rng = createRng(9);
  for (let walk = 0; walk < count; walk++) {
    const matcher = tokens.start();
    for (let length = 0; length < 14; length++) {
      yield matcher;
      const ids = maskIds(matcher);
      // texts are far more often pieces than bytes
      const pieces = ids.filter((id) => id > 127);
      const from = pieces.length > 0 && rng.nextFloat() < 0.7 ? pieces : ids;
      const id = from[Math.floor(rng.nextFloat() * from.length)];
      if (id === undefined || !matcher.accept(id)) break;
    }
  }
}

test.each(grammars)('%s: a mask has the tokens that are accepted, no others', (_name, grammarOf) => {
  const { trie, endToken } = vocabulary;
  const tokens = createTokenGrammar({ grammar: grammarOf(), trie, endTokens: [endToken] });
  let numMasks = 0;
  for (const matcher of walks(tokens, testCoverage === 'full' ? 200 : 12)) {
    const accepted = Array.from({ length: endToken + 1 }, (_, id) => id).filter((id) => matcher.fork().accept(id));
    expect(maskIds(matcher)).toEqual(accepted);
    numMasks++;
  }
  expect(numMasks).toBeGreaterThan(12);
});

describe('only nodes that tell states apart are visited', () => {
  const letters = Array.from('abcdefghijklmnopqrstuvwxyz');
  const more = [...letters, 'é', '語', '😀'];
  const words = letters.flatMap((a) => more.flatMap((b) => more.map((c) => `${a}${b}${c}`)));
  const { trie } = vocabularyOf(words);

  test.each<[string, JsonSchema, string]>([
    ['where a declared name or any other may begin', { type: 'object', properties }, '{"'],
    ['in a short string', { type: 'string', maxLength: 12 }, '"'],
    ['in a string without line separators', { type: 'string', pattern: '^.+$' }, '"é'],
    ['in a string that contains a word', { type: 'string', pattern: 'captain|ship' }, '"'],
  ])('%s', (_name, schema, text) => {
    const tokens = createTokenGrammar({ grammar: jsonSchemaGrammar(schema), trie });
    const matcher = tokens.start();
    for (const byte of new TextEncoder().encode(text)) matcher.accept(byte);
    expect(matcher.mask().numTokens).toBeGreaterThan(words.length);
    expect(tokens.statistics().numVisitedNodes).toBeLessThan(trie.numNodes / 20);
  });

  test('in letters of every script, of which only some first bytes are looked at', () => {
    const grammar = jsonSchemaGrammar({ type: 'string', pattern: '^[\\p{L}😀]+$', maxLength: 20 });
    const tokens = createTokenGrammar({ grammar, trie });
    const matcher = tokens.start();
    matcher.accept('"'.charCodeAt(0));
    expect(matcher.mask().numTokens).toBeGreaterThan(words.length);
    const beyondAscii = words.filter((word) => /[^a-z]/.test(word)).length;
    expect(tokens.statistics().numVisitedNodes).toBeLessThan(5 * beyondAscii); // at most 4 bytes, and the nodes before
  });
});
