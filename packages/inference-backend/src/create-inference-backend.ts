/** Implements the contract with a model of the engine. */
import { type GenerateOptions, type Generation, type GenerationResult, type Model } from '@winnow/engine';
import type {
  InferenceBackend,
  InferenceMetrics,
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
    maxTokens: true,
    stop: true,
    ignoreEos: true,
    grammar: true,
    jsonSchema: true,
    compileTimeoutMs: true,
    showTokens: true,
    spanLimit: true,
    seed: true,
    temperature: true,
    topK: true,
    topP: true,
    minP: true,
    repetitionPenalty: true,
    presencePenalty: true,
    frequencyPenalty: true,
    penaltyWindow: true,
    numTopLogprobs: true,
    logitBias: true,
    overflow: true,
    promptPhase: true,
    speculative: true,
    onPromptProgress: true,
  },
};

/**
 * The caller owns the model and disposes of it. Generations share its sessions, steps and cache.
 * @throws {UnknownOptionError} for an option that does not exist; calls check theirs, too
 */
export function createInferenceBackend(model: Model, options: InferenceBackendOptions = {}): InferenceBackend {
  checkOptions(options, optionNames);
  return new ModelBackend(model, options.defaults);
}

/** Its methods are properties, so that a backend can be spread into another object and methods can be passed as callbacks. */
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

  readonly generate: InferenceBackend['generate'] = async (prompt, options) => {
    return this.generateStream(prompt, options).result();
  };

  readonly generateStream: InferenceBackend['generateStream'] = (prompt, options = {}) => {
    return new CountedStream(this.#model.generate(prompt, { ...this.#defaults, ...options }), this.#counts);
  };

  readonly logits: InferenceBackend['logits'] = async (prompt, options = {}) => {
    const [row] = await this.#model.logprobs(this.#model.encodePrompt(prompt), options);
    return row as Float32Array;
  };

  readonly metrics = (): InferenceMetrics => ({ ...this.#counts });
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** A generation that is counted once, regardless of how its tokens and its result are read. */
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
