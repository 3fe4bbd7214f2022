/** Arguments of tools are objects, whatever the schemas of their parameters say. */
import { demoModelUrl } from '@winnow/demo-model';
import {
  createTokenGrammar,
  createTokenTrie,
  type Grammar,
  type GrammarMatcher,
  type JsonSchema,
} from '@winnow/grammar';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadModel, prepareChat, type ChatTurn, type Model } from '../../src/index.js';

let model: Model;
beforeAll(async () => {
  model = await loadModel(demoModelUrl, { context: 256, threads: 1 });
});
afterAll(() => model.dispose());

function prepare(parameters: JsonSchema): Promise<ChatTurn> {
  const tools = [{ name: 'a', parameters }];
  return prepareChat(model, { messages: [{ role: 'user', content: 'Go' }], tools, toolChoice: 'required' });
}

const bytes = createTokenTrie({ vocabSize: 128, tokenBytes: (id) => Uint8Array.of(id) });

/** Whether a call with these arguments matches. */
function accepts(matcher: GrammarMatcher, values: string): boolean {
  const text = `<tool_call>\n{"name": "a", "arguments": ${values}}\n</tool_call>`;
  return [...new TextEncoder().encode(text)].every((byte) => matcher.accept(byte)) && matcher.canEnd;
}

const definitions = { text: { type: 'string' }, point: { type: 'object', required: ['x'] } };
const oldDraft = 'http://json-schema.org/draft-07/schema#';

test.each<[string, JsonSchema, string]>([
  ['a type', { type: 'string' }, '#/type'],
  ['types', { type: ['string', 'null'] }, '#/type'],
  ['a type that does not exist', { type: ['object', 'text'] }, '#/allOf/0/type'],
  ['a reference', { $ref: '#/definitions/text', definitions }, '#'],
  ['a reference of an old draft', { $schema: oldDraft, $ref: '#/definitions/text', definitions }, '#'],
])('parameters without objects, or with an invalid type, are refused: %s', async (_name, parameters, field) => {
  const refusal = expect.objectContaining({ code: 'format', source: 'parameters of tool a', field }) as unknown;
  await expect(prepare(parameters)).rejects.toThrow(refusal as Error);
});

test.each<[string, JsonSchema]>([
  ['no type', { required: ['x'] }],
  ['null as well', { type: ['object', 'null'], required: ['x'] }],
  ['nullable', { type: 'object', nullable: true, required: ['x'] }],
  ['a reference', { $ref: '#/definitions/point', definitions }],
  ['a reference of an old draft', { $schema: oldDraft, $ref: '#/definitions/point', definitions }],
])('arguments are an object: %s', async (_name, parameters) => {
  const { options } = await prepare(parameters);
  const grammar = createTokenGrammar({ grammar: options.grammar as Grammar, trie: bytes });
  const accepted = ['{"x": 1}', '{}', 'null', '"x"'].map((values) => accepts(grammar.start(), values));
  expect(accepted).toEqual([true, false, false, false]);
});

test('arguments that are too large as an automaton are refused with their place', async () => {
  const { chatTemplate, tokenizer, config } = model;
  const parameters = { properties: { a: { const: 'x'.repeat(260_000) } } };
  const request = { messages: [{ role: 'user', content: 'Go' }], tools: [{ name: 'large', parameters }] };
  const refusal = { code: 'capacity', source: 'parameters of tool large', field: '#/properties/a', unit: 'states' };
  await expect(prepareChat({ chatTemplate, tokenizer, config }, request)).rejects.toMatchObject(refusal);
});
