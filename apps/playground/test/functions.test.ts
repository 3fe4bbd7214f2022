import { expect, test } from 'vitest';
import { exampleFunctions, parseFunctions } from '../page/state/tools/functions.js';

test('functions are read as they are and as OpenAI has them; without parameters they take none', () => {
  expect(parseFunctions(exampleFunctions)).toMatchObject([{ name: 'weather', parameters: { required: ['city'] } }]);
  expect(parseFunctions('[{"type":"function","function":{"name":"now","description":"The time"}}]')).toEqual([
    {
      name: 'now',
      description: 'The time',
      parameters: { type: 'object', properties: {}, additionalProperties: false },
    },
  ]);
  expect(parseFunctions(' ')).toEqual([]);
});

test.each([
  ['{', /no JSON/],
  ['{}', /array of functions/],
  ['[1]', /Function 1: expected an object/],
  ['[{"name":"a"},{"name":"b c"}]', /Function 2: expected a name of .* got "b c"/],
  ['[{"name":"a"},{"name":"a"}]', /Two functions have the name a/],
  ['[{"name":"a","description":1}]', /a text as description/],
  ['[{"name":"a","parameters":[]}]', /JSON schema as parameters/],
])('%s is an error that says what is wrong', (text, message) => {
  expect(() => parseFunctions(text)).toThrow(message);
});
