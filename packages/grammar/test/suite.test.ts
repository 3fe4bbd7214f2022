/** The schemas of `suite`, in the form of the JSON-Schema-Test-Suite: `pnpm bench grammar --suite` reads them, too. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { JsonSchema } from '../src/index.js';
import { checkSamples, matches, tokensOf, validatorOf } from './schema-checks.js';

interface SuiteCase {
  readonly description: string;
  readonly schema: JsonSchema;
  readonly tests: readonly { readonly data: unknown; readonly valid: boolean }[];
}

const cases = JSON.parse(readFileSync(new URL('suite/schemas.json', import.meta.url), 'utf8')) as readonly SuiteCase[];

describe('our schemas compile, valid instances are accepted and invalid ones are not', () => {
  test.each(cases.map((one) => [one.description, one] as const))('%s', (_description, { schema, tests }) => {
    const validate = validatorOf(schema);
    const tokens = tokensOf(schema, 'single');
    for (const { data, valid } of tests) {
      expect([data, validate(data), matches(tokens, JSON.stringify(data))]).toEqual([data, valid, valid]);
    }
    checkSamples(schema, 3);
  });
});
