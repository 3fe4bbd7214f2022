/** One turn of a conversation with tools: the prompt, the constraints of the answer, and its parser. */
import type { Grammar, JsonSchema } from '@winnow/grammar';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ImageInput } from '../images/image-encoder.js';
import type { SpanLimit } from './span-limit.js';
import { Compilations, deadlineOf, runSliced, type WaitLimits } from '../runtime/compilation.js';
import { createAnswerReader, type AnswerFormat } from './answers/answer-reader.js';
import type { ChatReader } from './answers/chat-part.js';
import { answerGrammar } from './chat-grammar.js';
import { checkTokens, encodeRendered, renderConversation } from './encode-prompt.js';
import { canReason, chatFormatOf, type ChatFormat } from './formats/chat-format.js';
import type { ToolFormat, ToolFormatRow } from './formats/tool-format.js';
import { messagesFor } from './history.js';
import { templateTool, type ChatMessage, type ChatTemplate, type ChatTool } from './template.js';

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
  /** Whether the model reasons before it answers. Default: as its template decides. */
  readonly enableThinking?: boolean;
  /**
   * How much the model reasons: a value that its template knows, such as `low`, `medium` or `high`, or `none`. A
   * template that can only switch reasoning on or off reasons unless the effort is `none`. Default: as the template
   * decides.
   */
  readonly reasoningEffort?: string;
  /** Maximum number of tokens of reasoning, after which its end is forced. Default: unlimited. */
  readonly maxReasoningTokens?: number;
  /** Additional variables of the chat template, such as `documents`. Default: none. */
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
  enableThinking: true,
  reasoningEffort: true,
  maxReasoningTokens: true,
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
  readonly spanLimit?: SpanLimit;
}

/** The parts of a loaded model that chats need. */
export interface ChatModel {
  readonly chatTemplate: ChatTemplate | undefined;
  readonly tokenizer: Tokenizer;
  readonly config: { readonly vocabSize: number };
  /** Longer prompts may be rejected before they are encoded. Default: no limit. */
  readonly contextSize?: number;
  /** The text of the image token, of a model that takes images. */
  readonly imageToken?: string | undefined;
  /** Puts images into the prompt, as `Model.insertImages`. */
  insertImages?(
    ids: Int32Array,
    images: readonly ImageInput[],
    options?: { readonly signal?: AbortSignal },
  ): Promise<Int32Array>;
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
 * Renders the conversation with the model's chat template. If the template does not describe tools, a system message
 * does. Tool calls are constrained to existing tools and valid arguments; the text around them is free. Long
 * conversations and large schemas are processed in slices, so that they do not block the event loop; grammars of the
 * latest tools are kept.
 * @throws {ArgumentError} without a chat template, when it refuses the conversation, for tools without a name or with
 *   equal names, and for a choice that is not among the tools
 * @throws {FormatError} for schemas that cannot be enforced and parameters that are not an object; `source` names the
 *   tool
 * @throws {CapacityError} for schemas that are too large, likewise, and for a text that exceeds the context by its
 *   length
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
  const { chatTemplate, tokenizer, config, contextSize = Infinity } = model;
  const { toolChoice = 'auto' } = request;
  const tools = toolChoice === 'none' ? [] : (request.tools ?? []);
  checkTools(request.tools ?? [], toolChoice);
  checkImages(model, request.messages);
  const chatFormat = chatFormatOf(chatTemplate?.source ?? '');
  const messages = messagesFor(chatFormat, request.messages, tools);
  const described = tools.length > 0 && chatFormat.describesTools ? { tools: tools.map(templateTool) } : {};
  const variables = { ...described, ...reasoningVariables(request, chatFormat), ...request.templateVariables };
  const text = await runSliced(renderConversation(messages, chatTemplate, variables), signal);
  const rendered = await runSliced(encodeRendered(text, tokenizer, contextSize), signal);
  checkTokens(rendered, config.vocabSize);
  const prompt = await withImages(model, rendered, request.messages, signal);
  const turn = turnOf(chatFormat, text);
  const ids = new CallIds(request.messages);
  const createId = request.createId ?? (() => ids.next());
  return {
    prompt,
    options: await constraintsOf(request, tools, turn, tokenizer, { deadline, signal }),
    toolFormat: tools.length === 0 ? undefined : chatFormat.tools.name,
    createReader: () => createAnswerReader(turn.format, tools, createId),
  };
}

/** The tokens, with each image token replaced by the rows of its image. */
async function withImages(
  model: ChatModel,
  ids: Int32Array,
  messages: readonly ChatMessage[],
  signal: AbortSignal | undefined,
): Promise<Int32Array> {
  if (model.imageToken === undefined || model.insertImages === undefined) return ids;
  return model.insertImages(ids, imagesIn(messages), signal === undefined ? {} : { signal });
}

function imagesIn(messages: readonly ChatMessage[]): readonly ImageInput[] {
  return messages.flatMap((message) => message.images ?? []);
}

/** @throws {ArgumentError} for images that the model does not take */
function checkImages({ imageToken, insertImages }: ChatModel, messages: readonly ChatMessage[]): void {
  const { length } = imagesIn(messages);
  if (length === 0 || (imageToken !== undefined && insertImages !== undefined)) return;
  const expected = 'no images, since this model takes none';
  throw new ArgumentError({ argument: 'messages', expected, actual: `${length} images` });
}

/** Whether the model can reason before it answers, by its chat template. */
export function hasReasoning({ chatTemplate }: Pick<ChatModel, 'chatTemplate'>): boolean {
  return chatTemplate !== undefined && canReason(chatFormatOf(chatTemplate.source));
}

/** How the answer to a prompt is written. */
function turnOf(
  { tools, reasoning }: ChatFormat,
  prompt: string,
): { readonly format: AnswerFormat; readonly hasReasoned: boolean } {
  const end = prompt.trimEnd();
  return {
    format: { tools, reasoning, startsInReasoning: reasoning !== undefined && end.endsWith(reasoning.open) },
    hasReasoned: reasoning !== undefined && end.endsWith(reasoning.close),
  };
}

/** @throws {ArgumentError} for reasoning options that the model does not support */
function reasoningVariables(
  { enableThinking, reasoningEffort, maxReasoningTokens }: ChatRequest,
  format: ChatFormat,
): Readonly<Record<string, unknown>> {
  const effort = format.hasEffort && reasoningEffort !== undefined ? { reasoning_effort: reasoningEffort } : {};
  const isOn = enableThinking ?? (reasoningEffort === undefined ? undefined : reasoningEffort !== 'none');
  const wish = Object.entries({ enableThinking, reasoningEffort, maxReasoningTokens }).find(([, value]) => {
    return value !== undefined && value !== false && value !== 'none';
  });
  if (wish !== undefined && !canReason(format)) {
    const [argument, value] = wish;
    throw new ArgumentError({ argument, expected: 'a model whose chat template has reasoning', actual: String(value) });
  }
  const switches = isOn === undefined ? [] : format.thinkingVariables.map((name) => [name, isOn] as const);
  return { ...effort, ...Object.fromEntries(switches) };
}

/** Maximum number of grammars of answers that are kept for a tokenizer. */
const maxGrammars = 8;
const grammarsOf = new WeakMap<Tokenizer, Compilations<Grammar>>();

async function constraintsOf(
  request: ChatRequest,
  tools: readonly ChatTool[],
  turn: { readonly format: AnswerFormat; readonly hasReasoned: boolean },
  tokenizer: Tokenizer,
  limits: WaitLimits,
): Promise<ChatConstraints> {
  const { jsonSchema, toolChoice, parallelToolCalls = true, maxReasoningTokens } = request;
  const { format, hasReasoned } = turn;
  const shown = {
    ...shownTokens(format, tools, tokenizer),
    ...(maxReasoningTokens === undefined ? {} : spanLimitOf(format, maxReasoningTokens)),
  };
  const mayReason = (format.reasoning !== undefined || format.tools.name === 'harmony') && !hasReasoned;
  if (tools.length === 0 && (jsonSchema === undefined || !mayReason)) {
    return jsonSchema === undefined ? shown : { jsonSchema, ...shown };
  }
  const isRequired = tools.length > 0 && toolChoice !== undefined && toolChoice !== 'auto';
  const callable = typeof toolChoice === 'object' ? tools.filter(({ name }) => name === toolChoice.name) : tools;
  const answer = { format, tools: callable, isRequired, isParallel: parallelToolCalls, hasReasoned };
  const schemas = tools.map(({ name, parameters }) => [name, parameters]);
  const { tools: row, reasoning, startsInReasoning } = format;
  const key = JSON.stringify([
    ...[row.name, reasoning?.open, startsInReasoning, hasReasoned, schemas],
    ...[toolChoice, parallelToolCalls, jsonSchema],
  ]);
  let grammars = grammarsOf.get(tokenizer);
  if (grammars === undefined) grammarsOf.set(tokenizer, (grammars = new Compilations(maxGrammars)));
  const compilation = grammars.get(key, (deadline) => answerGrammar({ ...answer, jsonSchema }, deadline));
  const grammar = await compilation.wait(limits);
  return { grammar, ...shown };
}

/** Control tokens of the vocabulary that the reader of the answer has to see. */
function shownTokens(
  { tools: row, reasoning }: AnswerFormat,
  tools: readonly ChatTool[],
  tokenizer: Tokenizer,
): Pick<ChatConstraints, 'showTokens'> {
  const marks = [
    ...(row.ignored ?? []),
    ...(tools.length === 0 ? [] : tokensOf(row)),
    ...(reasoning === undefined ? [] : [reasoning.open, reasoning.close, ...(reasoning.ignored ?? [])]),
  ];
  const showTokens = [...new Set(marks)].filter((text) => {
    const id = tokenizer.idOf(text);
    return id !== undefined && tokenizer.isSpecial(id);
  });
  return showTokens.length === 0 ? {} : { showTokens };
}

/** The texts in angle or square brackets that a format consists of, which may be control tokens. */
function tokensOf({ opens, closes, sectionOpen, written }: ToolFormatRow): readonly string[] {
  const texts = [...opens, ...closes, sectionOpen ?? '', written.before, written.call, written.after];
  return texts.flatMap((text) => [text, ...(text.match(/<[^<>]+>|\[[A-Z_]+\]/g) ?? [])]);
}

function spanLimitOf(format: AnswerFormat, maxTokens: number): Pick<ChatConstraints, 'spanLimit'> {
  if (format.tools.name === 'harmony') {
    const begin = '<|channel|>analysis<|message|>';
    return { spanLimit: { begin, end: '<|end|><|start|>assistant<|channel|>final<|message|>', maxTokens } };
  }
  const { reasoning, startsInReasoning } = format;
  if (reasoning === undefined) return {};
  const { open, close } = reasoning;
  return { spanLimit: { ...(startsInReasoning ? {} : { begin: open }), end: close, maxTokens } };
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
