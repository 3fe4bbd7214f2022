/** A loaded embedding model. */
import type { DecoderConfig, EmbedderDescription, Pooling } from '@winnow/models';
import type { Executable, Fallback, RecordProfile } from '@winnow/ops';
import { ArgumentError, NonFiniteError, checkOptions, finish, type OptionNames } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { RgbImage } from '@winnow/vision';
import type { ImageEncoder, ImageInput } from '../images/image-encoder.js';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import type { NonFiniteSearch } from '../memory/non-finite-search.js';
import { StepReports } from '../memory/step-reports.js';
import type { FeedForwardMetrics } from '../metrics/feed-forward.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import { runSliced } from '../runtime/compilation.js';
import { createFeedForwardAccess, readFeedForward, type FeedForwardParts } from '../sparsity/feed-forward-trace.js';
import type { FeedForwardAccess, FeedForwardTrace } from '../sparsity/feed-forward.js';
import type { EmbeddingPlan } from './plan.js';
import { textKindOf, textKindsOf, type TextKind, type TextKinds } from './late-interaction.js';
import { EmbeddingRun, type EmbeddedText, type EmbeddingProgress } from './run.js';
import { namedPrompt, type EmbeddingSettings } from './settings.js';
import { EmbeddingStep } from './step.js';
import {
  checkTokenOutputs,
  sparseVectorOf,
  TokenOutputReader,
  tokenOutputsOf,
  type SparseVector,
  type TokenOutput,
  type TokenValues,
} from './token-outputs.js';
import { Turns } from './turns.js';
import type { EmbeddingInput, TextOverflow } from './text.js';
import { TextFitter } from './text-fitter.js';

export interface EmbedOptions {
  /** Whether vectors are normalized to length 1. Default true, unless the model was trained for dot products. */
  readonly normalize?: boolean;
  /** What to do with texts beyond the context. Default `error`. */
  readonly overflow?: TextOverflow;
  /** Number of leading dimensions to keep (Matryoshka models). Default: as the model declares, else all. */
  readonly dimensions?: number;
  /** Prefix of each text, but not of token ids. Default: the model's default prompt, if it has one. */
  readonly prompt?: string;
  /** Name of one of the model's `prompts`, instead of `prompt`. Default: none. @throws ArgumentError for another name */
  readonly promptName?: string;
  readonly signal?: AbortSignal;
  /** Called after every step. */
  readonly onProgress?: (progress: EmbeddingProgress) => void;
}

const embedOptionNames: OptionNames<EmbedOptions> = {
  normalize: true,
  overflow: true,
  dimensions: true,
  prompt: true,
  promptName: true,
  signal: true,
  onProgress: true,
};

/** Options of `embedTexts`. */
export interface EmbedTextsOptions extends EmbedOptions {
  /** What to return besides vectors; `tokenOutputs` of the model lists what it has. Default: nothing. */
  readonly outputs?: readonly TokenOutput[];
}

const embedTextsNames: OptionNames<EmbedTextsOptions> = { ...embedOptionNames, outputs: true };

/** Options of `embedImages`. */
export type EmbedImageOptions = Pick<EmbedOptions, 'normalize' | 'signal'>;

const imageOptionNames: OptionNames<EmbedImageOptions> = { normalize: true, signal: true };
const encodeOptionNames: OptionNames<Pick<EmbedOptions, 'prompt' | 'promptName'>> = { prompt: true, promptName: true };

/** The vector of a text and its token counts. */
export interface TextEmbedding {
  /** Empty in models with multi-vectors only. */
  readonly vector: Float32Array;
  /** Number of tokens computed, including special tokens. */
  readonly numTokens: number;
  /** Number of chunks that the text was embedded in. */
  readonly numChunks: number;
  /** Number of truncated tokens; more than 0 only with `truncate`. */
  readonly numDroppedTokens: number;
  /** With the output `sparse`: the lexical weight of each token id, without special tokens and unknown ones. */
  readonly sparse?: SparseVector;
  /**
   * With the output `multiVector`: a vector per token, of length 1 unless `normalize` is false. Models that also have vectors of
   * whole texts have none for the first token, and ColBERT models none for punctuation in documents. The tokens of chunks follow
   * each other.
   */
  readonly multiVector?: readonly Float32Array[];
}

/** A model that turns texts into vectors. */
export interface EmbeddingModel {
  readonly name: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly pooling: Pooling;
  /** Values of a vector, or of each multi-vector where the model has only these. */
  readonly dimensions: number;
  /** Dimensions that vectors may be truncated to: those listed, or any. */
  readonly matryoshkaDimensions: readonly number[] | 'any' | 'none';
  /** Prefixes by purpose, such as `query` and `document`. */
  readonly prompts: Readonly<Record<string, string>>;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  readonly backend: string;
  readonly fallbacks: readonly Fallback[];
  /** Notices about how the model was loaded. */
  readonly notices: readonly string[];
  /**
   * One vector per text, in the same order. The vectors do not depend on the order. Concurrent calls take turns.
   * @throws {CapacityError} for a text of more than `contextSize` tokens, unless `overflow` says what to do
   * @throws {ArgumentError} for an empty text, ids outside the vocabulary, and unsupported dimensions
   * @throws {NonFiniteError} naming the first tensor with a value that is not finite, if the vectors have one
   * @throws the signal's reason when aborted
   */
  embed(texts: readonly EmbeddingInput[], options?: EmbedOptions): Promise<Float32Array[]>;
  /**
   * The same with token counts, and with the outputs of the options.
   * @throws {ArgumentError} as `embed`, and for outputs that the model lacks
   */
  embedTexts(texts: readonly EmbeddingInput[], options?: EmbedTextsOptions): Promise<TextEmbedding[]>;
  /** What `embedTexts` can return besides vectors. */
  readonly tokenOutputs: readonly TokenOutput[];
  /** Whether the model embeds images too, into the space of its texts. */
  readonly takesImages: boolean;
  /**
   * One vector per image, in the same order: of PNG, JPEG and WebP files, or of pixels. Concurrent calls take turns.
   * @throws {ArgumentError} for a model that takes no images, and for an input that is neither bytes nor pixels
   * @throws {FormatError} for a file of another format, or a broken one
   * @throws {CapacityError} for an image that is too large, before it is decoded
   * @throws {NonFiniteError} as `embed`
   * @throws the signal's reason when aborted
   */
  embedImages(images: readonly ImageInput[], options?: EmbedImageOptions): Promise<Float32Array[]>;
  /** Tokens of a text, including special tokens, without mask tokens that fill up queries. @throws {ArgumentError} as `embed` */
  encodeText(text: EmbeddingInput, options?: Pick<EmbedOptions, 'prompt' | 'promptName'>): Int32Array;
  /** Inputs and weights of the FFNs, when loaded with `trace.feedForward`. */
  readonly feedForward: FeedForwardAccess | undefined;
  /** What sparse or offloaded FFNs computed and read since loading; `undefined` for dense ones. */
  feedForwardMetrics(): FeedForwardMetrics | undefined;
  /** Per op, when loaded with `profile`. */
  profile(): readonly RecordProfile[];
  /** Frees everything after the step that is running; calls in progress end with `ReleasedError`. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Parts of every model that reads whole texts. */
export interface TextModelParts {
  readonly name: string;
  readonly backend: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly plan: EmbeddingPlan;
  readonly executable: Executable;
  readonly notices: readonly string[];
  readonly feedForwardMetrics: () => FeedForwardMetrics | undefined;
  /** With `trace.feedForward`. */
  readonly traced: Omit<FeedForwardParts, 'trace' | 'exclusive'> | undefined;
  readonly deviceRecovery: DeviceRecovery;
  readonly nonFinite: NonFiniteSearch;
  /** For models that take images. */
  readonly images: ImageEncoder | undefined;
  /** Frees program, weights and scratch. */
  readonly release: () => Promise<void>;
}

export interface TextEmbedderParts extends TextModelParts {
  readonly settings: EmbeddingSettings;
  readonly padding: EmbedderDescription['padding'];
}

/** Below this norm a vector has no direction and is not normalized. */
const minNorm = 1e-12;

/** Public members are properties, so that a model can be spread into another one that replaces some of them. */
export class TextEmbedder implements EmbeddingModel {
  readonly name: string;
  readonly backend: string;
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly pooling: Pooling;
  readonly dimensions: number;
  readonly matryoshkaDimensions: readonly number[] | 'any' | 'none';
  readonly prompts: Readonly<Record<string, string>>;
  readonly contextSize: number;
  readonly plan: MemoryPlan;
  readonly fallbacks: readonly Fallback[];
  readonly notices: readonly string[];
  readonly takesImages: boolean;
  readonly tokenOutputs: readonly TokenOutput[];
  readonly feedForward: FeedForwardAccess | undefined;
  readonly #parts: TextEmbedderParts;
  readonly #step: EmbeddingStep;
  readonly #fitter: TextFitter;
  /** For models with multi-vectors only. */
  readonly #kinds: TextKinds | undefined;
  readonly #turns = new Turns();

  constructor(parts: TextEmbedderParts) {
    const { config, tokenizer, settings, plan, executable } = parts;
    this.name = parts.name;
    this.backend = parts.backend;
    this.config = config;
    this.tokenizer = tokenizer;
    this.pooling = plan.pooling;
    this.matryoshkaDimensions = settings.matryoshkaDimensions;
    this.prompts = settings.prompts;
    this.contextSize = plan.contextSize;
    this.plan = plan.memory;
    this.fallbacks = executable.fallbacks;
    this.notices = parts.notices;
    this.takesImages = parts.images !== undefined;
    this.tokenOutputs = [...tokenOutputsOf(executable.program).keys()];
    this.#parts = parts;
    const output = { name: 'embeddings', size: config.hiddenDim } as const;
    this.#step = new EmbeddingStep(executable, parts.deviceRecovery, plan, output);
    const { isLowerCased, lateInteraction } = settings;
    const { contextSize } = plan;
    const { vocabSize } = config;
    this.#fitter = new TextFitter({ tokenizer, vocabSize, contextSize, isLowerCased, padding: parts.padding });
    this.#kinds = lateInteraction && textKindsOf(lateInteraction, tokenizer, contextSize);
    this.dimensions = this.#dimensionsOf(undefined);
    this.feedForward = this.#feedForwardAccess();
  }

  readonly embed: EmbeddingModel['embed'] = async (texts, options = {}) => {
    checkOptions(options, embedOptionNames);
    return (await this.embedTexts(texts, options)).map(({ vector }) => vector);
  };

  readonly embedTexts: EmbeddingModel['embedTexts'] = async (
    inputs: readonly EmbeddingInput[],
    options: EmbedTextsOptions = {},
  ) => {
    checkOptions(options, embedTextsNames);
    this.#turns.checkOpen();
    const { executable, settings } = this.#parts;
    const { overflow = 'error', normalize = settings.normalizes, outputs = [], signal, onProgress } = options;
    checkOverflow(overflow);
    checkTokenOutputs(outputs, tokenOutputsOf(executable.program));
    const dimensions = this.#dimensionsOf(options.dimensions);
    const kind = this.#kindOf(options);
    this.#checkVectors(outputs);
    signal?.throwIfAborted();
    return this.#turns.take(async () => {
      // checks all texts first, so that a rejected one costs nothing
      const texts = await runSliced(this.#fitter.fitAll(inputs, kind, overflow), signal);
      const check = (): void => this.#turns.checkOpen();
      const reader = outputs.length === 0 ? undefined : new TokenOutputReader(executable, outputs, this.tokenizer);
      const run = new EmbeddingRun(this.#step, texts, this.config.hiddenDim, { check, signal, onProgress, reader });
      const embedded = await run.embed();
      await this.#checkFinite(embedded, reader?.nonFinite);
      return embedded.map((text) => ({
        vector: this.#kinds === undefined ? vectorOf(text, dimensions, normalize) : new Float32Array(0),
        numTokens: text.numTokens,
        numChunks: text.chunks.length,
        numDroppedTokens: text.numDroppedTokens,
        ...(outputs.includes('sparse') ? { sparse: sparseVectorOf(text.tokenValues.weights) } : {}),
        ...(outputs.includes('multiVector') ? { multiVector: unitVectorsOf(text.tokenValues, normalize) } : {}),
      }));
    });
  };

  readonly embedImages: EmbeddingModel['embedImages'] = async (images, options = {}) => {
    checkOptions(options, imageOptionNames);
    this.#turns.checkOpen();
    const { images: encoder, settings } = this.#parts;
    const { normalize = settings.normalizes, signal } = options;
    if (encoder === undefined) {
      const expected = 'a model with an image encoder, such as CLIP or SigLIP';
      throw new ArgumentError({ argument: 'images', expected, actual: this.config.architecture });
    }
    signal?.throwIfAborted();
    return this.#turns.take(async () => {
      const vectors: Float32Array[] = [];
      for (const [index, image] of images.entries()) {
        this.#turns.checkOpen();
        const { tiles } = await encoder.process(image, `images[${index}]`);
        const row = await encoder.encode(tiles[0] as RgbImage, signal);
        const text = { sum: Float64Array.from(row), numTokens: 1 };
        await this.#checkFinite([text]);
        vectors.push(vectorOf(text, row.length, normalize));
      }
      return vectors;
    });
  };

  readonly encodeText: EmbeddingModel['encodeText'] = (text, options = {}) => {
    checkOptions(options, encodeOptionNames);
    return finish(this.#fitter.encode(text, this.#kindOf(options), 'text'));
  };

  readonly feedForwardMetrics: EmbeddingModel['feedForwardMetrics'] = () => {
    return this.#parts.feedForwardMetrics();
  };

  readonly profile: EmbeddingModel['profile'] = () => {
    return this.#parts.executable.profile();
  };

  readonly dispose: EmbeddingModel['dispose'] = () => {
    return this.#turns.dispose(() => this.#parts.release());
  };

  readonly [Symbol.asyncDispose]: () => Promise<void> = () => this.dispose();

  /** @param found a value that is not finite in other outputs @throws {NonFiniteError} */
  async #checkFinite(texts: readonly Pick<EmbeddedText, 'sum'>[], found?: number): Promise<void> {
    for (const { sum } of texts) {
      const value = sum.find((element) => !Number.isFinite(element)) ?? found;
      if (value !== undefined) await this.#parts.nonFinite.fail(new NonFiniteError({ result: 'embeddings', value }));
    }
  }

  /** @throws {ArgumentError} */
  #kindOf({ prompt, promptName }: Pick<EmbedOptions, 'prompt' | 'promptName'>): TextKind {
    const { settings } = this.#parts;
    if (prompt !== undefined && promptName !== undefined) {
      const expected = 'no promptName together with a prompt';
      throw new ArgumentError({ argument: 'promptName', expected, actual: promptName });
    }
    if (this.#kinds !== undefined) return textKindOf(this.#kinds, prompt, promptName);
    const prefix =
      promptName === undefined ? (prompt ?? settings.defaultPrompt) : namedPrompt(settings.prompts, promptName);
    if (prefix === '' || !settings.skipsPrompt) return { prefix };
    const expected = 'none, since the pooling of this model would have to skip the prompt, which is not supported';
    throw new ArgumentError({ argument: 'prompt', expected, actual: JSON.stringify(prefix) });
  }

  /** @throws {ArgumentError} when the model has only multi-vectors, and `outputs` does not include them */
  #checkVectors(outputs: readonly TokenOutput[]): void {
    if (this.#kinds === undefined || outputs.includes('multiVector')) return;
    const expected = `multiVector in embedTexts, since ${this.name} has no vectors of whole texts`;
    throw new ArgumentError({ argument: 'outputs', expected, actual: outputs.join(', ') || 'none' });
  }

  #dimensionsOf(asked: number | undefined): number {
    const { settings, executable } = this.#parts;
    const { defaultDimensions } = settings;
    // multi-vectors are not truncated
    const known = this.#kinds === undefined ? settings.matryoshkaDimensions : 'none';
    const width = this.#kinds && tokenOutputsOf(executable.program).get('multiVector');
    const hiddenDim = width ?? this.config.hiddenDim;
    if (asked === undefined) return Math.min(defaultDimensions ?? hiddenDim, hiddenDim);
    const fits = Number.isSafeInteger(asked) && asked > 0 && asked <= hiddenDim;
    const isKnown = known === 'any' || (known !== 'none' && known.includes(asked));
    if (fits && (isKnown || asked === hiddenDim || asked === defaultDimensions)) return asked;
    let expected = `an integer from 1 to ${hiddenDim}`;
    if (known === 'none') expected = `${hiddenDim}, since the model does not declare Matryoshka dimensions`;
    else if (known !== 'any') expected = [...known, hiddenDim].join(' | ');
    throw new ArgumentError({ argument: 'dimensions', expected, actual: String(asked) });
  }

  #feedForwardAccess(): FeedForwardAccess | undefined {
    const { traced } = this.#parts;
    return (
      traced &&
      createFeedForwardAccess({
        ...traced,
        exclusive: (task) => this.#turns.take(task),
        trace: (tokens, onLayer, { signal } = {}) => this.#turns.take(() => this.#trace(tokens, onLayer, signal)),
      })
    );
  }

  async #trace(
    tokens: ArrayLike<number>,
    onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    this.#turns.checkOpen();
    const { traced, executable } = this.#parts;
    const ids = Int32Array.from(tokens);
    if (ids.length === 0 || ids.length > this.contextSize) {
      const expected = `1 to ${this.contextSize} tokens`;
      throw new ArgumentError({ argument: 'tokens', expected, actual: `${ids.length} tokens` });
    }
    const reports = new StepReports();
    this.#step.add(ids);
    await this.#step.run(signal, () => {
      reports.begin(0);
      const step = { begin: 0, numTokens: ids.length, reports };
      return readFeedForward(traced?.layers ?? [], (...wanted) => executable.read(...wanted), step, onLayer);
    });
  }
}

/** The mean of a text's vectors, truncated to `dimensions` and optionally normalized. */
function vectorOf(
  { sum, numTokens }: { readonly sum: ArrayLike<number>; readonly numTokens: number },
  dimensions: number,
  normalize: boolean,
): Float32Array {
  let squares = 0;
  for (let i = 0; i < dimensions; i++) squares += ((sum[i] as number) / numTokens) ** 2;
  const divisor = normalize ? numTokens * Math.max(Math.sqrt(squares), minNorm) : numTokens;
  return Float32Array.from({ length: dimensions }, (_, i) => (sum[i] as number) / divisor);
}

function unitVectorsOf({ vectors }: TokenValues, normalize: boolean): Float32Array[] {
  return normalize ? vectors.map((row) => vectorOf({ sum: row, numTokens: 1 }, row.length, true)) : vectors;
}

function checkOverflow(overflow: TextOverflow): void {
  const known: readonly TextOverflow[] = ['error', 'truncate', 'chunk-average'];
  if (known.includes(overflow)) return;
  throw new ArgumentError({ argument: 'overflow', expected: known.join(' | '), actual: String(overflow) });
}
