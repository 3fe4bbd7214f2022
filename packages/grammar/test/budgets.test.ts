/**
 * Short grammars and schemas that describe huge automata: each compiles, or is rejected with its place, after bounded work.
 * The limits count steps; the timeouts only detect unbounded work.
 */
import { CapacityError, finish, type Sliced } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import {
  createTokenGrammar,
  createTokenGrammarSliced,
  createTokenTrie,
  createTokenTrieSliced,
  Deadline,
  formatGrammar,
  jsonSchemaGrammar,
  jsonSchemaGrammarSliced,
  parseGrammar,
  parseGrammarSliced,
  type Grammar,
  type GrammarMatcher,
  type JsonSchema,
  type TokenGrammar,
} from '../src/index.js';
import { vocabularyOf } from './vocabulary.js';

const timeout = 10_000;
const { trie, endToken } = vocabularyOf(['aa', 'aaaa', 'aaaaaaaa', '"a', 'ab', 'é', '😀']);

function compile(grammar: Grammar): TokenGrammar {
  return createTokenGrammar({ grammar, trie, endTokens: [endToken] });
}

function start(grammar: Grammar): GrammarMatcher {
  return compile(grammar).start();
}

/** Feeds a text byte by byte, with a mask before each of the first bytes. */
function matches(matcher: GrammarMatcher, text: string): boolean {
  for (const [index, byte] of new TextEncoder().encode(text).entries()) {
    if (index < 4) matcher.mask();
    if (!matcher.accept(byte)) return false;
  }
  return matcher.canEnd;
}

function refusalOf(run: () => unknown): CapacityError {
  try {
    run();
  } catch (error) {
    if (CapacityError.isInstance(error)) return error;
    throw error;
  }
  throw new Error('expected a refusal');
}

describe('GBNF', () => {
  const doubling = Array.from({ length: 40 }, (_, rule) => `r${rule} ::= r${rule + 1} r${rule + 1}`).join('\n');
  const a = (count: number): string => 'a'.repeat(count);

  test.each<[string, string, readonly string[], readonly string[]]>([
    ['an optional letter, many times', 'root ::= ("a"?){20000}', ['', 'a', a(2000)], ['b']],
    ['letters, any number of many times', 'root ::= (("a"*){80}){80} "b"', ['b', 'ab', `${a(500)}b`], ['', 'ba']],
    ['an empty rule, many times', 'root ::= b{100000}\nb ::= ""', [''], ['b']],
    ['a rule that may be empty, many times', 'root ::= b{50000} "c"\nb ::= "" | "a" b', ['c', 'aac'], ['', 'b']],
    ['rules that double', `root ::= r0\n${doubling}\nr40 ::= "a"?`, ['', 'a', a(300)], ['b']],
    ['nested options', `root ::= ${'('.repeat(150)}"a"?${')?'.repeat(150)}`, ['', 'a'], ['b', 'aa']],
    ['a long list of what may be missing', `root ::= ${'"a"? "b"? '.repeat(3000)}`, ['', 'ab', 'ba', 'bbb'], ['c']],
  ])('%s', { timeout }, (_name, text, accepted, refused) => {
    const tokens = compile(parseGrammar(text));
    for (const input of accepted) expect(matches(tokens.start(), input), input.slice(0, 20)).toBe(true);
    for (const input of refused) expect(matches(tokens.start(), input), input).toBe(false);
  });

  test.each<[string, string, string]>([
    ['a repetition of a repetition', 'root ::= "x" big\nbig ::= (([a-c]{1000}){1000})', 'big'],
    ['a rule beyond what others left', 'root ::= "x"{90000} "y"{90000} r2\nr2 ::= "z"{90000}', 'r2'],
    ['nested empty repetitions', `root ::= ${'('.repeat(150)}"a"?${'){0,9}'.repeat(150)}`, 'root'],
  ])('%s is rejected at its rule', { timeout }, (_name, text, rule) => {
    const refusal = refusalOf(() => start(parseGrammar(text)));
    expect(refusal).toMatchObject({ source: 'grammar', field: rule });
    expect(refusal.message).toContain(rule);
  });

  test('a mask that takes too much work is rejected', { timeout }, () => {
    // after n letters: every state of the last n / 2 repetitions for each of many tokens
    const { trie: long } = vocabularyOf([0, 1].map((first) => `${first}${'01'.repeat(400)}`));
    const grammar = parseGrammar('root ::= ([01] | [01] [01] | "010" | "101" | "01010"){20000}');
    const matcher = createTokenGrammar({ grammar, trie: long }).start();
    const refusal = refusalOf(() => {
      for (let count = 0; count < 40; count++) {
        matcher.mask();
        for (let byte = 0; byte < 100; byte++) matcher.accept(48 + (byte % 2));
      }
    });
    expect(refusal).toMatchObject({ source: 'grammar', resource: 'work' });
  });

  test('a grammar that names too many tokens is rejected', { timeout }, () => {
    const vocabSize = 70_000;
    const many = createTokenTrie({ vocabSize, tokenBytes: (id) => Uint8Array.of(id & 0xff) });
    const rules = Array.from({ length: vocabSize }, (_, id) => `<[${id}]>`).join(' | ');
    const refusal = refusalOf(() => createTokenGrammar({ grammar: parseGrammar(`root ::= ${rules}`), trie: many }));
    expect(refusal).toMatchObject({ source: 'grammar', field: 'root', resource: 'work' });
  });

  test('repetition operators nested too deeply are rejected', { timeout }, () => {
    expect(refusalOf(() => start(parseGrammar(`root ::= "a"${'?'.repeat(100_000)}`)))).toMatchObject({
      unit: 'levels',
    });
  });
});

const quoted = (text: string): string => JSON.stringify(text);

describe('JSON schemas', () => {
  test.each<[string, JsonSchema, readonly string[], readonly string[]]>([
    [
      'a chain of references that doubles',
      {
        $ref: '#/$defs/d0',
        $defs: Object.fromEntries(
          Array.from({ length: 31 }, (_, index) => [
            `d${index}`,
            index === 30
              ? { type: 'string', pattern: '^a+$', maxLength: 5 }
              : { allOf: [{ $ref: `#/$defs/d${index + 1}` }, { $ref: `#/$defs/d${index + 1}` }] },
          ]),
        ),
      },
      [quoted('aa')],
      [quoted('ab'), quoted('aaaaaa')],
    ],
    ['an optional letter in a pattern', { type: 'string', pattern: '^(a?){5000}$' }, ['""', '"aaa"'], ['"b"']],
    [
      'a long text of Unicode letters',
      { type: 'string', pattern: '^\\p{L}+$', maxLength: 19_000 },
      ['"né"'],
      ['""', '"1"'],
    ],
    ['Unicode letters anywhere', { type: 'string', pattern: '\\p{L}+', maxLength: 100 }, ['"1é2"'], ['""', '"1"']],
  ])('%s', { timeout }, (_name, schema, accepted, refused) => {
    const tokens = compile(jsonSchemaGrammar(schema));
    for (const input of accepted) expect(matches(tokens.start(), input), input).toBe(true);
    for (const input of refused) expect(matches(tokens.start(), input), input).toBe(false);
  });

  test.each<[string, JsonSchema, string]>([
    ['a pattern', { properties: { a: { type: 'string', pattern: '^(a|b)*a(a|b){30}$' } } }, '#/properties/a/pattern'],
    [
      'a long pattern',
      { properties: { a: { type: 'string', pattern: `^[${'ab'.repeat(40_000)}]$` } } },
      '#/properties/a/pattern',
    ],
    [
      'patterns together',
      { type: 'string', allOf: [{ pattern: '(a.{60}b|c.{70}d)' }, { pattern: 'e.{90}f' }] },
      '#/allOf/0/pattern',
    ],
    ['a repetition', { properties: { a: { items: { type: 'array', minItems: 300_000 } } } }, '#/properties/a/items'],
    [
      'alternatives',
      {
        type: 'object',
        allOf: Array.from({ length: 3 }, () => ({
          anyOf: Array.from({ length: 40 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'null' } } })),
        })),
      },
      '#',
    ],
  ])('%s is rejected at its place', { timeout }, (_name, schema, field) => {
    expect(refusalOf(() => start(jsonSchemaGrammar(schema)))).toMatchObject({ source: 'JSON schema', field });
  });
});

test('a value that is nested without end in place of a schema is rejected', () => {
  const deep = JSON.parse(`${'['.repeat(200_000)}${']'.repeat(200_000)}`) as JsonSchema;
  expect(() => jsonSchemaGrammar(deep)).toThrow('expected a schema, got an array of 1');
  expect(refusalOf(() => jsonSchemaGrammar({ properties: { a: deep } }))).toMatchObject({ unit: 'levels' });
});

describe('compiling in slices', () => {
  const names = Array.from({ length: 300 }, (_, index) => `property${index}`);
  const large = {
    type: 'object',
    properties: Object.fromEntries(
      names.map((name, index) => [name, { type: 'string', pattern: `^[a-z]{1,${5 + (index % 40)}}[0-9]+$` }]),
    ),
    additionalProperties: { type: 'integer', minimum: 3, maximum: 12_345 },
  };

  test('it yields again and again and ends with the same grammar', () => {
    const work = jsonSchemaGrammarSliced(large);
    let numSlices = 0;
    let step = work.next();
    for (; step.done !== true; step = work.next()) numSlices++;
    expect(numSlices).toBeGreaterThan(5);
    expect(formatGrammar(step.value)).toBe(formatGrammar(jsonSchemaGrammar(large)));
    const network = createTokenGrammarSliced({ grammar: step.value, trie });
    expect(network.next().done).toBe(false);
    expect(finish(network).start().accept('{'.charCodeAt(0))).toBe(true);
  });

  test('over its deadline it is refused, with the place in the schema also when its grammar is compiled', () => {
    let time = 0;
    const late = (): Deadline => new Deadline(1500, () => (time += 1000));
    const refusal = { source: 'JSON schema', resource: 'compile time', available: 1500, unit: 'ms' };
    const field = expect.stringMatching(/^#(\/properties\/property\d+)?/) as string;
    expect(refusalOf(() => jsonSchemaGrammar(large, { deadline: late() }))).toMatchObject({ ...refusal, field });
    const work = jsonSchemaGrammarSliced(large);
    let numSlices = 0;
    while (work.next().done !== true) numSlices++;
    const atTheEnd = new Deadline((numSlices - 1) * 1000 + 500, () => (time += 1000));
    const { field: last } = refusalOf(() => jsonSchemaGrammar(large, { deadline: atTheEnd }));
    expect(last).toMatch(/^#/);
    const grammar = jsonSchemaGrammar(large);
    const compile = (deadline: Deadline): unknown => createTokenGrammar({ grammar, trie, deadline });
    expect(refusalOf(() => compile(late()))).toMatchObject({ ...refusal, field });
    expect(compile(new Deadline(3_600_000, () => (time += 1000)))).toBeDefined();
  });

  test('GBNF is parsed in slices, and refuses a literal that takes too long', () => {
    const text = `root ::= ${Array.from({ length: 5000 }, (_, index) => `"${index}"`).join(' | ')}`;
    const work = parseGrammarSliced(text);
    let numSlices = 0;
    let step = work.next();
    for (; step.done !== true; step = work.next()) numSlices++;
    expect(numSlices).toBe(2);
    expect(formatGrammar(step.value)).toBe(formatGrammar(parseGrammar(text)));
    let time = 0;
    const deadline = new Deadline(1500, () => (time += 1000));
    const late = { source: 'grammar', field: 'root', resource: 'compile time', available: 1500 };
    expect(refusalOf(() => finish(parseGrammarSliced(text, 'root', { deadline })))).toMatchObject(late);
    const refusal = { source: 'grammar', field: 'root', resource: 'literal or class', unit: 'characters' };
    expect(refusalOf(() => parseGrammar(`root ::= "${'a'.repeat(300_000)}"`))).toMatchObject(refusal);
  });
});

/** Fewer slices would be work that is not counted. */
describe('each step of compiling yields', () => {
  const list = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);
  const nested = list(60).reduce((inner) => `&{0,}("," | ${inner}? | "b")`, '[]');

  test.each<[what: string, source: string | JsonSchema, numSlices: number]>([
    ['one long rule', 'root ::= [acegikmoqsuwyACEGIKMOQSUWY02468]{20000}', 40],
    [
      'many rules',
      `root ::= r0\n${list(3000)
        .map((i) => `r${i} ::= "a" r${i + 1}`)
        .join('\n')}\nr3000 ::= "b"`,
      14,
    ],
    ['lists in lists without parts that never end', `root ::= "a" ${nested}?`, 3],
    ['unique items', { type: 'array', uniqueItems: true, items: { enum: list(3000).map((i) => `v${i}`) } }, 11],
    ['products', { allOf: [0, 1].map(() => ({ anyOf: list(150).map((i) => ({ const: i })) })) }, 35],
    [
      'oneOf',
      { oneOf: list(60).map((i) => ({ type: 'object', properties: { k: { const: i } }, required: ['k'] })) },
      27,
    ],
    ['values by a pattern', { enum: list(300).map((i) => 'ab'.repeat(20) + i), pattern: '^(a|b)*a(a|b){8}' }, 14],
    ['names by a pattern', { required: ['aaaaaaaaaa'], patternProperties: { '^(a|b)*a(a|b){9}$': true } }, 41],
    ['a search in Unicode', { type: 'string', pattern: '^[\\p{Script=Ogham}\\p{Script=Runic}]+$' }, 22],
  ])('%s', { timeout }, (_what, source, numSlices) => {
    const grammar = typeof source === 'string' ? parseGrammarSliced(source) : jsonSchemaGrammarSliced(source);
    let count = 0;
    run(createTokenGrammarSliced({ grammar: run<Grammar>(grammar), trie }));
    expect(count).toBe(numSlices);

    function run<Result>(work: Sliced<Result>): Result {
      for (;;) {
        const step = work.next();
        if (step.done === true) return step.value;
        count++;
      }
    }
  });
});

test('a trie is the same in slices', () => {
  const tokenBytes = (id: number): Uint8Array => Uint8Array.of(id % 251, (id * 7) % 256, id >> 8);
  const work = createTokenTrieSliced({ vocabSize: 20_000, tokenBytes });
  expect(work.next().done).toBe(false);
  const { bytesOf: _, ...trie } = finish(work);
  const { bytesOf: _same, ...whole } = createTokenTrie({ vocabSize: 20_000, tokenBytes });
  expect(trie).toEqual(whole);
  const isOrdered = trie.tokens.every((id, place) => place === 0 || compare(trie.tokens[place - 1]!, id) <= 0);
  expect(isOrdered).toBe(true);

  function compare(a: number, b: number): number {
    return Buffer.compare(tokenBytes(a), tokenBytes(b));
  }
});
