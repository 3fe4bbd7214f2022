/** A description whose programs use another FFN lowering than the dense one. */
import type { DecoderProgramOptions, EmbedderDescription, ModelDescription } from '@winnow/models';

/** FFN options of a program, by the maximum number of tokens per step. */
export type FeedForwardOptions = (maxTokens: number) => Pick<DecoderProgramOptions, 'feedForward' | 'experts'>;

export function withFeedForward<D extends EmbedderDescription | ModelDescription>(
  description: D,
  optionsOf: FeedForwardOptions,
): D {
  return {
    ...description,
    buildEmbeddingProgram: (options) =>
      description.buildEmbeddingProgram({ ...options, ...optionsOf(options.maxTokens) }),
    ...('buildProgram' in description
      ? {
          buildProgram: (options: DecoderProgramOptions) =>
            description.buildProgram({ ...options, ...optionsOf(options.maxTokens) }),
        }
      : {}),
  };
}
