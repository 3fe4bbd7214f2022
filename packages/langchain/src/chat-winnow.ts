/** A LangChain chat model on a loaded model of the engine. */
import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import {
  BaseChatModel,
  type BaseChatModelCallOptions,
  type BindToolsInput,
  type LangSmithParams,
} from '@langchain/core/language_models/chat_models';
import type { AIMessageChunk, BaseMessage, MessageContent } from '@langchain/core/messages';
import type { ChatGenerationChunk, ChatResult } from '@langchain/core/outputs';
import type { BaseLanguageModelInput, StructuredOutputMethodOptions } from '@langchain/core/language_models/base';
import type { Runnable } from '@langchain/core/runnables';
import { closingChunk, partChunk, toMessage, usageOfMessage } from './answers.js';
import {
  prepareChat,
  type ChatPart,
  type ChatReader,
  type ChatRequest,
  type ChatTurn,
  type GenerateOptions,
  type Generation,
  type JsonSchema,
  type Model,
} from '@winnow/engine';
import { ArgumentError, checkOptions } from '@winnow/tensor';
import { structuredOutput, type OutputSchema } from './structured-output.js';
import { toFunctionTools, toToolChoice } from './tools.js';
import { chatFieldNames, type ChatWinnowFields, type GenerationFields } from './fields.js';
import { baseFields, ModelCalls } from './model-calls.js';
import { toChatMessages } from './messages.js';
import { responseMetadata, tokenUsage, usageOf } from './results.js';

/** Call options; defaults are the fields of the object. */
export interface ChatWinnowCallOptions extends BaseChatModelCallOptions, Omit<GenerationFields, 'stop'> {
  /** Tools that the model may call. `bindTools` converts LangChain's tools. Default: none. */
  tools?: BindToolsInput[];
  /** Whether an answer may contain several tool calls. Default true. */
  parallelToolCalls?: boolean;
  /** How much the model reasons: what its template knows, such as `low`, or `none`. Default: as the template decides. */
  reasoningEffort?: string;
  /** Maximum number of tokens of reasoning, after which its end is forced. Default: unlimited. */
  maxReasoningTokens?: number;
}

/**
 * Chats with a model that has a chat template. Calls share the model's KV cache: a prefix shared with earlier
 * conversations is not recomputed.
 */
export class ChatWinnow extends BaseChatModel<ChatWinnowCallOptions> {
  static override lc_name(): string {
    return 'ChatWinnow';
  }

  readonly model: Model;
  readonly streaming: boolean;
  readonly #calls: ModelCalls;

  /** @throws {UnknownOptionError} for a field that does not exist */
  constructor(fields: ChatWinnowFields) {
    checkOptions(fields, chatFieldNames);
    super(baseFields(fields));
    this.model = fields.model;
    this.streaming = fields.streaming ?? false;
    this.#calls = new ModelCalls(fields);
  }

  override _llmType(): string {
    return 'winnow';
  }

  override _identifyingParams(): Record<string, unknown> {
    return this.#calls.params();
  }

  override invocationParams(options?: this['ParsedCallOptions']): Record<string, unknown> {
    return this.#calls.params(options);
  }

  override getLsParams(options: this['ParsedCallOptions']): LangSmithParams {
    const { temperature, maxTokens, stop } = this.#calls.settings(options);
    return {
      ls_provider: 'winnow',
      ls_model_name: this.model.name,
      ls_model_type: 'chat',
      ...(temperature === undefined ? {} : { ls_temperature: temperature }),
      ...(maxTokens === undefined ? {} : { ls_max_tokens: maxTokens }),
      ls_stop: stop ?? [],
    };
  }

  /** Binds tools that the model may call, in the format of its chat template. */
  override bindTools(
    tools: BindToolsInput[],
    kwargs: Partial<ChatWinnowCallOptions> = {},
  ): Runnable<BaseLanguageModelInput, AIMessageChunk, ChatWinnowCallOptions> {
    return this.withConfig({ ...kwargs, tools: toFunctionTools(tools) });
  }

  /** Structured output: by a required tool call or, with `method: 'jsonSchema'`, as text. */
  override withStructuredOutput<RunOutput extends Record<string, unknown> = Record<string, unknown>>(
    schema: OutputSchema<RunOutput>,
    config?: StructuredOutputMethodOptions<false>,
  ): Runnable<BaseLanguageModelInput, RunOutput>;
  override withStructuredOutput<RunOutput extends Record<string, unknown> = Record<string, unknown>>(
    schema: OutputSchema<RunOutput>,
    config?: StructuredOutputMethodOptions<true>,
  ): Runnable<BaseLanguageModelInput, { raw: BaseMessage; parsed: RunOutput }>;
  override withStructuredOutput(
    schema: OutputSchema,
    config?: StructuredOutputMethodOptions<boolean>,
  ): Runnable<BaseLanguageModelInput, Record<string, unknown>> {
    return structuredOutput(this, schema, config);
  }

  /** Counts the tokens of a text with the model's own tokenizer. */
  override async getNumTokens(content: MessageContent): Promise<number> {
    return this.#calls.countTokens(content);
  }

  override async _generate(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): Promise<ChatResult> {
    let whole: ChatGenerationChunk | undefined;
    for await (const chunk of this.#run(messages, options, this.streaming ? runManager : undefined)) {
      whole = whole === undefined ? chunk : whole.concat(chunk);
    }
    const answer = whole?.message as AIMessageChunk;
    const message = toMessage(answer);
    return {
      generations: [{ text: message.text, message }],
      llmOutput: { tokenUsage: tokenUsage(usageOfMessage(answer)) },
    };
  }

  override async *_streamResponseChunks(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    yield* this.#run(messages, options, runManager);
  }

  async *#run(
    messages: BaseMessage[],
    options: this['ParsedCallOptions'],
    runManager: CallbackManagerForLLMRun | undefined,
  ): AsyncGenerator<ChatGenerationChunk> {
    const { jsonSchema, ...settings } = this.#calls.options(options);
    const { signal } = settings;
    const request = requestOf(messages, options, jsonSchema);
    const turn = await prepareChat(this.model, request, signal === undefined ? {} : { signal });
    const endTurn = await this.#calls.takeTurn(settings);
    let numCalls = 0;
    let endsWithCall = false;
    try {
      const generation = this.model.generate(turn.prompt, constrained(settings, turn));
      for await (const part of readParts(generation, turn.createReader())) {
        const chunk = partChunk(part, numCalls);
        if (part.type === 'tool-call') {
          numCalls++;
          endsWithCall = part.isComplete;
        }
        if (chunk === undefined) continue;
        yield chunk;
        await runManager?.handleLLMNewToken(chunk.text, undefined, undefined, undefined, undefined, { chunk });
      }
      const result = await generation.result();
      yield closingChunk(usageOf(result), responseMetadata(this.model.name, result, endsWithCall));
    } finally {
      endTurn();
    }
  }
}

function requestOf(
  messages: readonly BaseMessage[],
  { tools, tool_choice, parallelToolCalls, reasoningEffort, maxReasoningTokens }: ChatWinnowCallOptions,
  jsonSchema: JsonSchema | undefined,
): ChatRequest {
  const toolChoice = toToolChoice(tool_choice);
  return {
    messages: toChatMessages(messages),
    ...(tools === undefined ? {} : { tools: toFunctionTools(tools).map((tool) => tool.function) }),
    ...(toolChoice === undefined ? {} : { toolChoice }),
    ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }),
    ...(jsonSchema === undefined ? {} : { jsonSchema }),
    ...(reasoningEffort === undefined ? {} : { reasoningEffort }),
    ...(maxReasoningTokens === undefined ? {} : { maxReasoningTokens }),
  };
}

/** @throws {ArgumentError} for a grammar together with tools or a schema */
function constrained(settings: GenerateOptions, { options }: ChatTurn): GenerateOptions {
  if (settings.grammar === undefined || !hasConstraint(options)) return { ...settings, ...options };
  throw new ArgumentError({
    argument: 'grammar',
    expected: 'no grammar together with tools or jsonSchema',
    actual: 'both',
  });
}

function hasConstraint({ grammar, jsonSchema }: ChatTurn['options']): boolean {
  return grammar !== undefined || jsonSchema !== undefined;
}

async function* readParts(generation: Generation, reader: ChatReader): AsyncGenerator<ChatPart> {
  for await (const { text } of generation) if (text !== '') yield* reader.push(text);
  yield* reader.end();
}
