/** `--grammar` and `--json-schema`: the constraint on the text, from the flag itself or from a file. */
import type { GenerateOptions } from '@winnow/engine';
import { Deadline, jsonSchemaGrammarSliced, parseGrammarSliced, type JsonSchema } from '@winnow/grammar';
import { FormatError, type Sliced } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import type { CliIo } from '../terminal/io.js';
import type { ConstraintFlags } from './generation.js';
import { decodeUtf8, readBytesOf, readStdin } from '../terminal/read-text.js';

/**
 * Checked before a model is loaded.
 * @throws {UsageError} naming the flag, for a constraint that cannot be enforced
 */
export async function constraintOf(
  { grammar, jsonSchema, compileTimeout }: ConstraintFlags,
  io: CliIo,
  signal: AbortSignal,
): Promise<Pick<GenerateOptions, 'grammar' | 'jsonSchema' | 'compileTimeoutMs'>> {
  if (grammar !== undefined && jsonSchema !== undefined) {
    throw new UsageError('--grammar: expected one of --grammar and --json-schema, got both');
  }
  const timeoutMs = compileTimeout === undefined ? undefined : compileTimeout * 1000;
  const timeout = timeoutMs === undefined ? {} : { compileTimeoutMs: timeoutMs };
  const limits = timeoutMs === undefined ? {} : { deadline: new Deadline(timeoutMs, () => performance.now()) };
  if (grammar !== undefined) {
    const text = grammar.includes('::=') ? grammar : await readFileText(io, grammar, signal);
    await checked('--grammar', parseGrammarSliced(text, 'root', limits), signal);
    return { grammar: text, ...timeout };
  }
  if (jsonSchema === undefined) return {};
  const isText = /^\s*(\{|true\s*$|false\s*$)/.test(jsonSchema);
  const schema = parseJson(isText ? jsonSchema : await readFileText(io, jsonSchema, signal));
  await checked('--json-schema', jsonSchemaGrammarSliced(schema, limits), signal);
  return { jsonSchema: schema, ...timeout };
}

/** Larger than any grammar or schema that can be compiled. */
const maxFileBytes = 16 * 1024 * 1024;

async function readFileText(io: CliIo, file: string, signal: AbortSignal): Promise<string> {
  if (file === '-') return readStdin(io, signal);
  return decodeUtf8(await readBytesOf(file, signal, maxFileBytes), file);
}

function parseJson(text: string): JsonSchema {
  try {
    return JSON.parse(text) as JsonSchema;
  } catch (error) {
    throw new UsageError(`--json-schema: expected JSON, got ${(error as Error).message}`);
  }
}

/** Compiles with turns of the event loop, so that Ctrl-C works. */
async function checked(flag: string, work: Sliced<unknown>, signal: AbortSignal): Promise<void> {
  try {
    while (work.next().done !== true) {
      await new Promise((resolve) => void setImmediate(resolve));
      signal.throwIfAborted();
    }
  } catch (error) {
    if (FormatError.isInstance(error)) throw new UsageError(`${flag}: ${error.message}`);
    throw error;
  }
}
