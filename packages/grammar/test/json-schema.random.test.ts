import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JsonSchema } from '../src/index.js';
import { checkSamples, tokensOf } from './schema-checks.js';

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
