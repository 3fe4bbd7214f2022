import { testCoverage } from '@winnow/test-utils';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JsonSchema } from '../../src/index.js';
import { checkSamples, conditional, tokensOf } from '../schema-checks.js';

type Arbitrary = fc.Arbitrary<unknown>;

const small = fc.integer({ min: 0, max: 3 });
const number = fc.oneof(
  fc.integer({ min: -300, max: 300 }),
  fc.integer({ min: -5000, max: 5000 }).map((value) => value / 16),
);

function maybe<T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> {
  return fc.option(value, { nil: undefined });
}

/** A schema with the keywords that are defined. */
function schemaOf(keywords: Record<string, Arbitrary>): Arbitrary {
  return fc
    .record(keywords)
    .map((record) => Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)));
}

const constants: Arbitrary = fc.constantFrom<JsonSchema>(
  true,
  { type: 'null' },
  { type: 'boolean' },
  { type: ['string', 'null'] },
  { enum: ['a', 1.5, null, [1]] },
  { $ref: '#/$defs/self' },
);

const numbers: readonly Arbitrary[] = [
  schemaOf({
    type: fc.constantFrom('integer', 'number'),
    minimum: maybe(number),
    maximum: maybe(number),
    exclusiveMinimum: maybe(number),
    exclusiveMaximum: maybe(number),
  }),
  schemaOf({ type: fc.constant('integer'), multipleOf: fc.constantFrom(2, 7, 25), minimum: maybe(number) }),
];

const texts = schemaOf({
  type: fc.constant('string'),
  minLength: maybe(small),
  maxLength: maybe(small),
  pattern: maybe(fc.constantFrom('^[a-c]*$', 'a', '^(?!b)', '[^x]$', '^\\w{1,2}\\s?', 'é|"')),
  format: maybe(fc.constantFrom('date', 'ipv4')),
});

function arrays(item: Arbitrary): Arbitrary {
  return schemaOf({
    type: fc.constant('array'),
    items: maybe(item),
    prefixItems: maybe(fc.array(item, { maxLength: 2, minLength: 1 })),
    minItems: maybe(small),
    maxItems: maybe(small),
  });
}

function objects(value: Arbitrary): Arbitrary {
  return schemaOf({
    type: fc.constant('object'),
    properties: maybe(fc.dictionary(fc.constantFrom('a', 'b', 'é"'), value, { maxKeys: 3 })),
    required: maybe(fc.uniqueArray(fc.constantFrom('a', 'b', 'c'))),
    additionalProperties: maybe(value),
    patternProperties: maybe(fc.dictionary(fc.constantFrom('^a', 'b|c', '"$'), value, { maxKeys: 2 })),
    dependentRequired: maybe(fc.constantFrom({ a: ['b'] }, { b: ['c'], c: ['a'] })),
    dependentSchemas: maybe(value.map((schema) => ({ b: schema }))),
    maxProperties: maybe(small),
    minProperties: maybe(fc.integer({ min: 0, max: 1 })),
  });
}

/** Schemas of supported keywords, with recursive references. */
const schemas = fc.letrec<{ schema: JsonSchema }>((tie) => {
  const schema = tie('schema');
  const combinations = [
    fc.array(schema, { minLength: 1, maxLength: 2 }).map((anyOf) => ({ anyOf })),
    fc.array(schema, { minLength: 1, maxLength: 2 }).map((allOf) => ({ allOf })),
    fc.array(schema, { minLength: 2, maxLength: 2 }).map((oneOf) => ({ oneOf })),
    fc.tuple(schema, schema).map(([one, not]) => ({ allOf: [one], not })),
    fc.tuple(schema, schema, schema).map((parts) => conditional({}, ...parts)),
  ];
  const all = [constants, ...numbers, texts, arrays(schema), objects(schema), ...combinations];
  return { schema: fc.oneof({ depthSize: 'small' }, ...all) as fc.Arbitrary<JsonSchema> };
}).schema;

test('texts under the mask are valid by ajv, or the schema is rejected with its place', () => {
  const numRuns = testCoverage === 'full' ? 200 : 80;
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
    { numRuns, seed: 11 },
  );
  expect(numEnded).toBeGreaterThan(0.75 * numRuns);
  expect(numRefused).toBeLessThan(0.8 * numRuns);
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
    { numRuns: testCoverage === 'full' ? 2000 : 500, seed: 12 },
  );
});
