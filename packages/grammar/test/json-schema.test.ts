import { createRng } from '@winnow/tensor';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createTokenGrammar, jsonSchemaGrammar, type JsonSchema, type TokenGrammar } from '../src/index.js';
import { formats } from '../src/schema/formats.js';
import { sampleText, vocabularyOf } from './vocabulary.js';

const vocabulary = vocabularyOf([
  '{"',
  '": ',
  ', "',
  '"}',
  '}}',
  'true',
  'null',
  '[[',
  '"a',
  '123',
  '-1',
  '0.5',
  '\\u00',
  '\\ud83d\\ude00',
  'é',
  '😀',
]);

function tokensOf(schema: JsonSchema, whitespace: 'single' | 'indented' | 'none' = 'indented'): TokenGrammar {
  const grammar = jsonSchemaGrammar(schema, { whitespace });
  return createTokenGrammar({ grammar, trie: vocabulary.trie, endTokens: [vocabulary.endToken] });
}

function matches(tokens: TokenGrammar, text: string): boolean {
  const matcher = tokens.start();
  return [...new TextEncoder().encode(text)].every((byte) => matcher.accept(byte)) && matcher.canEnd;
}

function validatorOf(schema: JsonSchema): (value: unknown) => boolean {
  const ajv = new Ajv2020({ strict: false, unicodeRegExp: true, logger: false });
  (addFormats as unknown as (ajv: Ajv2020) => void)(ajv);
  return ajv.compile(schema as never) as (value: unknown) => boolean;
}

/** Samples texts and validates them. @returns how many came to an end */
function checkSamples(schema: JsonSchema, seed: number, count = 12): number {
  const rng = createRng(seed);
  const tokens = tokensOf(schema);
  const validate = validatorOf(schema);
  let numEnded = 0;
  for (let run = 0; run < count; run++) {
    const { text, isEnded } = sampleText(tokens.start(), vocabulary, () => rng.nextFloat(), 25, 400);
    if (!isEnded) continue;
    numEnded++;
    expect([schema, text, validate(JSON.parse(text))]).toEqual([schema, text, true]);
  }
  return numEnded;
}

const person = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 10 },
    age: { type: 'integer', minimum: 0, maximum: 130 },
    tags: { type: 'array', items: { type: 'string', pattern: '^[a-z]{1,5}$' }, maxItems: 3 },
    home: { $ref: '#/$defs/place', description: 'where' },
  },
  required: ['name', 'tags'],
  additionalProperties: false,
  $defs: {
    place: {
      type: ['object', 'null'],
      properties: { city: { enum: ['Ulm', 'Bern'] } },
      required: ['city'],
      additionalProperties: false,
    },
  },
};

const tree = {
  $ref: '#/$defs/node',
  $defs: {
    node: {
      type: 'object',
      properties: {
        value: { type: 'number' },
        children: { type: 'array', items: { $ref: '#/$defs/node' }, maxItems: 2 },
      },
      required: ['value'],
      additionalProperties: false,
    },
  },
};

describe('JSON schema', () => {
  test.each<[string, JsonSchema, string[], string[]]>([
    [
      'an object',
      person,
      [
        '{"name":"é","tags":[]}',
        '{"name": "Bo", "age": 130, "tags": ["a", "bc"], "home": {"city": "Ulm"}}',
        '{\n  "name": "x",\n  "tags": [],\n  "home": null\n}',
      ],
      [
        '{"tags":[],"name":"x"}',
        '{"name":"","tags":[]}',
        '{"name":"x","tags":["A"]}',
        '{"name":"x","age":131,"tags":[]}',
        '{"name":"x","tags":[],"b":1}',
        '{"name":"x"}',
      ],
    ],
    [
      'recursion',
      tree,
      ['{"value":1,"children":[{"value":-0.5e3,"children":[]}]}'],
      ['{"children":[]}', '{"value":1,"children":[1]}'],
    ],
    ['anything', true, ['1', '{"a":[null,{}]}', '"x"'], ['', '{', 'x']],
    [
      'integers',
      { type: 'integer', minimum: -12, exclusiveMaximum: 105 },
      ['-12', '-1', '0', '9', '104', '99'],
      ['-13', '105', '-0', '01', '1.5'],
    ],
    ['integers without bounds', { type: 'integer' }, ['0', '-7', '123456789012345'], ['1.0', '-', '00']],
    ['multiples', { type: 'integer', multipleOf: 7, minimum: 10 }, ['14', '21', '7000'], ['7', '15', '']],
    [
      'numbers',
      { type: 'number', minimum: 0.25, maximum: 2.5 },
      ['0.25', '0.3', '1', '1.999999', '2.5', '2.500000', '2'],
      ['0.24', '0.2', '2.51', '3', '0', '1e0'],
    ],
    ['numbers above', { type: 'number', exclusiveMinimum: 0 }, ['0.000001', '1', '12345.5'], ['0', '0.0', '-1']],
    [
      'numbers below zero',
      { type: 'number', minimum: -1.5, exclusiveMaximum: -0.25 },
      ['-1.5', '-1', '-0.250001', '-0.3'],
      ['-0.25', '0', '-1.6', '-0', '-0.2'],
    ],
    ['an enum', { enum: ['a"b', 1, null, { x: [1, 'y'] }] }, ['"a\\"b"', '1', 'null', '{"x":[1,"y"]}'], ['2', '"a"']],
    ['an enum with a type', { type: 'string', enum: ['a', 1, 'long'], maxLength: 2 }, ['"a"'], ['1', '"long"']],
    ['a constant', { const: 'x' }, ['"x"'], ['"y"']],
    [
      'a tuple',
      {
        type: 'array',
        prefixItems: [{ type: 'integer' }, { type: 'string' }],
        items: { type: 'null' },
        minItems: 1,
        maxItems: 3,
      },
      ['[1]', '[1,"a"]', '[1, "a", null]'],
      ['[]', '["a"]', '[1,"a",null,null]', '[1,null]'],
    ],
    ['an array without items', { type: 'array', maxItems: 0 }, ['[]'], ['[1]']],
    [
      'items in number',
      { type: 'array', items: { type: 'integer' }, minItems: 2, maxItems: 3 },
      ['[1,2]', '[1,2,3]'],
      ['[1]', '[1,2,3,4]', '[]'],
    ],
    [
      'additional properties',
      { type: 'object', properties: { a: { type: 'integer' } }, additionalProperties: { type: 'boolean' } },
      ['{}', '{"a":1}', '{"a":1,"b":true}', '{"ab":true,"":false}'],
      ['{"a":true}', '{"b":1}', '{"b":true,"a":true}'],
    ],
    [
      'names of properties',
      { type: 'object', propertyNames: { pattern: '^k[0-9]$' }, additionalProperties: { type: 'null' } },
      ['{}', '{"k1":null,"k2":null}'],
      ['{"x":null}'],
    ],
    [
      'names from a list',
      {
        type: 'object',
        propertyNames: { enum: ['x', 'y'] },
        additionalProperties: { type: 'integer' },
        required: ['y'],
      },
      ['{"y":1}', '{"y":1,"x":2}'],
      ['{"x":1}', '{"z":1}'],
    ],
    [
      'numbers of properties',
      {
        type: 'object',
        properties: { a: { const: 1 }, b: { const: 1 }, c: { const: 1 } },
        additionalProperties: false,
        minProperties: 1,
        maxProperties: 2,
      },
      ['{"a":1}', '{"b":1,"c":1}'],
      ['{}', '{"a":1,"b":1,"c":1}'],
    ],
    [
      'anyOf',
      {
        anyOf: [
          { type: 'string', maxLength: 1 },
          { type: 'integer', maximum: 5, minimum: 0 },
        ],
      },
      ['"a"', '5'],
      ['"ab"', '6'],
    ],
    [
      'anyOf beside properties',
      {
        type: 'object',
        properties: { a: { type: 'integer' } },
        anyOf: [{ required: ['a'] }, { properties: { b: { const: 2 } }, required: ['b'] }],
        additionalProperties: true,
      },
      ['{"a":1}', '{"a":1,"b":2}', '{"b":2}'],
      ['{}', '{"b":3}'],
    ],
    [
      'oneOf by a constant',
      {
        oneOf: [
          {
            type: 'object',
            properties: { k: { const: 'a' }, x: { type: 'integer' } },
            required: ['k'],
            additionalProperties: false,
          },
          { type: 'object', properties: { k: { const: 'b' } }, required: ['k'], additionalProperties: false },
        ],
      },
      ['{"k":"a","x":1}', '{"k":"b"}'],
      ['{"k":"b","x":1}', '{}'],
    ],
    [
      'allOf',
      {
        allOf: [
          { type: 'object', properties: { a: { type: 'number', minimum: 0 } }, required: ['a'] },
          { properties: { a: { type: 'integer', maximum: 3 } }, additionalProperties: { type: 'null' } },
        ],
      },
      ['{"a":3}', '{"a":0,"b":null}'],
      ['{"a":0.5}', '{"a":4}', '{"a":1,"b":1}'],
    ],
    [
      'a reference with more',
      { $ref: '#/$defs/s', maxLength: 2, $defs: { s: { type: 'string', minLength: 1 } } },
      ['"ab"', '"a"'],
      ['""', '"abc"'],
    ],
    ['an anchor', { $ref: '#here', $defs: { s: { $anchor: 'here', const: 1 } } }, ['1'], ['2']],
    [
      'escapes',
      { type: 'string', maxLength: 2 },
      ['"\\n\\u00e9"', '"\\uD83D\\uDE00"', '"😀é"', '"\\/"'],
      ['"\n"', '"\\uD83D"', '"abc"', '"\\x"'],
    ],
    ['a pattern anywhere', { type: 'string', pattern: 'b+' }, ['"b"', '"abba"', '"\\"b"'], ['"a"', '""']],
    ['a pattern with escapes', { type: 'string', pattern: '^"\\\\\\n$' }, ['"\\"\\\\\\n"'], ['"a"']],
    [
      'a pattern with looks ahead',
      { type: 'string', pattern: '^(?!a)(?=.*z)[a-z]{2}$' },
      ['"zz"', '"bz"', '"za"'],
      ['"az"', '"bb"', '"z"'],
    ],
    [
      'a pattern and lengths',
      { type: 'string', pattern: '^(ab)*$', minLength: 3, maxLength: 6 },
      ['"abab"', '"ababab"'],
      ['"ab"', '""'],
    ],
    [
      'a class of Unicode',
      { type: 'string', pattern: '^\\p{Lu}\\p{Ll}+$' },
      ['"Ärger"', '"Οδος"'],
      ['"ärger"', '"A1"'],
    ],
    ['no type named', { properties: { a: { minLength: 2, type: 'string' } } }, ['{"a":"xy"}', '{}'], ['{"a":"x"}']],
    [
      'a format of their own with its pattern',
      { type: 'string', format: 'starts_with', pattern: '^ab.*' },
      ['"abc"'],
      ['"b"'],
    ],
    ['null and text', { type: ['string', 'null'] }, ['null', '""'], ['1']],
  ])('%s', (_name, schema, valid, others) => {
    const tokens = tokensOf(schema);
    const validate = validatorOf(schema);
    for (const text of valid) {
      expect([text, matches(tokens, text)]).toEqual([text, true]);
      expect([text, validate(JSON.parse(text))]).toEqual([text, true]);
    }
    for (const text of others) expect([text, matches(tokens, text)]).toEqual([text, false]);
    checkSamples(schema, 3);
  });

  test.each([...formats.keys()])('format %s is what ajv-formats takes for it', (format) => {
    expect(checkSamples({ type: 'string', format }, 7, 40)).toBeGreaterThan(20);
  });

  test.each([
    ['date', '2024-12-31'],
    ['date-time', '2024-02-28T23:59:59.123+01:00'],
    ['email', 'ada.lovelace@mail.example.com'],
    ['uuid', '123e4567-e89b-12d3-a456-426614174000'],
    ['ipv4', '192.168.0.255'],
    ['ipv6', '2001:db8::1'],
    ['uri', 'https://example.com/a/b?c=d#e'],
    ['duration', 'P1Y2M3DT4H'],
  ])('format %s has %s', (format, text) => {
    expect([format === 'duration', matches(tokensOf({ type: 'string', format }), JSON.stringify(text))]).toEqual([
      format === 'duration',
      format !== 'duration',
    ]);
  });

  test.each<[unknown, string]>([
    [{ type: 'object', properties: { a: { not: {} } } }, '#/properties/a/not'],
    [{ if: {} }, '#/if'],
    [{ type: 'array', uniqueItems: true }, '#/uniqueItems'],
    [{ type: 'array', contains: {} }, '#/contains'],
    [{ type: 'object', patternProperties: {} }, '#/patternProperties'],
    [{ type: 'object', dependentRequired: {} }, '#/dependentRequired'],
    [{ type: 'number', multipleOf: 0.1 }, '#/multipleOf'],
    [{ type: 'string', format: 'color' }, '#/format'],
    [{ type: 'string', format: 'iri', pattern: 'a' }, '#/format'],
    [{ type: 'string', pattern: '(a)\\1' }, '#/pattern'],
    [{ type: 'string', pattern: 'a\\b' }, '#/pattern'],
    [{ type: 'string', pattern: '(' }, '#/pattern'],
    [{ type: 'string', pattern: 'a(?=b)' }, '#/pattern'],
    [{ $ref: 'https://example.com/x' }, '#/$ref'],
    [{ $ref: '#/$defs/none' }, '#/$ref'],
    [{ $ref: '#/%' }, '#/$ref'],
    [{ $defs: { a: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }, '#/$defs/a'],
    [{ $defs: { a: { anyOf: [{ $ref: '#/$defs/a' }, { type: 'null' }] } }, $ref: '#/$defs/a' }, '#/$defs/a'],
    [{ oneOf: [{ type: 'string' }, { type: 'string', maxLength: 3 }] }, '#/oneOf'],
    [{ oneOf: [{ type: 'integer' }, { type: 'number' }] }, '#/oneOf'],
    [{ type: 'object', properties: { a: { oneOf: [true, { $ref: '#' }] } }, required: ['a'] }, '#/properties/a/oneOf'],
    [{ anyOf: [] }, '#/anyOf'],
    [{ type: 'text' }, '#/type'],
    [{ type: 'object', properties: { a: 1 } }, '#/properties/a'],
    [{ type: 'object', required: 'a' }, '#/required'],
    [{ type: 'object', minProperties: 3 }, '#/minProperties'],
    [{ minimum: '1' }, '#/minimum'],
    [{ maxLength: -1 }, '#/maxLength'],
    [{ unknownKeyword: 1 }, '#/unknownKeyword'],
    [{ allOf: [{ type: 'string' }, { type: 'null' }] }, '#'],
    [{ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }, '#'],
    [{ type: 'integer', minimum: 3, maximum: 2 }, '#'],
    [false, '#'],
    [null, '#'],
    ['{}', '#'],
  ])('%j is refused at %s', (schema, field) => {
    expect(() => jsonSchemaGrammar(schema as JsonSchema)).toThrow(expect.objectContaining({ code: 'format', field }));
  });

  test('what is too large is refused', () => {
    const refusal = expect.objectContaining({ code: 'capacity' });
    expect(() => jsonSchemaGrammar({ type: 'string', pattern: '^(a|b)*a(a|b){30}$' })).toThrow(refusal);
    expect(() => jsonSchemaGrammar({ type: 'string', pattern: '^(a{1000}){1000}$' })).toThrow(refusal);
    const branch = { anyOf: Array.from({ length: 40 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'null' } } })) };
    expect(() => jsonSchemaGrammar({ type: 'object', allOf: [branch, branch, branch] })).toThrow(refusal);
  });

  test('one blank between parts, by default', () => {
    const tokens = tokensOf(person, 'single');
    expect(matches(tokens, '{"name": "x","tags": [ "a", "b" ]}')).toBe(true);
    expect(matches(tokens, '{"name":  "x","tags":[]}')).toBe(false);
    expect(matches(tokens, '{"name":\n"x","tags":[]}')).toBe(false);
  });

  test('without blanks there is one way to write a value', () => {
    const tokens = tokensOf(person, 'none');
    expect(matches(tokens, '{"name":"x","tags":["a","b"]}')).toBe(true);
    expect(matches(tokens, '{"name": "x","tags":[]}')).toBe(false);
  });
});

/** Schemas of what is supported, with references to themselves. */
const schemas = fc.letrec<{ schema: JsonSchema }>((tie) => {
  const small = fc.integer({ min: 0, max: 3 });
  const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });
  const clean = <T extends object>(record: T): T =>
    Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)) as T;
  const number = fc.oneof(
    fc.integer({ min: -300, max: 300 }),
    fc.integer({ min: -5000, max: 5000 }).map((value) => value / 16),
  );
  return {
    schema: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom<JsonSchema>(
        true,
        { type: 'null' },
        { type: 'boolean' },
        { type: ['string', 'null'] },
        { enum: ['a', 1.5, null, [1]] },
        { $ref: '#/$defs/self' },
      ),
      fc
        .record({
          type: fc.constantFrom('integer', 'number'),
          minimum: maybe(number),
          maximum: maybe(number),
          exclusiveMinimum: maybe(number),
          exclusiveMaximum: maybe(number),
        })
        .map(clean),
      fc
        .record({ type: fc.constant('integer'), multipleOf: fc.constantFrom(2, 7, 25), minimum: maybe(number) })
        .map(clean),
      fc
        .record({
          type: fc.constant('string'),
          minLength: maybe(small),
          maxLength: maybe(small),
          pattern: maybe(fc.constantFrom('^[a-c]*$', 'a', '^(?!b)', '[^x]$', '^\\w{1,2}\\s?', 'é|"')),
          format: maybe(fc.constantFrom('date', 'ipv4')),
        })
        .map(clean),
      fc
        .record({
          type: fc.constant('array'),
          items: maybe(tie('schema')),
          prefixItems: maybe(fc.array(tie('schema'), { maxLength: 2, minLength: 1 })),
          minItems: maybe(small),
          maxItems: maybe(small),
        })
        .map(clean),
      fc
        .record({
          type: fc.constant('object'),
          properties: maybe(fc.dictionary(fc.constantFrom('a', 'b', 'é"'), tie('schema'), { maxKeys: 3 })),
          required: maybe(fc.uniqueArray(fc.constantFrom('a', 'b', 'c'))),
          additionalProperties: maybe(tie('schema')),
          maxProperties: maybe(small),
          minProperties: maybe(fc.integer({ min: 0, max: 1 })),
        })
        .map(clean),
      fc.array(tie('schema'), { minLength: 1, maxLength: 2 }).map((anyOf) => ({ anyOf })),
      fc.array(tie('schema'), { minLength: 1, maxLength: 2 }).map((allOf) => ({ allOf })),
      fc.array(tie('schema'), { minLength: 2, maxLength: 2 }).map((oneOf) => ({ oneOf })),
    ) as fc.Arbitrary<JsonSchema>,
  };
}).schema;

describe('random schemas', () => {
  test('texts under the mask are valid by ajv, or the schema is refused with its place', () => {
    let numEnded = 0;
    let numRefused = 0;
    fc.assert(
      fc.property(
        schemas,
        schemas.filter((self) => typeof self !== 'object' || !('$ref' in self)),
        fc.nat(),
        (schema, self, seed) => {
          const whole = typeof schema === 'object' ? { ...schema, $defs: { self } } : schema;
          try {
            numEnded += checkSamples(whole, seed, 4);
          } catch (error) {
            const { code, field } = error as { code?: string; field?: string };
            if (code !== 'format' && code !== 'capacity') throw error;
            if (code === 'format') expect(field).toMatch(/^#/);
            numRefused++;
          }
        },
      ),
      { numRuns: 200 },
    );
    expect(numEnded).toBeGreaterThan(150);
    expect(numRefused).toBeLessThan(160);
  });

  test('any JSON value is a schema or a typed error', () => {
    const keyword = fc.constantFrom(
      'type',
      'enum',
      'const',
      'properties',
      'items',
      'prefixItems',
      'required',
      '$ref',
      'anyOf',
      'oneOf',
      'allOf',
      'pattern',
      'format',
      'minimum',
      'maxLength',
      'multipleOf',
      '$anchor',
      'additionalProperties',
      'propertyNames',
      '__proto__',
      'not',
    );
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { depthSize: 'small' },
        fc.jsonValue({ maxDepth: 1 }),
        fc.constantFrom('string', 'object', '#', '#/items', 'date', '^a'),
        fc.array(tie('value'), { maxLength: 2 }),
        fc.dictionary(keyword, tie('value'), { maxKeys: 3 }),
      ),
    })).value;
    fc.assert(
      fc.property(value, (schema) => {
        try {
          tokensOf(schema as JsonSchema)
            .start()
            .mask();
        } catch (error) {
          if (!['format', 'capacity'].includes((error as { code?: string }).code ?? '')) throw error;
        }
      }),
      { numRuns: 2000 },
    );
  });
});
