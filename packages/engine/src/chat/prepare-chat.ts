/** One turn of a conversation with tools: the prompt, the constraints of the answer, and its parser. */
import { createSchemaWriter, type Grammar, type GrammarNode, type JsonSchema } from '@winnow/grammar';
import { ArgumentError, CapacityError, FormatError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { templateTool, type ChatMessage, type ChatTemplate, type ChatTool } from './template.js';
import { checkTokens, encodeConversation } from './encode-prompt.js';
import { createChatReader, type ChatReader } from './reader.js';
import { callsNode, formatFacts, formatOfTemplate, freeText, type ToolFormat } from './tool-format.js';

/**
 * Whether the model calls tools: its choice (`auto`), never, at least one (`required`), or the named one.
 */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string };

export interface ChatRequest {
  readonly messages: readonly ChatMessage[];
  /** Tools that the model may call. Default: none. */
  readonly tools?: readonly ChatTool[];
  /** Whether the model may, must or must not call a tool, or which one. Default `auto`. */
  readonly toolChoice?: ToolChoice;
  /** Whether one answer may call several tools, if the model's format supports it. Default true. */
  readonly parallelToolCalls?: boolean;
  /** Schema of an answer without tool calls. Default: any text. */
  readonly jsonSchema?: JsonSchema;
  /** Additional variables of the chat template, such as `enable_thinking`. Default: none. */
  readonly templateVariables?: Readonly<Record<string, unknown>>;
  /** Creates the ids of calls. Default: `call00001` and so on, counting the calls of the conversation. */
  readonly createId?: () => string;
}

const chatRequestNames: OptionNames<ChatRequest> = {
  messages: true,
  tools: true,
  toolChoice: true,
  parallelToolCalls: true,
  jsonSchema: true,
  templateVariables: true,
  createId: true,
};

/** Constraints of the answer, as options of `generate`. */
export interface ChatConstraints {
  readonly grammar?: Grammar;
  readonly jsonSchema?: JsonSchema;
  readonly showTokens?: readonly string[];
}

/** The parts of a loaded model that chats need. */
export interface ChatModel {
  readonly chatTemplate: ChatTemplate | undefined;
  readonly tokenizer: Tokenizer;
  readonly config: { readonly vocabSize: number };
  /** Longer prompts may be rejected before they are encoded. Default: no limit. */
  readonly contextSize?: number;
}

export interface ChatTurn {
  /** For `generate`. */
  readonly prompt: Int32Array;
  /** For `generate`: constrains tool calls and the rest of the answer. */
  readonly options: ChatConstraints;
  /** How the model writes tool calls; undefined without tools. */
  readonly toolFormat: ToolFormat | undefined;
  /** Parses the answer. */
  createReader(): ChatReader;
}

/**
 * Renders the conversation with the model's chat template. If the template does not support tools, they go into a
 * system message in the Hermes format. Tool calls are constrained to existing tools and valid arguments; the text
 * around them is free.
 * @throws {ArgumentError} without a chat template, when it refuses the conversation, and for tools without or with the
 *   same names, and for a choice that is not among the tools
 * @throws {FormatError} for schemas that cannot be enforced and parameters that are not an object; `source` names the tool
 * @throws {CapacityError} for schemas that are too large, likewise, and for a text that exceeds the context by its length
 */
export function prepareChat(model: ChatModel, request: ChatRequest): ChatTurn {
  checkOptions(request, chatRequestNames);
  const { chatTemplate, tokenizer, config, contextSize } = model;
  const { toolChoice = 'auto', templateVariables = {}, jsonSchema } = request;
  const tools = toolChoice === 'none' ? [] : (request.tools ?? []);
  checkTools(request.tools ?? [], toolChoice);
  const known = formatOfTemplate(chatTemplate?.source ?? '');
  const toolFormat = tools.length === 0 ? undefined : (known ?? 'hermes');
  const messages = known === undefined ? plainMessages(request.messages, tools) : request.messages;
  const variables =
    known === undefined || tools.length === 0
      ? templateVariables
      : { tools: tools.map(templateTool), ...templateVariables };
  const prompt = encodeConversation(messages, tokenizer, chatTemplate, variables, contextSize);
  checkTokens(prompt, config.vocabSize);
  const ids = new CallIds(request.messages);
  const createId = request.createId ?? (() => ids.next());
  return {
    prompt,
    options: optionsOf(request, tools, toolFormat, tokenizer, jsonSchema),
    toolFormat,
    createReader: () => createChatReader(toolFormat, createId),
  };
}

function optionsOf(
  { toolChoice = 'auto', parallelToolCalls = true }: ChatRequest,
  tools: readonly ChatTool[],
  format: ToolFormat | undefined,
  tokenizer: Tokenizer,
  jsonSchema: JsonSchema | undefined,
): ChatTurn['options'] {
  if (format === undefined) return jsonSchema === undefined ? {} : { jsonSchema };
  const rules = new Map<string, GrammarNode>([['root', { kind: 'choice', alternatives: [] }]]);
  const writer = createSchemaWriter(rules);
  const callable = typeof toolChoice === 'object' ? tools.filter(({ name }) => name === toolChoice.name) : tools;
  const nodes = callable.map((tool) => ({ name: tool.name, arguments: argumentsNode(tool) }));
  const calls = callsNode(format, nodes, rules, writer.space, parallelToolCalls);
  rules.set('root', toolChoice === 'auto' ? withText() : calls);
  const grammar: Grammar = { root: 'root', rules };
  const showTokens = formatFacts[format].tokens.filter((text) => {
    const id = tokenizer.idOf(text);
    return id !== undefined && tokenizer.isSpecial(id);
  });
  return { grammar, ...(showTokens.length === 0 ? {} : { showTokens }) };

  function argumentsNode({ name, parameters }: ChatTool): GrammarNode {
    try {
      return writer.write(typedAsObject(parameters));
    } catch (error) {
      throw ofTool(name, error);
    }
  }

  function withText(): GrammarNode {
    if (jsonSchema !== undefined) return { kind: 'choice', alternatives: [writer.write(jsonSchema), calls] };
    const text = freeText(format as ToolFormat, rules);
    // for Llama the call is the whole answer; other formats allow text before it
    if (format === 'llama') return { kind: 'choice', alternatives: [text, calls] };
    return { kind: 'sequence', items: [text, { kind: 'repeat', item: calls, min: 0, max: 1 }] };
  }
}

/**
 * Arguments are an object, whether the schema says so or not.
 * @throws {FormatError} when it says that they are something else
 */
function typedAsObject(parameters: JsonSchema = { additionalProperties: false }): JsonSchema {
  if (typeof parameters === 'boolean') return { type: 'object', not: !parameters };
  const { $ref, ...rest } = parameters;
  const { type = 'object', allOf = [] } = rest;
  if (type === 'object' || (Array.isArray(type) && type.includes('object'))) {
    const typed = { ...rest, type: 'object', nullable: false };
    const others: JsonSchema[] = Array.isArray(type) ? [{ type }] : [];
    if ($ref !== undefined) others.push({ $ref }); // old drafts ignore a type next to a reference
    return others.length === 0 || !Array.isArray(allOf)
      ? typed
      : { ...typed, allOf: [...(allOf as unknown[]), ...others] };
  }
  const message = `expected object, got ${JSON.stringify(type)}`;
  throw new FormatError({ source: 'JSON schema', field: '#/type', message });
}

/** The same error of a schema, whose source names the tool. */
function ofTool(name: string, error: unknown): unknown {
  const source = `parameters of tool ${name}`;
  if (FormatError.isInstance(error)) {
    return new FormatError({ source, field: error.field, message: error.message }, { cause: error });
  }
  if (!CapacityError.isInstance(error)) return error;
  const { resource, needed, available, unit, field = '#' } = error;
  return new CapacityError({ source, field, resource, needed, available, unit });
}

function checkTools(tools: readonly ChatTool[], choice: ToolChoice): void {
  const names = new Set<string>();
  for (const { name } of tools) {
    if (names.has(name) || !/^[a-zA-Z0-9_.:-]{1,128}$/.test(name)) {
      const expected = 'distinct names of letters, digits and _ . : -';
      throw new ArgumentError({ argument: 'tools', expected, actual: JSON.stringify(name) });
    }
    names.add(name);
  }
  const wanted = typeof choice === 'object' ? choice.name : undefined;
  if ((wanted !== undefined && !names.has(wanted)) || (choice === 'required' && names.size === 0)) {
    const expected = names.size === 0 ? 'tools to choose from' : [...names].join(' | ');
    throw new ArgumentError({ argument: 'toolChoice', expected, actual: wanted ?? 'required' });
  }
}

/** The conversation for a template that supports only text. */
function plainMessages(messages: readonly ChatMessage[], tools: readonly ChatTool[]): readonly ChatMessage[] {
  const plain = messages.map(({ role, content, toolCalls = [] }): ChatMessage => {
    if (role === 'tool') return { role: 'user', content: `<tool_response>\n${content}\n</tool_response>` };
    const calls = toolCalls.map(
      (call) => `<tool_call>\n${JSON.stringify({ name: call.name, arguments: call.arguments })}\n</tool_call>`,
    );
    return { role, content: [content, ...calls].filter((part) => part !== '').join('\n') };
  });
  if (tools.length === 0) return plain;
  const [first, ...rest] = plain;
  const isSystem = first?.role === 'system';
  const content = `${isSystem ? `${first.content}\n\n` : ''}${toolText(tools)}`;
  return [{ role: 'system', content }, ...(isSystem ? rest : plain)];
}

function toolText(tools: readonly ChatTool[]): string {
  return [
    'You can call these tools, given as JSON:',
    '<tools>',
    ...tools.map((tool) => JSON.stringify(templateTool(tool))),
    '</tools>',
    'Call one by writing its name and arguments in this form:',
    '<tool_call>',
    '{"name": <name>, "arguments": <object>}',
    '</tool_call>',
  ].join('\n');
}

/** Ids of nine letters and digits, as some templates require, after those of the conversation. */
class CallIds {
  #count: number;

  constructor(messages: readonly ChatMessage[]) {
    this.#count = messages.reduce((sum, { toolCalls = [] }) => sum + toolCalls.length, 0);
  }

  next(): string {
    return `call${String(++this.#count).padStart(5, '0')}`;
  }
}
