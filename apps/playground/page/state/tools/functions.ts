/** Functions that the user describes as JSON, whose results the user types in. */
import type { ToolDefinition, ToolResult, ToolServer } from '@winnow/mcp';
import { errorText, type Tool } from '../../backend/contract.js';

/** What the editor begins with. */
export const exampleFunctions: string = JSON.stringify(
  [
    {
      name: 'weather',
      description: 'The weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  ],
  undefined,
  2,
);

/** Names that every API of a server takes. */
const namePattern = /^[\w-]{1,64}$/;
const noArguments = { type: 'object', properties: {}, additionalProperties: false };

/**
 * Reads an array of functions: with `name`, `description` and `parameters`, as they are or as OpenAI's
 * `{ "type": "function", "function": … }`.
 * @throws {Error} that says what is wrong, and where
 */
export function parseFunctions(text: string): readonly Tool[] {
  if (text.trim() === '') return [];
  const values = jsonOf(text);
  if (!Array.isArray(values)) throw new Error('Expected an array of functions.');
  const tools = values.map((value: unknown, index) => functionOf(value, `Function ${index + 1}`));
  const twice = tools.find(({ name }, index) => tools.findIndex((other) => other.name === name) !== index);
  if (twice !== undefined) throw new Error(`Two functions have the name ${twice.name}.`);
  return tools;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The functions in Tools are no JSON: ${errorText(error)}`, { cause: error });
  }
}

function functionOf(value: unknown, where: string): Tool {
  if (!isObject(value)) throw new Error(`${where}: expected an object.`);
  if (isObject(value['function'])) return functionOf(value['function'], where);
  const { name, description, parameters = noArguments } = value;
  if (typeof name !== 'string' || !namePattern.test(name)) {
    throw new Error(`${where}: expected a name of 1 to 64 letters, digits, _ and -, got ${JSON.stringify(name)}.`);
  }
  if (description !== undefined && typeof description !== 'string') {
    throw new Error(`${where}: expected a text as description.`);
  }
  if (!isObject(parameters)) throw new Error(`${where}: expected a JSON schema as parameters.`);
  return { name, ...(description === undefined ? {} : { description }), parameters };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Asks the user for the result of a call; undefined: the user gives none. @throws the reason of the signal */
export type AskResult = (
  call: { readonly name: string; readonly arguments: Readonly<Record<string, unknown>> },
  signal: AbortSignal,
) => Promise<string | undefined>;

/** The functions as tools. */
export class TypedFunctions implements ToolServer {
  readonly name = 'you';
  readonly address = 'this page';
  readonly isOpen = true;
  readonly asksUser = true;
  readonly #ask: AskResult;
  tools: readonly ToolDefinition[] = [];

  constructor(ask: AskResult) {
    this.#ask = ask;
  }

  use(functions: readonly Tool[]): void {
    this.tools = functions.map(({ parameters, ...named }) => ({
      ...named,
      inputSchema: parameters as ToolDefinition['inputSchema'],
    }));
  }

  async call(name: string, values: Record<string, unknown>, signal: AbortSignal): Promise<ToolResult> {
    const text = await this.#ask({ name, arguments: values }, signal);
    if (text === undefined) return { isError: true, content: [{ type: 'text', text: 'the user gave no result' }] };
    return { content: [{ type: 'text', text }] };
  }

  async close(): Promise<void> {}
}
