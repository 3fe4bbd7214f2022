import { describe, expect, test } from 'vitest';
import type { JsonSchema } from '../../src/index.js';
import { checkSamples, conditional, matches, tokensOf } from '../schema-checks.js';

describe('negation', () => {
  const kinds = [
    { properties: { kind: { const: 'a' } } },
    { properties: { kind: { const: 'b' }, x: { type: 'null' } } },
  ];
  test.each<[JsonSchema, readonly string[], readonly string[]]>([
    [{ oneOf: [{ type: 'string' }, { type: 'string', maxLength: 3 }] }, ['"abcd"'], ['"abc"', '""']],
    [{ oneOf: [{ minimum: 3 }, { type: 'string' }], type: ['integer', 'string'] }, ['3'], ['2', '"a"']],
    [
      { type: 'object', oneOf: [{ required: ['a'] }, { required: ['b'] }] },
      ['{"a":1}', '{"b":1}'],
      ['{}', '{"a":1, "b":2}'],
    ],
    [{ type: 'object', oneOf: kinds }, ['{"kind":"a"}', '{"kind":"b","x":null}'], ['{"kind":"c"}', '{}']],
    [{ type: 'integer', oneOf: [{ maximum: 5 }, { minimum: 3 }] }, ['2', '6'], ['3', '4', '5']],
    [{ oneOf: [{ enum: [1, 'a', null] }, { enum: ['a', 2] }] }, ['1', 'null', '2'], ['"a"', '3']],
    [{ type: 'object', properties: { a: { oneOf: [true, { $ref: '#' }] } } }, ['{"a":1}', '{}'], ['{"a":{}}']],
    [{ type: 'string', not: { enum: ['a', 'bc'] } }, ['""', '"ab"', '"b"'], ['"a"', '"bc"']],
    [{ type: ['string', 'null'], not: { type: 'null' } }, ['"a"'], ['null']],
    [{ type: 'string', not: { pattern: '^[a-c]' } }, ['""', '"da"'], ['"a"', '"cd"']],
    [{ type: 'object', not: { required: ['a', 'b'] } }, ['{}', '{"a":1}', '{"b":1}'], ['{"a":1, "b":1}']],
    [{ type: 'object', properties: { a: { not: {} } } }, ['{}', '{"b":1}'], ['{"a":1}']],
    [{ type: 'array', items: { type: 'integer' }, not: { maxItems: 1 } }, ['[1, 2]'], ['[]', '[1]']],
    [
      {
        properties: { a: { type: 'boolean' } },
        required: ['a'],
        if: { properties: { a: { const: true } } },
        else: { required: ['b'] },
      },
      ['{"a":true}', '{"a":false, "b":1}'],
      ['{"a":false}', '{}'],
    ],
    [conditional({}, { const: 1 }, false), ['2', '0.5', '-1', '1.5', '"a"'], ['1', '1.0', '1e0']],
    [{ type: 'integer', minimum: 0, not: { enum: [3, 0, 'a'] } }, ['1', '2', '4'], ['3', '0', '-1']],
    [
      conditional({ type: 'integer' }, { minimum: 10 }, { multipleOf: 5 }, { minimum: 3 }),
      ['10', '15', '3', '9'],
      ['11', '2'],
    ],
  ])('%j', (schema, accepted, refused) => {
    const tokens = tokensOf(schema);
    for (const text of accepted) expect([text, matches(tokens, text)]).toEqual([text, true]);
    for (const text of refused) expect([text, matches(tokens, text)]).toEqual([text, false]);
    expect(checkSamples(schema, 5)).toBeGreaterThan(0);
  });
});
