/**
 * The share of schemas of a test suite that compile, and of instances that their grammars classify correctly. Reads a folder with
 * the files of the JSON-Schema-Test-Suite or of JSONSchemaBench (maskbench/data); downloads nothing.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  createTokenGrammar,
  createTokenTrie,
  jsonSchemaGrammar,
  type JsonSchema,
  type TokenGrammar,
  type TokenTrie,
} from '@winnow/grammar';
import { WinnowError } from '@winnow/tensor';
import type { Figure } from '../harness/figure.js';

const suite = 'grammar';

export interface SuiteCase {
  readonly schema: JsonSchema;
  readonly tests: readonly { readonly data: unknown; readonly valid: boolean }[];
}

/** Counts over a suite. */
interface Counts {
  schemas: number;
  compiled: number;
  valid: number;
  refused: number;
  invalid: number;
  accepted: number;
}

export interface Vocabulary {
  readonly trie: TokenTrie;
  readonly endToken: number;
}

const bytes: Vocabulary = {
  trie: createTokenTrie({ vocabSize: 257, tokenBytes: (id) => (id < 256 ? Uint8Array.of(id) : undefined) }),
  endToken: 256,
};

export function* measureSchemaSuite(folder: string, say: (text: string) => void): Generator<Figure> {
  const counts: Counts = { schemas: 0, compiled: 0, valid: 0, refused: 0, invalid: 0, accepted: 0 };
  const times: number[] = [];
  for (const file of jsonFiles(folder)) {
    for (const one of casesOf(file)) {
      const startMs = performance.now();
      const tokens = compile(one.schema, bytes);
      times.push(performance.now() - startMs);
      counts.schemas++;
      if (tokens === undefined) continue;
      counts.compiled++;
      for (const test of one.tests) count(counts, test.valid, matches(tokens, JSON.stringify(test.data)), file, say);
    }
  }
  const share = (name: string, value: number, of: number, ratioOf: string): Figure => {
    const percent = (100 * value) / Math.max(1, of);
    return { suite, case: `${folder}: ${name}`, value: percent, best: percent, unit: '%', ratio: value, ratioOf };
  };
  yield share('schemas that compile', counts.compiled, counts.schemas, `of ${counts.schemas} schemas`);
  yield share('invalid and accepted', counts.accepted, counts.invalid, `of ${counts.invalid} instances`);
  yield share('valid and rejected', counts.refused, counts.valid, `of ${counts.valid} instances`);
  times.sort((a, b) => a - b);
  const at = (quantile: number): number => times[Math.floor(quantile * (times.length - 1))] ?? 0;
  const figure = { suite, unit: 'ms', best: at(0) };
  yield { ...figure, case: `${folder}: to compile, median`, value: at(0.5), ratio: 1, ratioOf: 'the median' };
  yield {
    ...figure,
    case: `${folder}: to compile, p99`,
    value: at(0.99),
    ratio: at(0.99) / at(0.5),
    ratioOf: 'the median',
  };
}

function count(counts: Counts, isValid: boolean, isMatch: boolean, file: string, say: (text: string) => void): void {
  counts[isValid ? 'valid' : 'invalid']++;
  if (isValid && !isMatch) counts.refused++;
  if (isValid || !isMatch) return;
  counts.accepted++;
  say(`${file}: an invalid instance is accepted`);
}

export function* jsonFiles(folder: string): Generator<string> {
  const entries = readdirSync(folder, { withFileTypes: true }).toSorted((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* jsonFiles(path);
    else if (entry.name.endsWith('.json')) yield path;
  }
}

export function casesOf(file: string): readonly SuiteCase[] {
  const content = JSON.parse(readFileSync(file, 'utf8')) as SuiteCase | readonly SuiteCase[];
  const cases = Array.isArray(content) ? (content as readonly SuiteCase[]) : [content as SuiteCase];
  return cases.filter(({ schema, tests }) => schema !== undefined && Array.isArray(tests));
}

/** Undefined for a schema that is rejected. */
export function compile(schema: JsonSchema, { trie, endToken }: Vocabulary): TokenGrammar | undefined {
  try {
    return createTokenGrammar({ grammar: jsonSchemaGrammar(schema), trie, endTokens: [endToken] });
  } catch (error) {
    if (WinnowError.isInstance(error)) return undefined;
    throw error;
  }
}

function matches(tokens: TokenGrammar, text: string): boolean {
  const matcher = tokens.start();
  return new TextEncoder().encode(text).every((byte) => matcher.accept(byte)) && matcher.canEnd;
}
