/** Tests of the suite itself: a small correct backend passes, and each planted fault is found. */
import { describe, expect, test } from 'vitest';
import type {
  InferenceBackend,
  InferenceMetrics,
  InferenceOptions,
  InferencePrompt,
  InferenceResult,
  InferenceStream,
  InferenceToken,
} from '../src/index.js';
import { inferenceChecks } from '../src/testing.js';

type Fault =
  | 'none'
  | 'random'
  | 'loses text'
  | 'one too many'
  | 'ignores stop'
  | 'other logits'
  | 'ignores seed'
  | 'ignores abort'
  | 'leaks'
  | 'shares state'
  | 'counts wrong'
  | 'accepts anything'
  | 'ignores schema';

const alphabet = 'abcdefghijklmnopqrstuvwxyz';

const contextSize = 64;
const preferred = 2; // more probable than all others combined

function logprobOf(id: number, best: number): number {
  return (id === best ? preferred : 0) - Math.log(Math.exp(preferred) + 25);
}

function nextOf(ids: readonly number[]): number {
  return (ids.length * 7 + (ids.at(-1) as number)) % 26;
}

/** Continues a text with letters determined by its length; its logits prefer that letter. */
class FakeBackend implements InferenceBackend {
  readonly name = 'fake';
  readonly vocabSize = 26;
  readonly contextSize = contextSize;
  readonly supportsJsonSchema = true;
  readonly #fault: Fault;
  readonly #counts = {
    numGenerations: 0,
    numActive: 0,
    numFailed: 0,
    numPromptTokens: 0,
    numGeneratedTokens: 0,
    promptMs: 0,
    generateMs: 0,
  };
  #shared = 0;

  constructor(fault: Fault) {
    this.#fault = fault;
  }

  generate(prompt: InferencePrompt, options?: InferenceOptions): Promise<InferenceResult> {
    return this.generateStream(prompt, options).result();
  }

  generateStream(prompt: InferencePrompt, options: InferenceOptions = {}): InferenceStream {
    const result: { value?: InferenceResult } = {};
    let tokens: AsyncGenerator<InferenceToken> | undefined;
    const iterate = (): AsyncGenerator<InferenceToken> =>
      this.#count(() => (tokens ??= this.#tokens(this.#idsOf(prompt), options, result)), result);
    return {
      [Symbol.asyncIterator]: iterate,
      async result(): Promise<InferenceResult> {
        if (result.value === undefined) for await (const _token of iterate());
        return result.value as InferenceResult;
      },
    };
  }

  async logits(prompt: InferencePrompt): Promise<Float32Array> {
    const best = nextOf(this.#idsOf(prompt)) + (this.#fault === 'other logits' ? 1 : 0);
    return Float32Array.from({ length: 26 }, (_, id) => logprobOf(id, best));
  }

  metrics(): InferenceMetrics {
    return { ...this.#counts };
  }

  #idsOf(prompt: InferencePrompt): number[] {
    const ids = typeof prompt === 'string' ? Array.from(prompt, (char) => char.charCodeAt(0) % 26) : Array.from(prompt);
    if (this.#fault === 'accepts anything') return ids.length === 0 ? [0] : ids;
    if (ids.length === 0 || ids.length > contextSize || ids.some((id) => id < 0 || id >= 26))
      throw new Error('refused');
    return ids;
  }

  async *#count(
    start: () => AsyncGenerator<InferenceToken>,
    result: { value?: InferenceResult },
  ): AsyncGenerator<InferenceToken> {
    const counts = this.#counts;
    counts.numGenerations += 1;
    counts.numActive++;
    let hasEnded = false;
    try {
      yield* start();
      hasEnded = true;
    } finally {
      if (this.#fault !== 'leaks') counts.numActive--;
      if (!hasEnded) counts.numFailed++;
      else if (result.value && this.#fault !== 'counts wrong') {
        counts.numPromptTokens += result.value.numPromptTokens;
        counts.numGeneratedTokens += result.value.tokens.length;
      }
    }
  }

  /** The next letter, after options and fault are applied. */
  #draw(all: readonly number[], { temperature = 1, seed = 0 }: InferenceOptions): number {
    const drift = temperature === 0 || this.#fault === 'ignores seed' ? 0 : seed * all.length;
    const isRandom = this.#fault === 'random';
    const noise = isRandom ? Math.floor(Math.random() * 26) : this.#fault === 'shares state' ? ++this.#shared : 0;
    return (nextOf(all) + drift + noise) % 26;
  }

  async *#tokens(
    ids: readonly number[],
    options: InferenceOptions,
    result: { value?: InferenceResult },
  ): AsyncGenerator<InferenceToken> {
    const fault = this.#fault;
    const { maxTokens = Infinity, stop = [], signal, jsonSchema } = options;
    const all = [...ids];
    let text = '';
    if (typeof jsonSchema === 'object' && 'not' in jsonSchema && fault !== 'ignores schema') throw new Error('refused');
    const json = jsonSchema !== undefined && fault !== 'ignores schema' ? '{"mood":"glad","age":7}' : undefined;
    const limit = maxTokens + (fault === 'one too many' ? 1 : 0);
    let finishReason: InferenceResult['finishReason'] = 'length';
    const held = Math.max(0, ...stop.map((one) => one.length - 1));
    let given = 0;
    while (all.length - ids.length < limit) {
      await Promise.resolve();
      if (fault !== 'ignores abort') signal?.throwIfAborted();
      if (all.length >= contextSize || text === json) {
        finishReason = text === json ? 'stop' : 'context';
        break;
      }
      const best = nextOf(all);
      const id = this.#draw(all, options);
      all.push(id);
      text += json === undefined ? alphabet[id] : json.charAt(text.length);
      const found = fault === 'ignores stop' ? -1 : Math.max(-1, ...stop.map((one) => text.indexOf(one)));
      if (found >= 0) {
        text = text.slice(0, found);
        finishReason = 'stop';
      }
      const isLast = found >= 0 || all.length - ids.length >= limit;
      const certain = text.slice(given, isLast ? undefined : Math.max(given, text.length - held));
      given += certain.length;
      yield { tokenId: id, text: fault === 'loses text' ? '' : certain, logprob: logprobOf(id, best) };
      if (found >= 0) break;
    }
    result.value = { text, tokens: all.slice(ids.length), finishReason, numPromptTokens: ids.length };
  }
}

/** Names of the failing checks. */
async function failures(fault: Fault): Promise<string[]> {
  const failed: string[] = [];
  for (const { name, run } of inferenceChecks) {
    await run(new FakeBackend(fault), 'once upon').catch(() => failed.push(name));
  }
  return failed;
}

describe('the suite', () => {
  test('passes a small correct backend', async () => {
    expect(await failures('none')).toEqual([]);
  });

  test.each<[Fault, string]>([
    ['random', 'the same greedy request'],
    ['loses text', 'a stream yields the answer'],
    ['one too many', 'maxTokens bounds'],
    ['ignores stop', 'a stop sequence ends'],
    ['other logits', 'logits agree'],
    ['ignores seed', 'a seed reproduces'],
    ['ignores abort', 'an aborted request'],
    ['leaks', 'leaving streams early'],
    ['shares state', 'concurrent requests'],
    ['counts wrong', 'metrics count'],
    ['accepts anything', 'invalid prompts'],
    ['ignores schema', 'a JSON schema is enforced'],
  ])('finds a backend that %s', async (fault, name) => {
    expect((await failures(fault)).some((failed) => failed.startsWith(name))).toBe(true);
  });

  test('has a planted fault for each of its checks', () => {
    expect(inferenceChecks).toHaveLength(12);
  });
});
