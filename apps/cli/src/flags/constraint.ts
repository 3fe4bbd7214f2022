/** `--grammar` and `--json-schema`: the constraint on the text, from the flag itself or from a file. */
import type { GenerateOptions } from '@winnow/engine';
import { jsonSchemaGrammar, parseGrammar, type JsonSchema } from '@winnow/grammar';
import { FormatError } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import type { CliIo } from '../terminal/io.js';
import type { ConstraintFlags } from './generation.js';
import { readText } from '../terminal/read-text.js';

/**
 * Checked before a model is loaded.
 * @throws {UsageError} naming the flag, for a constraint that cannot be enforced
 */
export async function constraintOf(
  { grammar, jsonSchema }: ConstraintFlags,
  io: CliIo,
  signal: AbortSignal,
): Promise<Pick<GenerateOptions, 'grammar' | 'jsonSchema'>> {
  if (grammar !== undefined && jsonSchema !== undefined) {
    throw new UsageError('--grammar: expected one of --grammar and --json-schema, got both');
  }
  if (grammar !== undefined) {
    const text = grammar.includes('::=') ? grammar : await readFileText(io, grammar, signal);
    checked('--grammar', () => parseGrammar(text));
    return { grammar: text };
  }
  if (jsonSchema === undefined) return {};
  const isText = /^\s*(\{|true\s*$|false\s*$)/.test(jsonSchema);
  const schema = parseJson(isText ? jsonSchema : await readFileText(io, jsonSchema, signal));
  checked('--json-schema', () => jsonSchemaGrammar(schema));
  return { jsonSchema: schema };
}

async function readFileText(io: CliIo, file: string, signal: AbortSignal): Promise<string> {
  return (await readText(io, { file }, signal)) ?? '';
}

function parseJson(text: string): JsonSchema {
  try {
    return JSON.parse(text) as JsonSchema;
  } catch (error) {
    throw new UsageError(`--json-schema: expected JSON, got ${(error as Error).message}`);
  }
}

function checked(flag: string, check: () => unknown): void {
  try {
    check();
  } catch (error) {
    if (FormatError.isInstance(error)) throw new UsageError(`${flag}: ${error.message}`);
    throw error;
  }
}
