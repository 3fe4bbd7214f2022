import { describe, expect, test } from 'vitest';
import { jsonSchemaGrammar, type JsonSchema } from '../../src/index.js';

describe('rejected JSON schemas', () => {
  test.each<[unknown, string]>([
    [{ type: 'integer', not: { multipleOf: 3 } }, '#/not'],
    [{ not: true }, '#'],
    [{ not: 1 }, '#/not'],
    [{ if: 1, else: true }, '#/if'],
    [{ type: 'array', uniqueItems: true }, '#/uniqueItems'],
    [{ type: 'array', contains: {}, maxContains: 2 }, '#/contains'],
    [{ type: 'array', contains: {}, prefixItems: [true] }, '#/contains'],
    [{ type: 'object', patternProperties: { '(': true } }, '#/patternProperties/('],
    [{ type: 'object', dependentRequired: 1 }, '#/dependentRequired'],
    [{ type: 'object', dependentRequired: { a: [1] } }, '#/dependentRequired/a'],
    [{ type: 'number', multipleOf: 123_456_789 }, '#/multipleOf'],
    [{ type: 'number', multipleOf: 1e-30 }, '#/multipleOf'],
    [{ type: 'number', multipleOf: -2 }, '#/multipleOf'],
    [{ type: 'string', format: 3 }, '#/format'],
    [{ type: 'string', pattern: '(a)\\1' }, '#/pattern'],
    [{ type: 'string', pattern: 'a\\b' }, '#/pattern'],
    [{ type: 'string', pattern: '(' }, '#/pattern'],
    [{ type: 'string', pattern: 'a(?=b)' }, '#/pattern'],
    [{ $ref: 'https://example.com/x' }, '#/$ref'],
    [{ $ref: '#/$defs/none' }, '#/$ref'],
    [{ $ref: '#/%' }, '#/$ref'],
    [{ $defs: { a: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }, '#/$defs/a'],
    [{ $defs: { a: { anyOf: [{ $ref: '#/$defs/a' }, { type: 'null' }] } }, $ref: '#/$defs/a' }, '#/$defs/a'],
    [{ oneOf: [{ type: 'string' }, { type: 'string' }] }, '#/oneOf'],
    [{ oneOf: [{ type: 'integer' }, { type: 'number' }] }, '#/oneOf'],
    [{ anyOf: [] }, '#/anyOf'],
    [{ type: 'text' }, '#/type'],
    [{ type: 'object', properties: { a: 1 } }, '#/properties/a'],
    [{ type: 'object', required: 'a' }, '#/required'],
    [{ type: 'object', minProperties: 3 }, '#/minProperties'],
    [{ minimum: '1' }, '#/minimum'],
    [{ maxLength: -1 }, '#/maxLength'],
    [{ properties: { a: { unevaluatedProperties: false } } }, '#/properties/a/unevaluatedProperties'],
    [{ allOf: [{ type: 'string' }, { type: 'null' }] }, '#'],
    [{ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }, '#'],
    [{ type: 'integer', minimum: 3, maximum: 2 }, '#'],
    [false, '#'],
    [null, '#'],
    ['{}', '#'],
  ])('%j is rejected at %s', (schema, field) => {
    expect(() => jsonSchemaGrammar(schema as JsonSchema)).toThrow(expect.objectContaining({ code: 'format', field }));
  });

  test('schemas that are too large are rejected', () => {
    const refusal = expect.objectContaining({ code: 'capacity' });
    expect(() => jsonSchemaGrammar({ type: 'string', pattern: '^(a|b)*a(a|b){30}$' })).toThrow(refusal);
    expect(() => jsonSchemaGrammar({ type: 'string', pattern: '^(a{1000}){1000}$' })).toThrow(refusal);
    const branch = { anyOf: Array.from({ length: 40 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'null' } } })) };
    expect(() => jsonSchemaGrammar({ type: 'object', allOf: [branch, branch, branch] })).toThrow(refusal);
  });
});
