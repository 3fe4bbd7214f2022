/** JSON schemas: the tree, with keywords at any place. Schemas that compile constrain a few tokens. */
import { createTokenGrammar, jsonSchemaGrammar, type JsonSchema } from '@winnow/grammar';
import { mutateJsonText, type JsonTree } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { follow, trie } from '../token-grammar.ts';

const examples: readonly JsonTree[] = [
  {
    type: 'object',
    properties: { a: { type: 'string', maxLength: 5 }, b: { type: 'integer', minimum: 0 } },
    required: ['a'],
  },
  { $defs: { n: { type: 'object', properties: { next: { $ref: '#/$defs/n' } } } }, $ref: '#/$defs/n' },
  { type: 'array', items: { enum: ['x', 1, null] }, minItems: 1, maxItems: 4, uniqueItems: true },
  { anyOf: [{ const: 'a' }, { type: 'number', multipleOf: 0.1 }, { type: 'boolean' }], not: { const: true } },
  { type: 'string', format: 'date-time', pattern: '^[0-9]{4}', minLength: 4 },
  {
    allOf: [
      { properties: { a: true } },
      { patternProperties: { '^x-': { type: 'null' } }, additionalProperties: false },
    ],
  },
];
/** A literal with this keyword would be taken for a promise. */
const conditions = JSON.parse('{ "if": { "required": ["a"] }, "then": false }') as Record<string, JsonTree>;
const members: Readonly<Record<string, JsonTree>> = {
  ...conditions,
  type: ['string', 'null'],
  enum: [1, 'a', null],
  const: { a: [1] },
  minimum: -1e308,
  maximum: 1e20,
  exclusiveMinimum: 0.1,
  multipleOf: 1e-20,
  minLength: 3,
  maxLength: 20_000,
  pattern: '^(a+)+\\p{L}{5}$',
  format: 'uri',
  minItems: 3,
  maxItems: 1e9,
  prefixItems: [{ type: 'string' }],
  contains: { type: 'integer' },
  uniqueItems: true,
  required: ['a', 'z'],
  minProperties: 2,
  additionalProperties: { type: 'string' },
  patternProperties: { '.*': false },
  propertyNames: { maxLength: 2 },
  dependentRequired: { a: ['b'] },
  else: { type: 'array' },
  not: {},
  oneOf: [{ type: 'string' }, { minLength: 2 }],
  allOf: [{ $ref: '#' }],
  $ref: '#/$defs/n',
  $defs: { n: { allOf: [{ $ref: '#/$defs/n' }, { $ref: '#/$defs/n' }] } },
  nullable: true,
  unevaluatedProperties: false,
};

export async function createTarget(): Promise<Target> {
  return {
    examples: examples.map((schema) => bytesOf(JSON.stringify(schema))),
    mutate: (random, input) => bytesOf(mutateJsonText(random, textOf(input), members)),
    async run(input) {
      const schema = JSON.parse(textOf(input)) as JsonSchema;
      follow(createTokenGrammar({ grammar: jsonSchemaGrammar(schema), trie, endTokens: [256] }));
    },
  };
}
