/** Wraps a loaded embedding model of the engine as an `EmbeddingProvider`. */
import type { EmbeddingModel, ImageInput, TextOverflow } from '@winnow/engine';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { EmbeddingProvider, EmbedTextOptions, TextKind } from './provider.js';

export interface EmbeddingProviderOptions {
  /**
   * Whether to normalize vectors to length 1. Default true; set it to false for models that use unnormalized dot
   * products.
   */
  readonly normalize?: boolean;
  /** Number of leading dimensions to keep, for Matryoshka models. Default: as the model declares, else all. */
  readonly dimensions?: number;
  /** How to handle texts beyond the model's context. Default `error`. */
  readonly overflow?: TextOverflow;
  /**
   * Prefixes of queries and documents. Default: the model's prompts `query` and `document` if it has them, else its
   * default prompt.
   */
  readonly prompts?: Readonly<Partial<Record<TextKind, string>>>;
}

const optionNames: OptionNames<EmbeddingProviderOptions> = {
  normalize: true,
  dimensions: true,
  overflow: true,
  prompts: { query: true, document: true },
};
const embedNames: OptionNames<EmbedTextOptions> = { kind: true, signal: true };

/**
 * The provider does not own the model: the caller disposes of it, after which calls throw `ReleasedError`.
 * @throws {UnknownOptionError} for an option that does not exist
 * @throws {ArgumentError} for a number of dimensions that the model does not support
 */
export function createEmbeddingProvider(
  model: EmbeddingModel,
  options: EmbeddingProviderOptions = {},
): EmbeddingProvider {
  checkOptions(options, optionNames);
  const { normalize = true, overflow = 'error', prompts = {}, dimensions = model.dimensions } = options;
  checkDimensions(model, dimensions);

  async function embedBatch(texts: readonly string[], embedOptions: EmbedTextOptions = {}) {
    checkOptions(embedOptions, embedNames);
    const { kind = 'document', signal } = embedOptions;
    signal?.throwIfAborted();
    if (texts.length === 0) return [];
    return model.embed(texts, {
      normalize,
      overflow,
      dimensions,
      ...promptFor(model, prompts, kind),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  async function embedImages(
    images: readonly ImageInput[],
    { signal }: Pick<EmbedTextOptions, 'signal'> = {},
  ): Promise<Float32Array[]> {
    return model.embedImages(images, { normalize, ...(signal === undefined ? {} : { signal }) });
  }

  return {
    name: model.name,
    dimensions,
    isNormalized: normalize,
    maxTokens: model.contextSize,
    embedBatch,
    ...(model.takesImages ? { embedImages } : {}),
    async embed(text, embedOptions) {
      const [vector] = await embedBatch([text], embedOptions);
      return vector as Float32Array;
    },
  };
}

const kinds: readonly TextKind[] = ['query', 'document'];

function promptFor(
  model: EmbeddingModel,
  prompts: Readonly<Partial<Record<TextKind, string>>>,
  kind: TextKind,
): { prompt?: string; promptName?: string } {
  if (!kinds.includes(kind)) {
    throw new ArgumentError({ argument: 'kind', expected: kinds.join(' | '), actual: String(kind) });
  }
  const prompt = prompts[kind];
  if (prompt !== undefined) return { prompt };
  return Object.hasOwn(model.prompts, kind) ? { promptName: kind } : {};
}

/** The engine checks this on each call; this check reports it before the first one. */
function checkDimensions(model: EmbeddingModel, asked: number): void {
  const { dimensions, config, matryoshkaDimensions: cuts } = model;
  const { hiddenDim } = config;
  if (asked === dimensions || asked === hiddenDim || (typeof cuts !== 'string' && cuts.includes(asked))) return;
  if (cuts === 'any' && Number.isSafeInteger(asked) && asked > 0 && asked <= hiddenDim) return;
  let expected = String(dimensions);
  if (cuts === 'any') expected = `an integer from 1 to ${hiddenDim}`;
  else if (cuts !== 'none') expected = [...cuts, hiddenDim].join(' | ');
  throw new ArgumentError({ argument: 'dimensions', expected, actual: String(asked) });
}
