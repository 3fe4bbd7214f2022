/** Implements the contract with a model of the engine. */
import { type GenerateOptions, type Generation, type GenerationResult, type Model } from '@winnow/engine';
import type {
  InferenceBackend,
  InferenceMetrics,
  InferenceOptions,
  InferencePrompt,
  InferenceResult,
  InferenceStream,
  InferenceToken,
} from './contract.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface InferenceBackendOptions {
  /** Default options of every generation, such as sampling, penalties or `overflow`. */
  readonly defaults?: Omit<GenerateOptions, 'signal'>;
}

const optionNames: OptionNames<InferenceBackendOptions> = {
  defaults: {
    ...{ maxTokens: true, stop: true, ignoreEos: true, grammar: true, jsonSchema: true, showTokens: true, seed: true },
    ...{ temperature: true, topK: true, topP: true, minP: true, repetitionPenalty: true, presencePenalty: true },
    ...{ frequencyPenalty: true, penaltyWindow: true, numTopLogprobs: true, overflow: true, promptPhase: true },
    onPromptProgress: true,
  },
};

/**
 * The caller owns the model and disposes it. Generations share its sessions, steps and cache.
 * @throws {UnknownOptionError} for an option that does not exist; calls check theirs, too
 */
export function createInferenceBackend(model: Model, options: InferenceBackendOptions = {}): InferenceBackend {
  checkOptions(options, optionNames);
  const { defaults = {} } = options;
  const counts: Writable<InferenceMetrics> = {
    numGenerations: 0,
    numActive: 0,
    numFailed: 0,
    numPromptTokens: 0,
    numGeneratedTokens: 0,
    promptMs: 0,
    generateMs: 0,
  };
  const generateStream = (prompt: InferencePrompt, own: InferenceOptions = {}): InferenceStream =>
    new CountedStream(model.generate(prompt, { ...defaults, ...own }), counts);
  return {
    name: model.name,
    vocabSize: model.config.vocabSize,
    contextSize: model.contextSize,
    supportsJsonSchema: true,
    generate: async (prompt, own) => generateStream(prompt, own).result(),
    generateStream,
    async logits(prompt, own = {}): Promise<Float32Array> {
      const tokens = model.encodePrompt(prompt);
      const [row] = await model.logprobs(tokens, own);
      return row as Float32Array;
    },
    metrics: () => ({ ...counts }),
  };
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** A generation that is counted once, however its tokens and its result are read. */
class CountedStream implements InferenceStream {
  readonly #generation: Generation;
  readonly #counts: Writable<InferenceMetrics>;
  #state: 'new' | 'active' | 'ended' = 'new';

  constructor(generation: Generation, counts: Writable<InferenceMetrics>) {
    this.#generation = generation;
    this.#counts = counts;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<InferenceToken, void, void> {
    this.#begin();
    try {
      for await (const { tokenId, text, logprob } of this.#generation) yield { tokenId, text, logprob };
      this.#end(await this.#generation.result());
    } finally {
      this.#end(); // left early, or failed
    }
  }

  async result(): Promise<InferenceResult> {
    this.#begin();
    try {
      const result = await this.#generation.result();
      this.#end(result);
      const { text, tokens, finishReason, promptTokens } = result;
      return { text, tokens, finishReason, numPromptTokens: promptTokens };
    } finally {
      this.#end();
    }
  }

  #begin(): void {
    if (this.#state !== 'new') return;
    this.#state = 'active';
    this.#counts.numGenerations++;
    this.#counts.numActive++;
  }

  #end(result?: GenerationResult): void {
    if (this.#state !== 'active') return;
    this.#state = 'ended';
    const counts = this.#counts;
    counts.numActive--;
    if (result === undefined) {
      counts.numFailed++;
      return;
    }
    counts.numPromptTokens += result.promptTokens;
    counts.numGeneratedTokens += result.tokens.length;
    counts.promptMs += result.timings.promptMs;
    counts.generateMs += result.timings.generateMs;
  }
}
