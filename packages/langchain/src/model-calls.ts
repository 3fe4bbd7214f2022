/** Shared by both language models: defaults of calls, timeouts, concurrency, token counts. */
import type { MessageContent } from '@langchain/core/messages';
import type { GenerateOptions, Model } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';
import { pickFields, type GenerationFields, type WinnowFields } from './fields.js';
import { Turns } from './turns.js';

/** The fields that LangChain's own class takes. */
export function baseFields<Fields extends WinnowFields>({
  model: _model,
  streaming: _streaming,
  maxConcurrency: _maxConcurrency,
  timeout: _timeout,
  ...rest
}: Fields): Omit<Fields, 'model' | 'streaming' | 'maxConcurrency' | 'timeout'> {
  return rest;
}

export class ModelCalls {
  readonly #model: Model;
  readonly #own: GenerationFields;
  readonly #turns: Turns;
  readonly #timeout: number | undefined;

  /** @throws {ArgumentError} for a wrong `maxConcurrency` */
  constructor({ model, stopSequences, maxConcurrency, timeout, ...fields }: WinnowFields) {
    this.#model = model;
    this.#own = pickFields(stopSequences === undefined ? fields : { stop: stopSequences, ...fields });
    this.#turns = new Turns(concurrencyOf(maxConcurrency));
    this.#timeout = timeout;
  }

  /** The key of LangChain's response cache: the model and all settings, those of a call over those of the object. */
  params(call: GenerationFields = {}): Record<string, unknown> {
    return { model: this.#model.name, ...this.settings(call) };
  }

  settings(call: GenerationFields): GenerationFields {
    return { ...this.#own, ...pickFields(call) };
  }

  /** Options of the engine. Their signal also aborts at the time limit, which counts from now. */
  options(call: GenerationFields & { readonly signal?: AbortSignal }): GenerateOptions {
    const limit = this.#timeout === undefined ? undefined : AbortSignal.timeout(this.#timeout);
    const both = limit !== undefined && call.signal !== undefined;
    const signal = both ? AbortSignal.any([limit, call.signal]) : (limit ?? call.signal);
    return { ...this.settings(call), ...(signal === undefined ? {} : { signal }) };
  }

  /** Waits until fewer than `maxConcurrency` calls run. Returns a function that ends the turn. */
  takeTurn({ signal }: GenerateOptions): Promise<() => void> {
    return this.#turns.take(signal);
  }

  /**
   * Counts tokens with the model's tokenizer; LangChain's default downloads the tokenizer of another model. Parts that
   * are not text count as zero.
   */
  countTokens(content: MessageContent): number {
    const texts =
      typeof content === 'string'
        ? [content]
        : content.map((part) => (part.type === 'text' && typeof part['text'] === 'string' ? part['text'] : ''));
    const { tokenizer } = this.#model;
    return texts.reduce((sum, text) => sum + tokenizer.encode(text, { addSpecialTokens: false }).length, 0);
  }
}

function concurrencyOf(asked = 4): number {
  if (asked === Infinity || (Number.isSafeInteger(asked) && asked > 0)) return asked;
  throw new ArgumentError({ argument: 'maxConcurrency', expected: 'a positive integer', actual: String(asked) });
}
