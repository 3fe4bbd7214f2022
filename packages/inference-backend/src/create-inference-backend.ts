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
  return new ModelBackend(model, options.defaults);
}

class ModelBackend implements InferenceBackend {
  readonly name: string;
  readonly vocabSize: number;
  readonly contextSize: number;
  readonly supportsJsonSchema = true;
  readonly #model: Model;
  readonly #defaults: InferenceBackendOptions['defaults'];
  readonly #counts: Writable<InferenceMetrics> = {
    numGenerations: 0,
    numActive: 0,
    numFailed: 0,
    numPromptTokens: 0,
    numGeneratedTokens: 0,
    promptMs: 0,
    generateMs: 0,
  };

  constructor(model: Model, defaults: InferenceBackendOptions['defaults']) {
    this.name = model.name;
    this.vocabSize = model.config.vocabSize;
    this.contextSize = model.contextSize;
    this.#model = model;
    this.#defaults = defaults;
  }

  async generate(prompt: InferencePrompt, options?: InferenceOptions): Promise<InferenceResult> {
    return this.generateStream(prompt, options).result();
  }

  generateStream(prompt: InferencePrompt, options: InferenceOptions = {}): InferenceStream {
    return new CountedStream(this.#model.generate(prompt, { ...this.#defaults, ...options }), this.#counts);
  }

  async logits(prompt: InferencePrompt, options: Pick<InferenceOptions, 'signal'> = {}): Promise<Float32Array> {
    const [row] = await this.#model.logprobs(this.#model.encodePrompt(prompt), options);
    return row as Float32Array;
  }

  metrics(): InferenceMetrics {
    return { ...this.#counts };
  }
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
