/**
 * The parts that all decoder programs share: inputs of a step, KV cache, embedding, and the output from final norm to
 * logits.
 */
import {
  ProgramBuilder,
  lowerDenseAttention,
  type LayerAttention,
  type AttentionLowering,
  type FeedForwardLowering,
  type KvDTypes,
  type KvView,
  type ProgramTensor,
} from '@winnow/ops';
import { ArgumentError, dtypeInfo, type DType } from '@winnow/tensor';
import type { ModelDescription } from './architecture.js';
import { kvHeadsOf, kvLayerOf, type DecoderConfig } from './config.js';
import type { ExpertPlacement } from './expert-placement.js';

/** Size of the KV cache, which all sequences share. */
export interface KvCacheShape {
  readonly numBlocks: number;
  /** Slots per block. */
  readonly blockSize: number;
  /** Maximum number of blocks per sequence. */
  readonly maxBlocksPerSequence: number;
  readonly dtype: KvDTypes;
}

/**
 * Capacities of a program. A step is a flat list of tokens of one or more sequences; the scalar slots to fill are
 * `tokens`, `positions`, `sequences`, `slots` `[T]`, `outputRows` `[R]`, `contextLengths` `[B]`, `blockTable` `[B, M]`;
 * models with recurrent layers also have `stateFrom` and `stateTo` `[B]`: the rows of the states that a sequence continues
 * from (-1 for a new sequence) and stores its new states to.
 */
export interface DecoderProgramOptions {
  /** Maximum number of tokens per step (symbol T). */
  readonly maxTokens: number;
  /** Maximum number of sequences per step (symbol B). */
  readonly maxSequences: number;
  /** Maximum number of logit rows per step (symbol R). */
  readonly maxOutputRows: number;
  readonly cache: KvCacheShape;
  /** Number of top tokens in the `topValues` and `topIndices` outputs. */
  readonly topK: number;
  /** Maximum context length, for models whose RoPE depends on it. Default: the cache capacity of one sequence. */
  readonly contextSize?: number;
  /** Number of rows in the buffers of recurrent states. Default: one per sequence. */
  readonly numStates?: number;
  /** Whether keys and queries are rotated by a Hadamard matrix. Default false. */
  readonly rotateKeys?: boolean;
  /** The attention lowering. Default: dense attention. */
  readonly attention?: AttentionLowering;
  /** The FFN lowering, which does not apply to experts and to FFNs with adapters. Default: dense. */
  readonly feedForward?: FeedForwardLowering;
  /** Placement of the experts. Default: all in the model's weights. */
  readonly experts?: ExpertPlacement;
  /** Prefix of the names of weights and buffers, for an encoder that is loaded with a decoder. Default: none. */
  readonly namePrefix?: string;
}

/** Names of the KV cache buffers. */
export function kvBufferNames(layer: number): { keys: string; values: string } {
  return { keys: `kv.${layer}.keys`, values: `kv.${layer}.values` };
}

/**
 * The head dimension that a cache of this dtype stores: whole blocks, the last one zero-padded. The padding changes
 * neither dot products nor the other values.
 */
export function storedHeadDim(headDim: number, dtype: DType): number {
  const { blockSize } = dtypeInfo(dtype);
  return Math.ceil(headDim / blockSize) * blockSize;
}

/** Name of the buffer of a recurrent state of a layer, with one row per state; all names begin with `state.`. */
export function stateBufferName(layer: number, kind: string): string {
  return `state.${layer}.${kind}`;
}

/** Name of the buffer with the position of each slot, shared by all layers. */
export const slotPositionsName = 'kv.slotPositions';

/** Name of the scalar slot with the segment of each token. */
export const tokenTypesSlot = 'tokenTypes';

/** Name of the scalar slot with the row of RoPE frequencies of each token: see `RotaryLengths`. */
export const rotaryRowsSlot = 'rotaryRows';

/** Name of the scalar slot with the position by which RoPE rotates each token, in models with M-RoPE. */
export const imagePositionsSlot = 'imagePositions';

/** Name of the buffer with the frequencies for text and the angles for rows of images, for steps of up to `maxTokens` tokens. */
export function imageAnglesName(maxTokens: number): string {
  return `slots.angles.${maxTokens}`;
}

/** Name of the constant with the RoPE frequencies. */
export const ropeFrequenciesName = 'rope.frequencies';

/** Looks up a weight of the model; `undefined` for an optional one that the file lacks. */
export type WeightOf = (name: string) => ProgramTensor | undefined;

/** The attention of one layer; `k` and `v` are stored first. Layers that `kvLayers` gives those of another have none. */
export interface AttentionRequest extends Pick<LayerAttention, 'q' | 'scale'>, Partial<StepKeys> {
  /** Default 0: all keys. */
  readonly window?: number;
  /** As in `LayerAttention`. */
  readonly chunked?: boolean;
  /** Default 0: none. */
  readonly softCap?: number;
  /** Learned sinks `[N]`, as in `LayerAttention`. */
  readonly sinkLogits?: ProgramTensor;
  /** Biases of the logits by relative position `[R, N]`, as in `LayerAttention`. */
  readonly positionBias?: ProgramTensor;
  /** Positions and sequences of the rows of q, where these are not the step's tokens. Default: those of the tokens. */
  readonly rows?: Pick<LayerAttention, 'positions' | 'sequences'>;
  /** Default: the query unchanged, for models without RoPE. */
  readonly rotateQuery?: LayerAttention['rotateQuery'];
}

/** Keys and values of the tokens of a step. */
type StepKeys = Pick<LayerAttention, 'k' | 'v'>;

/** Clamps windows, because attributes are 32-bit integers; a window of this size never excludes a key. */
const maxWindow = 2 ** 31 - 1;

/** The context in which a layer appends its op records. */
export interface DecoderStep {
  readonly b: ProgramBuilder;
  readonly config: DecoderConfig;
  /** A required weight. */
  weight(name: string): ProgramTensor;
  readonly optionalWeight: WeightOf;
  /** Whether the model has the weight; does not declare it in the program. */
  hasWeight(name: string): boolean;
  constant(name: string): ProgramTensor;
  /** The ids of the step's tokens, `[T]`. */
  tokens(): ProgramTensor;
  /** Integers `[T]`, all 0. */
  zeros(): ProgramTensor;
  /** The row of RoPE frequencies of each token, `[T]`, in models where it depends on the length of the sequence. */
  rotaryRows(): ProgramTensor;
  /** The row of the image that each token stands for, `[T, imageDim]`; zeros for text. */
  imageRows(): ProgramTensor;
  /**
   * The inputs of `rope` in generative programs with M-RoPE: each row of an image has its own row of angles and position 1; tokens of
   * text have the frequencies of row 0 and their own position. `undefined` in other programs.
   */
  imageRotation(numPairs: number): Readonly<Record<'positions' | 'rows' | 'frequencies', ProgramTensor>> | undefined;
  /** The segment of each token of a pair of texts, `[T]`; all 0 for single texts. */
  tokenTypes(): ProgramTensor;
  readonly positions: ProgramTensor;
  readonly sequences: ProgramTensor;
  readonly slots: ProgramTensor;
  readonly contextLengths: ProgramTensor;
  /** Maximum number of tokens of a sequence. */
  readonly contextSize: number;
  /** Stores the step's keys and values and appends attention by the policy of the program: `[T, N, D]`. */
  attend(layer: number, request: AttentionRequest): ProgramTensor;
  /** The recurrent states of a layer: `[numStates, ...shape]`, f32. */
  state(layer: number, kind: string, shape: readonly number[]): ProgramTensor;
  readonly feedForward: FeedForwardLowering | undefined;
  readonly experts: ExpertPlacement | undefined;
  /** The inputs that recurrent ops need about the sequences. */
  stateInputs(): Readonly<Record<'sequences' | 'stateFrom' | 'stateTo', ProgramTensor>>;
}

function found(name: string, tensor: ProgramTensor | undefined): ProgramTensor {
  if (tensor === undefined) throw new ArgumentError({ argument: 'weight', expected: name, actual: 'nothing' });
  return tensor;
}

/**
 * Starts a program: declares the inputs of a step and stores the positions of its tokens. Methods are arrow functions where layers
 * destructure a step.
 */
export class DecoderStepBuilder implements DecoderStep {
  readonly b: ProgramBuilder;
  readonly config: DecoderConfig;
  readonly positions: ProgramTensor;
  readonly sequences: ProgramTensor;
  readonly slots: ProgramTensor;
  readonly contextLengths: ProgramTensor;
  readonly contextSize: number;
  readonly feedForward: FeedForwardLowering | undefined;
  readonly experts: ExpertPlacement | undefined;
  readonly #model: Pick<ModelDescription, 'weights' | 'constants'>;
  readonly #options: DecoderProgramOptions;
  readonly #hasOneCache: boolean;
  readonly #prefix: string;
  readonly #numStates: number;
  readonly #blockTable: ProgramTensor;
  readonly #slotPositions: ProgramTensor;
  /** By layer, as stored. */
  readonly #stepKeys = new Map<number, StepKeys>();
  #states: ReturnType<DecoderStep['stateInputs']> | undefined;
  #tokens: ProgramTensor | undefined;
  #zeros: ProgramTensor | undefined;
  #tokenTypes: ProgramTensor | undefined;
  #rotaryRows: ProgramTensor | undefined;
  #imageRows: ProgramTensor | undefined;
  #imageRotation: ReturnType<DecoderStep['imageRotation']>;

  /** @param hasOneCache whether all layers share one cache, which is possible when steps contain whole sequences */
  constructor(
    { config, weights, constants }: Pick<ModelDescription, 'config' | 'weights' | 'constants'>,
    options: DecoderProgramOptions,
    hasOneCache = false,
  ) {
    const { maxTokens, maxSequences, maxOutputRows, cache } = options;
    const { numBlocks, blockSize, maxBlocksPerSequence } = cache;
    const b = new ProgramBuilder({ T: maxTokens, B: maxSequences, R: maxOutputRows });
    this.b = b;
    this.config = config;
    this.#model = { weights, constants };
    this.#options = options;
    this.#hasOneCache = hasOneCache;
    this.#numStates = options.numStates ?? maxSequences;
    this.contextSize = options.contextSize ?? maxBlocksPerSequence * blockSize;
    this.feedForward = options.feedForward;
    this.experts = options.experts;
    this.positions = b.scalar('positions', ['T']);
    this.sequences = b.scalar('sequences', ['T']);
    this.slots = b.scalar('slots', ['T']);
    this.contextLengths = b.scalar('contextLengths', ['B']);
    this.#blockTable = b.scalar('blockTable', ['B', maxBlocksPerSequence]);
    this.#prefix = options.namePrefix ?? '';
    this.#slotPositions = b.external(this.#prefix + slotPositionsName, 'kv', 'i32', [numBlocks, blockSize]);
    const { slots, positions } = this;
    b.append('position-append', { slots, positions }, {}, { slotPositions: this.#slotPositions });
  }

  readonly optionalWeight: WeightOf = (name) => {
    const own = this.#prefix + name;
    const weight = this.#model.weights.get(own);
    return weight === undefined ? undefined : this.b.external(own, 'weights', weight.dtype, weight.shape);
  };

  readonly weight = (name: string): ProgramTensor => found(name, this.optionalWeight(name));

  readonly hasWeight = (name: string): boolean => this.#model.weights.has(this.#prefix + name);

  readonly constant = (name: string): ProgramTensor => {
    const values = this.#model.constants.get(name);
    return found(name, values && this.b.external(name, 'weights', 'f32', [values.length]));
  };

  readonly rotaryRows = (): ProgramTensor => (this.#rotaryRows ??= this.b.scalar(rotaryRowsSlot, ['T']));

  readonly imageRows = (): ProgramTensor => {
    const { b, config } = this;
    const maxTokens = b.capacity('T');
    const shape = [1 + maxTokens, config.imageDim ?? config.hiddenDim];
    this.#imageRows ??= b.activation('embedding-lookup', {
      table: b.external(imageRowsName(maxTokens), 'kv', 'f32', shape),
      tokens: b.scalar(imageRowsSlot, ['T']),
    });
    return this.#imageRows;
  };

  readonly imageRotation: DecoderStep['imageRotation'] = (numPairs) => {
    const { b, config } = this;
    if (config.imageTokenId === undefined || this.#hasOneCache) return undefined;
    const maxTokens = b.capacity('T');
    this.#imageRotation ??= {
      positions: b.scalar(imagePositionsSlot, ['T']),
      rows: this.rotaryRows(),
      frequencies: b.external(imageAnglesName(maxTokens), 'kv', 'f32', [(1 + maxTokens) * numPairs]),
    };
    return this.#imageRotation;
  };

  readonly tokenTypes = (): ProgramTensor => (this.#tokenTypes ??= this.b.scalar(tokenTypesSlot, ['T']));

  readonly tokens = (): ProgramTensor => (this.#tokens ??= this.b.scalar('tokens', ['T']));

  readonly zeros = (): ProgramTensor => (this.#zeros ??= this.b.scalar('zeros', ['T']));

  readonly state = (layer: number, kind: string, shape: readonly number[]): ProgramTensor =>
    this.b.external(stateBufferName(layer, kind), 'kv', 'f32', [this.#numStates, ...shape]);

  readonly stateInputs: DecoderStep['stateInputs'] = () => {
    const { b, sequences } = this;
    this.#states ??= { sequences, stateFrom: b.scalar('stateFrom', ['B']), stateTo: b.scalar('stateTo', ['B']) };
    return this.#states;
  };

  readonly attend = (layer: number, request: AttentionRequest): ProgramTensor => {
    const { b, config, positions, sequences, slots } = this;
    const { scale, window = 0, chunked = false, softCap = 0, sinkLogits, positionBias, rotateQuery, rows } = request;
    const { cache, attention = lowerDenseAttention, rotateKeys = false } = this.#options;
    const { headDim } = kvHeadsOf(config, layer);
    const keyDim = storedHeadDim(headDim, cache.dtype.keys);
    const kvLayer = kvLayerOf(config, layer);
    const kv = this.#kvOf(kvLayer);
    const toKey = (x: ProgramTensor): ProgramTensor =>
      this.#resized(rotateKeys ? b.activation('hadamard', { x }) : x, keyDim);
    const q = toKey(request.q);
    if (request.k !== undefined && request.v !== undefined) {
      const [k, v] = [toKey(request.k), this.#resized(request.v, storedHeadDim(headDim, cache.dtype.values))];
      b.append('kv-append', { k, v, slots }, {}, { keys: kv.keys, values: kv.values });
      this.#stepKeys.set(layer, { k, v });
    }
    const { k, v } = this.#stepKeysOf(kvLayer);
    const y = attention(b, {
      ...{ layer, kvLayer, q, k, v, positions, sequences, slots, kv, scale, chunked, softCap, ...rows },
      window: Math.min(window, maxWindow),
      ...(sinkLogits === undefined ? {} : { sinkLogits }),
      ...(positionBias === undefined ? {} : { positionBias }),
      rotateQuery: rotateQuery === undefined ? () => q : (at) => toKey(rotateQuery(at)),
      states: () => ({ numStates: this.#numStates, ...this.stateInputs() }),
    });
    return this.#resized(y, headDim);
  };

  #stepKeysOf(layer: number): StepKeys {
    const keys = this.#stepKeys.get(layer);
    if (keys !== undefined) return keys;
    throw new ArgumentError({ argument: 'attend', expected: `keys and values of layer ${layer}`, actual: 'none' });
  }

  /** Truncates or zero-pads the head dimension. */
  #resized(x: ProgramTensor, length: number): ProgramTensor {
    return x.shape.at(-1) === length ? x : this.b.activation('slice-columns', { x }, { begin: 0, length, pads: true });
  }

  #kvOf(layer: number): KvView {
    const { b, config, contextLengths } = this;
    const { numBlocks, blockSize, dtype } = this.#options.cache;
    const names = kvBufferNames(this.#hasOneCache ? scratchLayerOf(config, layer) : layer);
    const { numKvHeads, headDim } = kvHeadsOf(config, layer);
    const shapeOf = (each: DType): number[] => [numBlocks, numKvHeads, blockSize, storedHeadDim(headDim, each)];
    return {
      keys: b.external(this.#prefix + names.keys, 'kv', dtype.keys, shapeOf(dtype.keys)),
      values: b.external(this.#prefix + names.values, 'kv', dtype.values, shapeOf(dtype.values)),
      slotPositions: this.#slotPositions,
      blockTable: this.#blockTable,
      contextLengths,
    };
  }
}

/** The layer whose buffers a layer uses in steps of whole sequences: those of an earlier one with equal heads that no later layer reads. */
function scratchLayerOf(config: DecoderConfig, layer: number): number {
  const isRead = (one: number): boolean => config.kvLayers?.some((from, other) => from === one && other > one) === true;
  if (isRead(layer)) return layer;
  const { headDim, numKvHeads } = kvHeadsOf(config, layer);
  for (let other = 0; other < layer; other++) {
    const heads = kvHeadsOf(config, other);
    if (heads.headDim === headDim && heads.numKvHeads === numKvHeads && !isRead(other)) return other;
  }
  return layer;
}

/**
 * Adds the adapters of a matrix to its product `y` with `x`: `y + B (A x)`.
 * @param rowsOf the rows of B that correspond to `y`. Default: all
 */
export function addAdapted(
  { b, optionalWeight }: DecoderStep,
  name: string,
  x: ProgramTensor,
  y: ProgramTensor,
  rowsOf = (factor: ProgramTensor): ProgramTensor => factor,
): ProgramTensor {
  const [down, up] = [optionalWeight(`${name}.lora_a`), optionalWeight(`${name}.lora_b`)];
  if (down === undefined || up === undefined) return y;
  const low = b.activation('matmul', { x, weight: down });
  return b.activation('add', { a: y, b: b.activation('matmul', { x: low, weight: rowsOf(up) }) });
}

/** Name of the scalar slot with the row of an image that each token stands for, `[T]`; 0 for tokens of text. */
export const imageRowsSlot = 'imageRows';

/** Name of the buffer with the rows of images for steps of up to `maxTokens` tokens: `[1 + T, imageDim]`; the first is zero. */
export function imageRowsName(maxTokens: number): string {
  return `slots.images.${maxTokens}`;
}

/**
 * Looks up the embeddings of the step's tokens, `[T, hiddenDim]`. In models that take images, rows of images are added to the
 * embedding of the image token, which vision programs have subtracted from them.
 */
export function embedTokens(step: DecoderStep, scale = 1): ProgramTensor {
  const { b, weight, config } = step;
  const table = weight('token_embd.weight');
  const x = b.activation('embedding-lookup', { table, tokens: step.tokens() }, { scale });
  return config.imageTokenId === undefined ? x : addImageRows(step, x, 0);
}

/** Adds part `index` of the rows of images, `[T, hiddenDim]`, to the hidden states; text gets zeros. */
export function addImageRows(step: DecoderStep, x: ProgramTensor, index: number): ProgramTensor {
  const { b, config } = step;
  const { hiddenDim: length, imageDim = length } = config;
  const rows = step.imageRows();
  const part =
    imageDim === length ? rows : b.activation('slice-columns', { x: rows }, { begin: index * length, length });
  return b.activation('add', { a: x, b: part });
}

/** The part of a program after the last layer. */
export interface DecoderOutput {
  /** The norm before the output matrix. */
  readonly normalize: (rows: ProgramTensor) => ProgramTensor;
  readonly topK: number;
  /** Soft cap of the logits. Default 0: none. */
  readonly softCap: number | undefined;
  /** Factor of the logits. Default: 1. */
  readonly logitScale: number | undefined;
}

/**
 * Completes a program: gathers the output rows and applies `normalize` and the output matrix; writes the outputs
 * `logits` `[R, V]`, `argMax` `[R]`, `logSumExp` `[R]`, `topValues` and `topIndices` `[R, K]`.
 */
export function endDecoder(
  step: DecoderStep,
  hidden: ProgramTensor,
  { normalize, topK, softCap = 0, logitScale = 1 }: DecoderOutput,
): void {
  const { b, weight, optionalWeight, config } = step;
  b.setLayer(-1);
  const rows = b.activation('gather-rows', { x: hidden, rows: b.scalar('outputRows', ['R']) });
  const output = config.isTied ? weight('token_embd.weight') : weight('output.weight');
  const x = normalize(rows);
  const plain = b.activation('matmul', { x, weight: output, bias: optionalWeight('output.bias') });
  const product = addAdapted(step, 'output', x, plain);
  const scaled = logitScale === 1 ? product : b.activation('scale', { x: product }, { factor: logitScale });
  const logits = softCap === 0 ? scaled : b.activation('soft-cap', { x: scaled }, { cap: softCap });
  b.output('logits', logits);
  b.output('argMax', b.activation('arg-max', { x: logits }));
  b.output('logSumExp', b.activation('log-sum-exp', { x: logits }));
  const top = b.append('top-k', { x: logits }, { k: topK });
  b.output('topValues', top['values'] as ProgramTensor);
  b.output('topIndices', top['indices'] as ProgramTensor);
}
