/** Models that do what a test needs and nothing else. */
import type { GenerateOptions, Generation, GeneratedToken, GenerationResult, Model } from '@winnow/engine';
import type { GenerativeModel } from '../src/index.js';

/** The same model, but answers end when their request does. */
export function endless(model: Model): GenerativeModel {
  return { ...model, generate: (prompt, options) => model.generate(prompt, { ...options, ignoreEos: true }) };
}

export interface ScriptedModel extends GenerativeModel {
  /** Tokens handed out so far. */
  readonly numTokens: number;
  /** Generations that have begun and not ended. */
  readonly numRunning: number;
  /** Most of them at a time. */
  readonly maxRunning: number;
}

export type Script = (options: GenerateOptions, prompt: Int32Array) => AsyncGenerator<string, void, void>;

/** A model that says what a script says; tokenizer and template are those of a real one. */
export function scripted(model: Model, script: Script): ScriptedModel {
  let numTokens = 0;
  let numRunning = 0;
  let maxRunning = 0;

  async function* tokens(
    prompt: Int32Array,
    options: GenerateOptions,
  ): AsyncGenerator<GeneratedToken, GenerationResult, void> {
    numRunning++;
    maxRunning = Math.max(maxRunning, numRunning);
    const texts: string[] = [];
    try {
      for await (const text of script(options, prompt)) {
        options.signal?.throwIfAborted();
        numTokens++;
        texts.push(text);
        yield { tokenId: 65, text, logprob: -1, topLogprobs: [] };
      }
    } finally {
      numRunning--;
    }
    return {
      text: texts.join(''),
      tokens: texts.map(() => 65),
      promptTokens: prompt.length,
      cachedTokens: 0,
      droppedTokens: 0,
      evictedTokens: 0,
      finishReason: 'eos',
      satisfiesConstraint: true,
      timings: { promptMs: 1, generateMs: 1, promptTokensPerSecond: 1, tokensPerSecond: 1 },
    };
  }

  const { name, backend, config, contextSize, tokenizer, chatTemplate, encodePrompt, metrics } = model;
  return {
    name,
    backend,
    config,
    contextSize,
    tokenizer,
    chatTemplate,
    encodePrompt,
    metrics,
    get numTokens() {
      return numTokens;
    },
    get numRunning() {
      return numRunning;
    },
    get maxRunning() {
      return maxRunning;
    },
    generate(prompt, options = {}): Generation {
      let result: GenerationResult | undefined;
      const running = tokens(prompt as Int32Array, options);
      return {
        async *[Symbol.asyncIterator]() {
          result = yield* running;
        },
        result: () => Promise.resolve(result as GenerationResult),
      };
    },
  };
}

/** Resolves when the signal is aborted, by throwing its reason. */
export function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal?.reason as Error);
    if (signal?.aborted === true) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Says the same for ever, as fast as it is read. */
export async function* forever(text: string): AsyncGenerator<string, void, void> {
  for (;;) {
    yield text;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Says one thing and then nothing until it is aborted. */
export async function* speechless({ signal }: GenerateOptions): AsyncGenerator<string, void, void> {
  yield 'well';
  await aborted(signal);
}

/** Says something and fails. */
export function failing(error: Error, texts: readonly string[] = []): Script {
  return async function* fail() {
    yield* texts;
    throw error;
  };
}
