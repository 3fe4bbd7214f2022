/** A chat model of LangChain over a loaded model of the engine. */
import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import {
  BaseChatModel,
  type BaseChatModelCallOptions,
  type BaseChatModelParams,
  type LangSmithParams,
} from '@langchain/core/language_models/chat_models';
import { AIMessageChunk, type BaseMessage, type MessageContent } from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';
import type { Model } from '@winnow/engine';
import { closingChunk, toMessage, usageOfMessage } from './answers.js';
import {
  concurrencyOf,
  generateOptions,
  identifyingParams,
  pickFields,
  type GenerationFields,
  type WinnowFields,
} from './fields.js';
import { toChatMessages } from './messages.js';
import { responseMetadata, tokenUsage, usageOf } from './results.js';
import { countTokens } from './count-tokens.js';
import { createTurns, type Turns } from './turns.js';

export type ChatWinnowFields = WinnowFields & Omit<BaseChatModelParams, 'maxConcurrency'>;

/** Per call; what is not given is what the object was made with. */
export interface ChatWinnowCallOptions extends BaseChatModelCallOptions, Omit<GenerationFields, 'stop'> {}

/**
 * Chats with a model that has a chat template. Answers share the model's cache: what a conversation has in common with
 * earlier ones is not computed again.
 */
export class ChatWinnow extends BaseChatModel<ChatWinnowCallOptions> {
  static override lc_name(): string {
    return 'ChatWinnow';
  }

  readonly model: Model;
  readonly streaming: boolean;
  readonly #own: GenerationFields;
  readonly #turns: Turns;

  constructor(fields: ChatWinnowFields) {
    const { model, streaming = false, maxConcurrency, ...rest } = fields;
    super(rest);
    this.model = model;
    this.streaming = streaming;
    this.#own = pickFields(fields);
    this.#turns = createTurns(concurrencyOf(maxConcurrency));
  }

  override _llmType(): string {
    return 'winnow';
  }

  override _identifyingParams(): Record<string, unknown> {
    return identifyingParams(this.model, this.#own);
  }

  override invocationParams(options?: this['ParsedCallOptions']): Record<string, unknown> {
    return { ...this._identifyingParams(), ...pickFields(options ?? {}) };
  }

  override getLsParams(options: this['ParsedCallOptions']): LangSmithParams {
    const { temperature, maxTokens, stop } = { ...this.#own, ...pickFields(options) };
    return {
      ls_provider: 'winnow',
      ls_model_name: this.model.name,
      ls_model_type: 'chat',
      ...(temperature === undefined ? {} : { ls_temperature: temperature }),
      ...(maxTokens === undefined ? {} : { ls_max_tokens: maxTokens }),
      ls_stop: stop ?? [],
    };
  }

  /** Tokens of a text by the model's own tokenizer. */
  override async getNumTokens(content: MessageContent): Promise<number> {
    return countTokens(this.model, content);
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
    const prompt = toChatMessages(messages);
    const endTurn = await this.#turns.take(options.signal);
    try {
      const generation = this.model.generate(prompt, generateOptions(this.#own, options));
      for await (const { text } of generation) {
        if (text === '') continue;
        const chunk = new ChatGenerationChunk({ text, message: new AIMessageChunk({ content: text }) });
        yield chunk;
        await runManager?.handleLLMNewToken(text, undefined, undefined, undefined, undefined, { chunk });
      }
      const result = await generation.result();
      yield closingChunk(usageOf(result), responseMetadata(this.model.name, result, false));
    } finally {
      endTurn();
    }
  }
}
