/** Scripted models. */
import type { GenerateOptions, Generation, GeneratedToken, GenerationResult, Model } from '@winnow/engine';
import type { GenerativeModel } from '../src/index.js';

/** Wraps a model so that its answers end with their request. */
export function endless(model: Model): GenerativeModel {
  return { ...model, generate: (prompt, options) => model.generate(prompt, { ...options, ignoreEos: true }) };
}

export interface ScriptedModel extends GenerativeModel {
  /** Number of emitted tokens. */
  readonly numTokens: number;
  /** Number of running generations. */
  readonly numRunning: number;
  /** Maximum number of concurrent generations. */
  readonly maxRunning: number;
}

export type Script = (options: GenerateOptions, prompt: Int32Array) => AsyncGenerator<string, void, void>;

/** A model with a scripted answer, and the tokenizer and template of a real one. */
export function scripted(model: Model, script: Script): ScriptedModel {
  const counts = { numTokens: 0, numRunning: 0, maxRunning: 0 };
  const { name, backend, config, contextSize, tokenizer, chatTemplate, tokenize, logprobs, metrics } = model;
  return {
    ...{ name, backend, config, contextSize, tokenizer, chatTemplate, tokenize, logprobs, metrics },
    get numTokens() {
      return counts.numTokens;
    },
    get numRunning() {
      return counts.numRunning;
    },
    get maxRunning() {
      return counts.maxRunning;
    },
    generate(prompt, options = {}): Generation {
      let result: GenerationResult | undefined;
      const tokens = prompt as Int32Array;
      const running = scriptedTokens(script(options, tokens), tokens.length, options, counts);
      return {
        async *[Symbol.asyncIterator]() {
          result = yield* running;
        },
        result: () => Promise.resolve(result as GenerationResult),
      };
    },
  };
}

async function* scriptedTokens(
  said: ReturnType<Script>,
  promptTokens: number,
  { signal }: GenerateOptions,
  counts: { numTokens: number; numRunning: number; maxRunning: number },
): AsyncGenerator<GeneratedToken, GenerationResult, void> {
  counts.numRunning++;
  counts.maxRunning = Math.max(counts.maxRunning, counts.numRunning);
  const texts: string[] = [];
  try {
    for await (const text of said) {
      signal?.throwIfAborted();
      counts.numTokens++;
      texts.push(text);
      yield { tokenId: 65, text, logprob: -1, topLogprobs: [] };
    }
  } finally {
    counts.numRunning--;
  }
  return {
    text: texts.join(''),
    tokens: texts.map(() => 65),
    promptTokens,
    cachedTokens: 0,
    droppedTokens: 0,
    evictedTokens: 0,
    finishReason: 'eos',
    satisfiesConstraint: true,
    timings: { promptMs: 1, generateMs: 1, promptTokensPerSecond: 1, tokensPerSecond: 1 },
  };
}

/** Waits for the abort signal and throws its reason. */
export function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal?.reason as Error);
    if (signal?.aborted === true) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Repeats a text forever, as fast as it is read. */
export async function* forever(text: string): AsyncGenerator<string, void, void> {
  for (;;) {
    yield text;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Emits one token, then waits until it is aborted. */
export async function* speechless({ signal }: GenerateOptions): AsyncGenerator<string, void, void> {
  yield 'well';
  await aborted(signal);
}

/** Emits one token, then fails. */
export function failing(error: Error, texts: readonly string[] = []): Script {
  return async function* fail() {
    yield* texts;
    throw error;
  };
}
