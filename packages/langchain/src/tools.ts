/** Converts all forms of LangChain tools to tools of the engine. */
import type { BindToolsInput, ToolChoice as LangChainToolChoice } from '@langchain/core/language_models/chat_models';
import { convertToOpenAITool } from '@langchain/core/utils/function_calling';
import type { ChatTool, ToolChoice } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';

/** A tool in OpenAI's format: plain data that call options can carry and caches can compare. */
export interface FunctionTool {
  readonly type: 'function';
  readonly function: ChatTool;
}

/** @throws {ArgumentError} for a value that is not a tool, or has no name */
export function toFunctionTools(tools: readonly BindToolsInput[]): FunctionTool[] {
  return tools.map((tool, index) => {
    const { type, function: definition } = convertToOpenAITool(tool as Record<string, unknown>);
    if (type === 'function' && typeof definition?.name === 'string' && definition.name !== '') {
      return { type, function: definition as ChatTool };
    }
    const expected = 'a LangChain tool, or { type: "function", function: { name, ... } }';
    throw new ArgumentError({ argument: `tools[${index}]`, expected, actual: JSON.stringify(tool).slice(0, 80) });
  });
}

/** @throws {ArgumentError} for an unknown form of tool choice */
export function toToolChoice(choice: LangChainToolChoice | undefined): ToolChoice | undefined {
  if (choice === undefined || choice === 'auto' || choice === 'none') return choice;
  if (choice === 'any' || choice === 'required') return 'required';
  if (typeof choice === 'string') return { name: choice };
  const name = (choice['function'] as { name?: unknown } | undefined)?.name ?? choice['name'];
  if (typeof name === 'string') return { name };
  const expected = 'auto | none | any | the name of a tool | { type: "function", function: { name } }';
  throw new ArgumentError({ argument: 'tool_choice', expected, actual: JSON.stringify(choice) });
}
