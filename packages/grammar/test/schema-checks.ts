/** Checks of schema grammars: texts by hand, and texts sampled under the mask and validated by ajv. */
import { createRng } from '@winnow/tensor';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { expect } from 'vitest';
import { createTokenGrammar, jsonSchemaGrammar, type JsonSchema, type TokenGrammar } from '../src/index.js';
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
  '"a":',
  '"b":',
  '"kind":',
  '123',
  '-1',
  '0.5',
  '\\u00',
  '\\ud83d\\ude00',
  'é',
  '😀',
]);

/** The grammar of a schema over multi-byte tokens. */
export function tokensOf(schema: JsonSchema, whitespace: 'single' | 'indented' | 'none' = 'indented'): TokenGrammar {
  const grammar = jsonSchemaGrammar(schema, { whitespace });
  return createTokenGrammar({ grammar, trie: vocabulary.trie, endTokens: [vocabulary.endToken] });
}

/** Whether the grammar accepts the whole text. */
export function matches(tokens: TokenGrammar, text: string): boolean {
  const matcher = tokens.start();
  return [...new TextEncoder().encode(text)].every((byte) => matcher.accept(byte)) && matcher.canEnd;
}

// 19.99 / 0.01 is 1998.9999999999998
const ajv = new Ajv2020({ strict: false, unicodeRegExp: true, logger: false, multipleOfPrecision: 10 });
(addFormats as unknown as (ajv: Ajv2020) => void)(ajv);

/** The same schema by ajv; undefined where code that ajv generates does not run ("items0 is not defined" in 8.20). */
export function validatorOf(schema: JsonSchema): (value: unknown) => boolean | undefined {
  const validate = ajv.compile(schema as never) as (value: unknown) => boolean;
  if (typeof schema === 'object') ajv.removeSchema(schema); // another one may have the same identifiers
  return (value) => {
    try {
      return validate(value);
    } catch (error) {
      if (error instanceof ReferenceError) return undefined;
      throw error;
    }
  };
}

/** Samples texts and validates them. @returns how many came to an end and were judged */
export function checkSamples(schema: JsonSchema, seed: number, count = 12): number {
  const rng = createRng(seed);
  const tokens = tokensOf(schema);
  const validate = validatorOf(schema);
  let numEnded = 0;
  for (let run = 0; run < count; run++) {
    const { text, isEnded } = sampleText(tokens.start(), vocabulary, () => rng.nextFloat(), 25, 400);
    if (!isEnded) continue;
    const isValid = validate(JSON.parse(text));
    if (isValid === undefined) continue;
    numEnded++;
    expect([schema, text, isValid]).toEqual([schema, text, true]);
  }
  return numEnded;
}

/** A schema with `if`, `then` and `else`. */
export function conditional(own: object, ...parts: readonly JsonSchema[]): JsonSchema {
  const keywords = ['if', 'then', 'else'];
  return { ...own, ...Object.fromEntries(parts.map((part, index) => [keywords[index] as string, part])) };
}
