/** A LangChain text completion model on a loaded model of the engine. */
import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import { BaseLLM, type BaseLLMCallOptions } from '@langchain/core/language_models/llms';
import type { MessageContent } from '@langchain/core/messages';
import { GenerationChunk, type LLMResult } from '@langchain/core/outputs';
import type { GenerationResult, Model } from '@winnow/engine';
import { llmFieldNames, type GenerationFields, type WinnowLLMFields } from './fields.js';
import { baseFields, ModelCalls } from './model-calls.js';
import { responseMetadata, tokenUsage, usageOf } from './results.js';
import { checkOptions } from '@winnow/tensor';

/** Call options; defaults are the fields of the object. */
export interface WinnowCallOptions extends BaseLLMCallOptions, Omit<GenerationFields, 'stop'> {}

/** Continues a text. Use `ChatWinnow` for chat models. */
export class Winnow extends BaseLLM<WinnowCallOptions> {
  static override lc_name(): string {
    return 'Winnow';
  }

  readonly model: Model;
  readonly streaming: boolean;
  readonly #calls: ModelCalls;

  /** @throws {UnknownOptionError} for a field that does not exist */
  constructor(fields: WinnowLLMFields) {
    checkOptions(fields, llmFieldNames);
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

  /** Counts the tokens of a text with the model's own tokenizer. */
  override async getNumTokens(content: MessageContent): Promise<number> {
    return this.#calls.countTokens(content);
  }

  override async _generate(
    prompts: string[],
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): Promise<LLMResult> {
    const manager = this.streaming ? runManager : undefined;
    const results = await Promise.all(prompts.map((prompt, index) => this.#complete(prompt, index, options, manager)));
    const usage = results.map((result) => usageOf(result));
    return {
      generations: results.map((result) => [
        { text: result.text, generationInfo: responseMetadata(this.model.name, result, false) },
      ]),
      llmOutput: { tokenUsage: tokenUsage(...usage) },
    };
  }

  async #complete(
    prompt: string,
    index: number,
    options: this['ParsedCallOptions'],
    runManager: CallbackManagerForLLMRun | undefined,
  ): Promise<GenerationResult> {
    const chunks = this.#run(prompt, options);
    for (;;) {
      const { value, done } = await chunks.next();
      if (done === true) return value;
      await runManager?.handleLLMNewToken(value, { prompt: index, completion: 0 });
    }
  }

  override async *_streamResponseChunks(
    prompt: string,
    options: this['ParsedCallOptions'],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<GenerationChunk> {
    const pieces = this.#run(prompt, options);
    try {
      for (;;) {
        const { value, done } = await pieces.next();
        if (done === true) {
          const usage = usageOf(value);
          const info = { ...responseMetadata(this.model.name, value, false), usage_metadata: usage };
          yield new GenerationChunk({ text: '', generationInfo: info });
          return;
        }
        const chunk = new GenerationChunk({ text: value });
        yield chunk;
        await runManager?.handleLLMNewToken(value, undefined, undefined, undefined, undefined, { chunk });
      }
    } finally {
      await pieces.return(undefined as never);
    }
  }

  /** Chunks of text, then the complete result. */
  async *#run(prompt: string, options: this['ParsedCallOptions']): AsyncGenerator<string, GenerationResult> {
    const settings = this.#calls.options(options);
    const endTurn = await this.#calls.takeTurn(settings);
    try {
      const generation = this.model.generate(prompt, settings);
      for await (const { text } of generation) if (text !== '') yield text;
      return await generation.result();
    } finally {
      endTurn();
    }
  }
}
