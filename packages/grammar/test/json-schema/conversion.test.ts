import { describe, expect, test } from 'vitest';
import type { JsonSchema } from '../../src/index.js';
import { checkSamples, matches, tokensOf, validatorOf } from '../schema-checks.js';

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

test.each<[string, JsonSchema, string[], string[]]>([
  [
    'an object',
    person,
    [
      '{"name":"é","tags":[]}',
      '{"name": "Bo", "age": 130, "tags": ["a", "bc"], "home": {"city": "Ulm"}}',
      '{\n  "name": "x",\n  "tags": [],\n  "home": null\n}',
      '{"home":null,"tags":[],"age":3,"name":"x"}',
    ],
    [
      '{"tags":[],"tags":[],"name":"x"}',
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
    'anyOf with properties',
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
  ['a class of Unicode', { type: 'string', pattern: '^\\p{Lu}\\p{Ll}+$' }, ['"Ärger"', '"Οδος"'], ['"ärger"', '"A1"']],
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

test.each<[JsonSchema, readonly string[], readonly string[]]>([
  [{ type: 'number', multipleOf: 0.01 }, ['19.99', '-3', '0.5', '0'], ['0.001', '1e2']],
  [{ type: 'number', multipleOf: 0.25, minimum: 1 }, ['1.25', '2', '1.5'], ['1.3', '0.25', '1.255']],
  [{ type: 'integer', multipleOf: 2.5 }, ['5', '-10'], ['2', '7.5']],
  [{ type: 'integer', multipleOf: 864 }, ['1728'], ['865']],
  [{ type: 'number', multipleOf: 1e9 }, ['3000000000', '0'], ['300000000']],
  [{ type: 'integer', multipleOf: 3 }, ['8999999999999997', '-3', '0'], ['9007199254740993', '4']],
  [{ type: 'integer', multipleOf: 3, minimum: -5 }, ['-3', '0', '300'], ['-6', '4']],
  [{ type: 'number', minimum: 0 }, ['0.123456789012', '1e-7', '12.5', '1e+21'], ['-1', '-0.1']],
  [{ type: 'number', exclusiveMaximum: 0.3 }, ['0.29', '0.2999981', '-7.1234567'], ['0.3', '0.30000001']],
  [{ type: 'number', maximum: 0.3 }, ['0.3', '0.2999999'], ['0.300000001', '1e3']],
  [{ type: 'integer' }, ['1e+30', '1.2345678910111214e+52', '100000000000000000000'], ['1.5', '1e-2']],
  [{ type: 'integer', format: 'int32' }, ['2147483647', '-2147483648'], ['2147483648', '-2147483649']],
  [{ type: 'array', contains: { const: 0 } }, ['[0]', '[2, 0, "a"]'], ['[]', '[2]']],
  [
    { type: 'array', items: { type: 'integer' }, contains: { minimum: 5 }, minContains: 2, minItems: 3, maxItems: 4 },
    ['[1, 5, 6]', '[5, 6, 7, 8]', '[7, 1, 7, 2]'],
    ['[5, 6]', '[1, 2, 6]', '[5, 6, 1, 1, 1]', '[5, 6, "a"]'],
  ],
  [
    { allOf: [{ contains: { type: 'null' } }, { contains: { type: 'string' } }], type: 'array' },
    ['["a", null]'],
    ['[null]'],
  ],
  [
    { type: 'array', items: { enum: ['a', 'b', 1] }, uniqueItems: true, minItems: 1, maxItems: 2 },
    ['["b", "a"]', '[1]'],
    ['[]', '["a", "a"]', '["a", "b", 1]', '["c"]'],
  ],
  [
    { type: 'array', items: { type: ['boolean', 'null'] }, uniqueItems: true },
    ['[]', '[null, true, false]'],
    ['[true, true]'],
  ],
  [{ enum: [[1, 1], [1, 2], [3]], uniqueItems: true, contains: { const: 1 } }, ['[1,2]'], ['[1,1]', '[3]']],
  [{ type: 'integer', multipleOf: 1e-8 }, ['12391239123', '-7', '0'], ['0.5']],
  [{ type: 'integer', multipleOf: 0.5, minimum: 3 }, ['3', '123456789012345'], ['2', '3.5']],
  [
    { enum: [{ a: 1, b: [{ c: 2, d: null }] }, {}] },
    ['{"b": [ {"d": null, "c": 2}], "a": 1}', '{"a":1,"b":[{"c":2,"d":null}]}', '{}'],
    ['{"a":1}', '{"a":1,"b":[{"c":2}]}', '{"a":1,"a":1,"b":[{"c":2,"d":null}]}'],
  ],
  [{ type: 'string', nullable: true, maxLength: 1 }, ['null', '"a"'], ['"ab"', '1']],
])('%j has exactly these of some texts', (schema, valid, invalid) => {
  const tokens = tokensOf(schema);
  for (const text of valid) expect([text, matches(tokens, text)]).toEqual([text, true]);
  for (const text of invalid) expect([text, matches(tokens, text)]).toEqual([text, false]);
  expect(checkSamples(schema, 11)).toBeGreaterThan(0);
});

test('one space between parts by default', () => {
  const tokens = tokensOf(person, 'single');
  expect(matches(tokens, '{"name": "x","tags": [ "a", "b" ]}')).toBe(true);
  expect(matches(tokens, '{"name":  "x","tags":[]}')).toBe(false);
  expect(matches(tokens, '{"name":\n"x","tags":[]}')).toBe(false);
});

test('without spaces there is one spelling of a value', () => {
  const tokens = tokensOf(person, 'none');
  expect(matches(tokens, '{"name":"x","tags":["a","b"]}')).toBe(true);
  expect(matches(tokens, '{"name": "x","tags":[]}')).toBe(false);
});

test('constants that violate a pattern are dropped', () => {
  const tokens = tokensOf({ enum: ['ab', 'abc', 'b'], pattern: '^ab$' });
  expect(['"ab"', '"abc"', '"b"'].map((text) => matches(tokens, text))).toEqual([true, false, false]);
});

test('oneOf by type, where other keywords leave alternatives of several types', () => {
  const tokens = tokensOf({ oneOf: [{ type: 'string' }, { type: ['integer', 'null'] }, { type: 'object' }] });
  expect(['"a"', '5', 'null', '{}', 'true'].map((text) => matches(tokens, text))).toEqual([
    true,
    true,
    true,
    true,
    false,
  ]);
});

test('large numbers: 64-bit identifiers, and only exact ones for multipleOf', () => {
  const free = ['9007199254740993', '234567890123456800', '-9223372036854775808'];
  for (const type of ['integer', 'number']) {
    const tokens = tokensOf({ type });
    for (const text of free) expect([text, matches(tokens, text)]).toEqual([text, true]);
    expect(matches(tokens, '1'.repeat(22))).toBe(false);
  }
  const positive = tokensOf({ type: 'integer', minimum: 1 });
  expect(matches(positive, '1234567890123456789')).toBe(true);
  const even = tokensOf({ type: 'integer', multipleOf: 2 });
  expect(matches(even, '123456789012346')).toBe(true);
  expect(matches(even, '9007199254740994')).toBe(false);
});

describe('annotations', () => {
  test.each<[JsonSchema, readonly string[], readonly string[]]>([
    [{ type: 'integer', unknownKeyword: { type: 'string' }, links: [1], readonly: true }, ['3'], ['"a"']],
    [{ type: 'string', format: 'color' }, ['"red"'], ['1']],
    [{ type: 'string', format: 'color', pattern: '^[a-z]+$' }, ['"red"'], ['"1"']],
    [{ else: false, minContains: 3, type: 'null' }, ['null'], ['1']],
  ])('%j', (schema, accepted, refused) => {
    const tokens = tokensOf(schema);
    for (const text of accepted) expect([text, matches(tokens, text)]).toEqual([text, true]);
    for (const text of refused) expect([text, matches(tokens, text)]).toEqual([text, false]);
  });
});

describe('undeclared types', () => {
  test.each<[JsonSchema, readonly string[], readonly string[]]>([
    [{ properties: { a: { type: 'null' } } }, ['{}', '{"a":null}', '1', '[[2]]'], ['{"a":1}']],
    [{ allOf: [{ properties: { a: { type: 'null' } } }, { type: 'array', maxItems: 1 }] }, ['[]'], ['{}', '[1, 2]']],
    [{ allOf: [{ minLength: 1 }, { minimum: 3 }] }, ['"a"', '3', 'null'], ['""', '2']],
    [{ properties: { a: true }, enum: [1, { a: 1 }] }, ['1', '{"a":1}'], ['2']],
    [{ allOf: [{ minLength: 1 }, { type: ['string', 'null'] }] }, ['"a"', 'null'], ['""', '3']],
  ])('%j', (schema, accepted, refused) => {
    const tokens = tokensOf(schema);
    for (const text of accepted) expect([text, matches(tokens, text)]).toEqual([text, true]);
    for (const text of refused) expect([text, matches(tokens, text)]).toEqual([text, false]);
    checkSamples(schema, 5);
  });
});

describe('patternProperties and dependent properties', () => {
  const patterns = {
    type: 'object',
    properties: { a1: { type: 'integer' } },
    patternProperties: { '^a': { type: ['integer', 'string'], minimum: 3 }, '1$': { type: ['integer', 'null'] } },
    additionalProperties: { type: 'boolean' },
  };
  test.each<[JsonSchema, readonly string[], readonly string[]]>([
    [
      patterns,
      ['{}', '{"a1":3}', '{"a2":"x"}', '{"b1":null}', '{"a11":4}', '{"b":true}', '{"a1":4, "b":true, "ab":5}'],
      ['{"a1":"x"}', '{"a1":2}', '{"a2":null}', '{"b1":true}', '{"a11":null}', '{"b":3}'],
    ],
    [{ ...patterns, additionalProperties: false }, ['{"a1":3, "a2":"x", "b1":1}'], ['{"b":true}']],
    [
      { allOf: [patterns, { patternProperties: { '2$': { const: 'x' } }, additionalProperties: { maximum: 5 } }] },
      ['{"a1":4, "a2":"x"}', '{"b":true}'],
      ['{"a1":6}', '{"a2":"y"}', '{"a2":4}'],
    ],
    [{ patternProperties: { '^x-': true }, additionalProperties: false, required: ['x-a'] }, ['{"x-a":1}'], ['{}']],
    [
      { dependentRequired: { a: ['b', 'c'] }, properties: { a: true, b: true, c: true }, additionalProperties: false },
      ['{}', '{"b":1}', '{"a":1, "b":1, "c":1}'],
      ['{"a":1}', '{"a":1, "b":1}'],
    ],
    [
      {
        properties: { a: { type: 'null' }, b: { type: 'integer' } },
        dependencies: { a: { properties: { b: { minimum: 5 } }, required: ['b'] }, b: ['a'] },
        additionalProperties: false,
      },
      ['{}', '{"a":null, "b":5}'],
      ['{"a":null}', '{"a":null, "b":4}', '{"b":5}'],
    ],
    [{ type: ['object', 'null'], dependentSchemas: { a: false } }, ['null', '{"b":1}'], ['{"a":1}']],
  ])('%j', (schema, accepted, refused) => {
    const tokens = tokensOf(schema);
    for (const text of accepted) expect([text, matches(tokens, text)]).toEqual([text, true]);
    for (const text of refused) expect([text, matches(tokens, text)]).toEqual([text, false]);
    expect(checkSamples(schema, 5)).toBeGreaterThan(0);
  });
});
