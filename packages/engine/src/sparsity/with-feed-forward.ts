/** A description whose programs compute their FFNs in another way than with all neurons in memory. */
import type { DecoderProgramOptions, EmbedderDescription, ModelDescription } from '@winnow/models';

/** What a program gets, by the most tokens of its steps. */
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
