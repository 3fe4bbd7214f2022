/** `withStructuredOutput`: structured answers, enforced by constrained decoding. */
import type { BaseLanguageModelInput, StructuredOutputMethodOptions } from '@langchain/core/language_models/base';
import {
  assembleStructuredOutputPipeline,
  createContentParser,
  createFunctionCallingParser,
} from '@langchain/core/language_models/structured_output';
import { OutputParserException } from '@langchain/core/output_parsers';
import { RunnableLambda, type Runnable } from '@langchain/core/runnables';
import { toJsonSchema } from '@langchain/core/utils/json_schema';
import { isSerializableSchema, type SerializableSchema } from '@langchain/core/utils/standard_schema';
import { getSchemaDescription, isInteropZodSchema, type ZodV3Like, type ZodV4Like } from '@langchain/core/utils/types';
import { ArgumentError } from '@winnow/tensor';
import type { ChatWinnow, ChatWinnowCallOptions } from './chat-winnow.js';
import type { JsonSchema } from '@winnow/engine';

/** A schema of zod or of another library that validates and exports JSON schemas, or a JSON schema. */
export type OutputSchema<Output extends Record<string, unknown> = Record<string, unknown>> =
  | SerializableSchema<Output>
  | ZodV4Like<Output>
  | ZodV3Like<Output>
  | Record<string, unknown>;

const methods = ['functionCalling', 'jsonSchema', 'jsonMode'];

/**
 * `functionCalling`, the default, forces a call of one tool; `jsonSchema` forces text that is JSON of this schema;
 * `jsonMode` forces any JSON object.
 * @throws {ArgumentError} for other methods
 */
export function structuredOutput(
  chat: ChatWinnow,
  schema: OutputSchema,
  config: StructuredOutputMethodOptions<boolean> = {},
): Runnable<BaseLanguageModelInput, Record<string, unknown>> {
  const { method = 'functionCalling', includeRaw = false } = config;
  if (!methods.includes(method)) {
    throw new ArgumentError({ argument: 'method', expected: methods.join(' | '), actual: method });
  }
  const jsonSchema = (
    isInteropZodSchema(schema) || isSerializableSchema(schema) ? toJsonSchema(schema) : schema
  ) as Record<string, unknown>;
  const traced = { ls_structured_output_format: { kwargs: { method }, schema: jsonSchema } } as ChatWinnowCallOptions;
  if (method !== 'functionCalling') {
    const form: JsonSchema = method === 'jsonSchema' ? jsonSchema : { type: 'object' };
    const llm = chat.withConfig({ ...traced, jsonSchema: form });
    return assembleStructuredOutputPipeline(llm, createContentParser(schema), includeRaw, config.name);
  }
  const name = config.name ?? nameOf(jsonSchema) ?? 'extract';
  const description = getSchemaDescription(schema) ?? descriptionOf(jsonSchema);
  const definition = { name, parameters: jsonSchema, ...(description === undefined ? {} : { description }) };
  const llm = chat.bindTools([{ type: 'function', function: definition }], {
    ...traced,
    tool_choice: name,
    parallelToolCalls: false,
  });
  const parser = createFunctionCallingParser(schema, name).pipe(new RunnableLambda({ func: checkCalled }));
  return assembleStructuredOutputPipeline(llm, parser, includeRaw, config.name);
}

function nameOf({ name, title }: Record<string, unknown>): string | undefined {
  const found = [name, title].find((value) => typeof value === 'string' && /^[\w-]{1,64}$/.test(value));
  return found as string | undefined;
}

function descriptionOf({ description }: Record<string, unknown>): string | undefined {
  return typeof description === 'string' ? description : undefined;
}

/** LangChain's parser reports no error when there is no call because the answer was cut off. */
function checkCalled(value: Record<string, unknown> | undefined): Record<string, unknown> {
  if (value !== undefined) return value;
  throw new OutputParserException('the answer has no complete tool call: it may need more tokens (maxTokens)');
}
