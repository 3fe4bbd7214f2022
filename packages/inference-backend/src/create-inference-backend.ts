/** Implements the contract with a model of the engine. */
import type { GenerateOptions, GenerationResult, Model } from '@winnow/engine';
import type {
  InferenceBackend,
  InferenceOptions,
  InferencePrompt,
  InferenceResult,
  InferenceStream,
  InferenceToken,
} from './contract.js';

export interface InferenceBackendOptions {
  /** Default options of every generation, such as sampling, penalties or `overflow`. */
  readonly defaults?: Omit<GenerateOptions, 'signal'>;
}

/** The caller owns the model and disposes it. Generations share its sessions, steps and cache. */
export function createInferenceBackend(
  model: Model,
  { defaults = {} }: InferenceBackendOptions = {},
): InferenceBackend {
  const counts = {
    numGenerations: 0,
    numActive: 0,
    numFailed: 0,
    numPromptTokens: 0,
    numGeneratedTokens: 0,
    promptMs: 0,
    generateMs: 0,
  };

  function finish(result: GenerationResult): void {
    counts.numPromptTokens += result.promptTokens;
    counts.numGeneratedTokens += result.tokens.length;
    counts.promptMs += result.timings.promptMs;
    counts.generateMs += result.timings.generateMs;
  }

  function generateStream(prompt: InferencePrompt, options: InferenceOptions = {}): InferenceStream {
    const generation = model.generate(prompt, { ...defaults, ...options });
    let state: 'new' | 'active' | 'ended' = 'new';

    const begin = (): void => {
      if (state !== 'new') return;
      state = 'active';
      counts.numGenerations++;
      counts.numActive++;
    };
    const end = (result?: GenerationResult): void => {
      if (state !== 'active') return;
      state = 'ended';
      counts.numActive--;
      if (result === undefined) counts.numFailed++;
      else finish(result);
    };

    async function* iterate(): AsyncGenerator<InferenceToken, void, void> {
      begin();
      try {
        for await (const { tokenId, text, logprob } of generation) yield { tokenId, text, logprob };
        end(await generation.result());
      } finally {
        end(); // left early, or failed
      }
    }

    return {
      [Symbol.asyncIterator]: iterate,
      async result(): Promise<InferenceResult> {
        begin();
        try {
          const result = await generation.result();
          end(result);
          const { text, tokens, finishReason, promptTokens } = result;
          return { text, tokens, finishReason, numPromptTokens: promptTokens };
        } finally {
          end();
        }
      },
    };
  }

  return {
    name: model.name,
    vocabSize: model.config.vocabSize,
    contextSize: model.contextSize,
    supportsJsonSchema: true,
    generate: (prompt, options) => generateStream(prompt, options).result(),
    generateStream,
    async logits(prompt, { signal } = {}): Promise<Float32Array> {
      const tokens = model.encodePrompt(prompt);
      const [row] = await model.logprobs(tokens, signal === undefined ? {} : { signal });
      return row as Float32Array;
    },
    metrics: () => ({ ...counts }),
  };
}
