/** One turn of a conversation with tools: the prompt, the constraints of the answer, and its parser. */
import {
  createSchemaWriter,
  type Grammar,
  type GrammarNode,
  type JsonSchema,
  type Origin,
  type SchemaWriter,
  type TimeLimit,
} from '@winnow/grammar';
import { ArgumentError, CapacityError, FormatError, checkOptions, type OptionNames, type Sliced } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { templateTool, type ChatMessage, type ChatTemplate, type ChatTool } from './template.js';
import { Compilations, deadlineOf, runSliced, type WaitLimits } from '../runtime/compilation.js';
import { checkTokens, encodeConversation } from './encode-prompt.js';
import type { ChatReader } from './chat-part.js';
import { createChatReader } from './reader.js';
import { callsNode, formatFacts, formatOfTemplate, freeText, type ToolFormat, type ToolNode } from './tool-format.js';

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

/** Options of `prepareChat`. */
export interface PrepareOptions {
  /** Stops between slices. Default: never. */
  readonly signal?: AbortSignal;
  /** Maximum time in milliseconds to convert the schemas of tools, which are rejected after it. Default: unlimited. */
  readonly compileTimeoutMs?: number;
  /** Milliseconds since any point in time. Default: `performance.now`. */
  readonly now?: () => number;
}

const prepareOptionNames: OptionNames<PrepareOptions> = { signal: true, compileTimeoutMs: true, now: true };

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
 * around them is free. Long conversations and large schemas are processed in slices, so that they do not block the event
 * loop; grammars of the latest tools are kept.
 * @throws {ArgumentError} without a chat template, when it refuses the conversation, and for tools without or with the
 *   same names, and for a choice that is not among the tools
 * @throws {FormatError} for schemas that cannot be enforced and parameters that are not an object; `source` names the tool
 * @throws {CapacityError} for schemas that are too large, likewise, and for a text that exceeds the context by its length
 * @throws the reason of the signal
 */
export async function prepareChat(
  model: ChatModel,
  request: ChatRequest,
  options: PrepareOptions = {},
): Promise<ChatTurn> {
  checkOptions(request, chatRequestNames);
  checkOptions(options, prepareOptionNames);
  const { signal, compileTimeoutMs, now = () => performance.now() } = options;
  const deadline = deadlineOf(compileTimeoutMs, now);
  const { chatTemplate, tokenizer, config, contextSize } = model;
  const { toolChoice = 'auto', templateVariables = {} } = request;
  const tools = toolChoice === 'none' ? [] : (request.tools ?? []);
  checkTools(request.tools ?? [], toolChoice);
  const known = formatOfTemplate(chatTemplate?.source ?? '');
  const toolFormat = tools.length === 0 ? undefined : (known ?? 'hermes');
  const messages = known === undefined ? plainMessages(request.messages, tools) : request.messages;
  const variables =
    known === undefined || tools.length === 0
      ? templateVariables
      : { tools: tools.map(templateTool), ...templateVariables };
  const encoding = encodeConversation(messages, tokenizer, chatTemplate, variables, contextSize);
  const prompt = await runSliced(encoding, signal);
  checkTokens(prompt, config.vocabSize);
  const ids = new CallIds(request.messages);
  const createId = request.createId ?? (() => ids.next());
  return {
    prompt,
    options: await constraintsOf(request, tools, toolFormat, tokenizer, { deadline, signal }),
    toolFormat,
    createReader: () => createChatReader(toolFormat, createId),
  };
}

/** Maximum number of grammars of tools that are kept for a tokenizer. */
const maxGrammars = 8;
const grammarsOf = new WeakMap<Tokenizer, Compilations<Grammar>>();

async function constraintsOf(
  request: ChatRequest,
  tools: readonly ChatTool[],
  format: ToolFormat | undefined,
  tokenizer: Tokenizer,
  limits: WaitLimits,
): Promise<ChatConstraints> {
  const { jsonSchema, toolChoice, parallelToolCalls } = request;
  if (format === undefined) return jsonSchema === undefined ? {} : { jsonSchema };
  let grammars = grammarsOf.get(tokenizer);
  if (grammars === undefined) grammarsOf.set(tokenizer, (grammars = new Compilations(maxGrammars)));
  const schemas = tools.map(({ name, parameters }) => [name, parameters]);
  const key = JSON.stringify([format, schemas, toolChoice, parallelToolCalls, jsonSchema]);
  const grammar = await grammars.get(key, (deadline) => toolGrammar(request, tools, format, deadline), limits);
  const showTokens = formatFacts[format].tokens.filter((text) => {
    const id = tokenizer.idOf(text);
    return id !== undefined && tokenizer.isSpecial(id);
  });
  return { grammar, ...(showTokens.length === 0 ? {} : { showTokens }) };
}

function* toolGrammar(
  { toolChoice = 'auto', parallelToolCalls = true, jsonSchema }: ChatRequest,
  tools: readonly ChatTool[],
  format: ToolFormat,
  deadline: TimeLimit,
): Sliced<Grammar> {
  const rules = new Map<string, GrammarNode>([['root', { kind: 'choice', alternatives: [] }]]);
  let current: string | undefined; // the tool whose schema is converted now
  const check: TimeLimit['check'] = (refusal) => deadline.check((...times) => capacityOf(current, refusal(...times)));
  const writer = createSchemaWriter(rules, { deadline: { check } });
  const toolOf = new Map<string, string>();
  const callable = typeof toolChoice === 'object' ? tools.filter(({ name }) => name === toolChoice.name) : tools;
  const nodes: ToolNode[] = [];
  for (const tool of callable) {
    current = tool.name;
    nodes.push({ name: tool.name, arguments: yield* argumentsNode(tool, writer) });
    for (const rule of writer.places.keys()) if (!toolOf.has(rule)) toolOf.set(rule, tool.name);
  }
  current = undefined;
  const calls = callsNode(format, nodes, rules, writer.space, parallelToolCalls);
  if (toolChoice === 'auto') {
    const answer = jsonSchema === undefined ? undefined : yield* writer.writeSliced(jsonSchema);
    rules.set('root', withText(format, calls, answer, rules));
  } else {
    rules.set('root', calls);
  }
  return { root: 'root', rules, originOf };

  function originOf(rule: string): Origin {
    const field = writer.places.get(rule) ?? '#';
    const tool = toolOf.get(rule);
    if (tool !== undefined) return { source: sourceOf(tool), field };
    return writer.places.has(rule) ? { source: 'JSON schema', field } : { source: 'parameters of tools', field };
  }
}

/** What errors name for a schema. */
function sourceOf(tool: string): string {
  return `parameters of tool ${tool}`;
}

function* argumentsNode({ name, parameters }: ChatTool, writer: SchemaWriter): Sliced<GrammarNode> {
  try {
    return yield* writer.writeSliced(typedAsObject(parameters));
  } catch (error) {
    throw ofTool(name, error);
  }
}

/** Calls, or an answer without them: that of a schema, or free text. */
function withText(
  format: ToolFormat,
  calls: GrammarNode,
  answer: GrammarNode | undefined,
  rules: Map<string, GrammarNode>,
): GrammarNode {
  if (answer !== undefined) return { kind: 'choice', alternatives: [answer, calls] };
  const text = freeText(format, rules);
  // for Llama the call is the whole answer; other formats allow text before it
  if (format === 'llama') return { kind: 'choice', alternatives: [text, calls] };
  return { kind: 'sequence', items: [text, { kind: 'repeat', item: calls, min: 0, max: 1 }] };
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
  const source = sourceOf(name);
  if (FormatError.isInstance(error)) {
    return new FormatError({ source, field: error.field, message: error.message }, { cause: error });
  }
  return CapacityError.isInstance(error) ? capacityOf(name, error) : error;
}

function capacityOf(tool: string | undefined, error: CapacityError): CapacityError {
  if (tool === undefined) return error;
  const { resource, needed, available, unit, field = '#' } = error;
  return new CapacityError({ source: sourceOf(tool), field, resource, needed, available, unit });
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
