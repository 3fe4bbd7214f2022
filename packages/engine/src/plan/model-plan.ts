/** Plans a model for its options: cache, programs, memory. */
import type { HeavyHitterOptions, SessionOptionValue } from '@winnow/kv-cache';
import {
  kvHeadsOf,
  kvLayerOf,
  storedHeadDim,
  type DecoderConfig,
  type DecoderProgramOptions,
  type KvCacheShape,
  type ModelDescription,
  type RotaryLengths,
} from '@winnow/models';
import type { AttentionSpec } from '@winnow/sparse-attention';
import { checkKvDTypes, maxInvariantTokens, type KvDTypes, type Program } from '@winnow/ops';
import { ArgumentError, tensorBytes, type DType } from '@winnow/tensor';
import { refuseWithoutAttention } from './attention-free.js';
import { planAttention, type AttentionPlan, type StepPhase } from './attention-plan.js';
import { VisitedLayers, type VisitedLayer } from './visited-layers.js';
import type { TracedLayer } from './attention-trace.js';
import { heavyHitterOptions } from './eviction.js';
import { boxBlockBytes, tierAttention } from '../kv-offload/attention.js';
import { planTiers, sizeTiers, type SizedTiers, type TierPlan, type TierSizes } from '../kv-offload/plan.js';
import type { FeedForwardOptions } from './fit-weights.js';
import type { MemoryPlan, TierBudgets } from './memory-plan.js';
import { buffersOf, weightBytesOf, isSlotBuffer } from '../memory/program-buffers.js';
import { draftAttention, refuseStates } from './draft-attention.js';
import { draftFeedForward, withOwnRows } from './draft-feed-forward.js';
import { selfPolicyOf } from './speculative.js';
import { refuseDraftsOnly } from '../sparsity/options.js';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { checkRotation, checkTraceable, positiveInteger, type ResolvedPlanOptions } from './options.js';
import { checkRotaryLength, rotaryLengthsIn } from './rotary-length.js';

/** Slots per block of the cache, unless an attention policy needs another number. */
const usualBlockSize = 64;
const defaultContextSize = 4096;
const defaultMaxSessions = 8;
const defaultBatchSize = 64;
/** Maximum number of sequences per step. More may be open; they take turns. */
const maxBatchSequences = 32;
/** Additional rows of recurrent states: for one sequence that computes log-probabilities, and for snapshots. */
const numSpareStates = 3;
/** Maximum size of the logits of one step: each output row is as long as the vocabulary. */
const maxLogitsBytes = 8 * 1024 * 1024;
/** Maximum number of tokens in the `topValues` output. */
const maxTop = 64;

export interface ModelPlan {
  readonly config: DecoderConfig;
  readonly contextSize: number;
  readonly maxSessions: number;
  readonly cache: KvCacheShape;
  /**
   * Programs for one token of one sequence; for several sequences, with a prompt chunk and one token of every other
   * sequence; and, if prefill and decode have different policies, for one token of each of several sequences.
   */
  readonly programs: readonly [decode: Program, batch: Program, ...decodeBatch: Program[]];
  /** With `speculative: 'self=POLICY'`: the program that drafts one token of one sequence. */
  readonly draftProgram: Program | undefined;
  /** For models that take images. */
  readonly visionProgram: Program | undefined;
  /** For models whose rows of an image attend to each other: the program of steps of the rows of one image. */
  readonly imageProgram: Program | undefined;
  readonly attention: AttentionPlan;
  /** Maximum number of tokens of a sequence in one step. */
  readonly maxChunk: number;
  /** Rows of every buffer of recurrent states. */
  readonly numStates: number;
  readonly numTop: number;
  /** With `trace.attention`: the attention layers. */
  readonly tracedLayers: readonly TracedLayer[] | undefined;
  /** Layers that attend, with `trace.visitedKeys`. */
  readonly visitedLayers: readonly VisitedLayer[] | undefined;
  /** With a `kvCache.eviction` by attention mass. */
  readonly heavyHitters: HeavyHitterOptions | undefined;
  readonly rotatesKeys: boolean;
  /** For models whose RoPE depends on the length of the sequence, if their context is longer than the usual one. */
  readonly rotaryLengths: RotaryLengths | undefined;
  /** If the KV cache is offloaded. */
  readonly tiers: TierPlan | undefined;
  readonly memory: MemoryPlan;
}

/** The options with their values. */
interface Sizes {
  readonly contextSize: number;
  readonly maxSessions: number;
  /** Maximum number of tokens of a sequence in one step. */
  readonly maxChunk: number;
  readonly cacheSize: number;
  readonly dtype: KvDTypes;
  /** Maximum number of sequences and tokens of one step. */
  readonly maxSequences: number;
  readonly maxTokens: number;
  /** Whether the model is loaded for drafts, and the maximum number of tokens of a step that only decodes. */
  readonly isSpeculative: boolean;
  readonly maxDecodeTokens: number;
  /** Layers that attend to a KV cache. */
  readonly attending: readonly number[];
  readonly kvBytesPerToken: number;
  /** Bytes of keys, and of values, of one token in one layer; the most of any layer. */
  readonly keyBytes: number;
  readonly valueBytes: number;
  readonly rotatesKeys: boolean;
  readonly heavyHitters: HeavyHitterOptions | undefined;
}

/** A model as its files and the options describe it. */
export interface ModelToPlan {
  readonly description: ModelDescription;
  /** The attention policies, as `chooseAttention` found them. */
  readonly attention: AttentionSpec | string;
  /** The calibration, which `feedForward` uses already, unless it is only for drafts. */
  readonly sparse: SparseWeights | undefined;
  readonly feedForward: FeedForwardOptions;
}

/** Builds a program of the model. Programs share the cache, and most of them the FFN options. */
type BuildProgram = (
  own: Pick<DecoderProgramOptions, 'maxTokens' | 'maxSequences' | 'maxOutputRows' | 'attention'>,
  feedForward?: FeedForwardOptions,
) => Program;

/** @throws {ArgumentError} for options that this model does not support */
export function planModel(model: ModelToPlan, options: ResolvedPlanOptions, notice: (text: string) => void): ModelPlan {
  const { description } = model;
  const { config } = description;
  const sizes = sizesOf(config, options);
  const tracedLayers = options.trace?.attention === true ? new Map<number, TracedLayer>() : undefined;
  const visited = options.trace?.visitedKeys === true ? new VisitedLayers() : undefined;
  const attention = planAttention({
    attention: model.attention,
    config,
    usualBlockSize,
    onTracedLayer: tracedLayers && ((layer): void => void tracedLayers.set(layer.layer, layer)),
    massUpTo: sizes.heavyHitters && sizes.attending.at(-1),
    visited,
    notice,
  });
  const { contextSize, maxSessions, dtype, rotatesKeys } = sizes;
  const tellsLength = attention.requirements.reads === undefined; // otherwise distances stay small
  if (tellsLength && contextSize > config.contextLength) notice(beyondTrained(contextSize, config.contextLength));
  const { tiers: sizedTiers, sideBytes, counts } = sizeOffload(config, options, sizes, attention);
  if (sizes.heavyHitters !== undefined) checkMeasurable(attention, options, sizedTiers !== undefined);
  const cache = { ...counts, dtype };
  // one row per open session, one per row that a step writes, and snapshots
  const numStates = maxSessions + sizes.maxSequences + numSpareStates;
  const numTop = Math.min(maxTop, config.vocabSize);
  const shared = { cache, contextSize, numStates, topK: numTop, rotateKeys: rotatesKeys };
  const build: BuildProgram = (own, feedForward = model.feedForward) =>
    description.buildProgram({ ...shared, ...feedForward(own.maxTokens), ...own });
  const { programs, tiers } = buildPrograms(build, config, sizes, attention, sizedTiers);
  const draftProgram = buildDraftProgram(build, model, selfPolicyOf(options.speculative), notice);
  const visionProgram = description.vision?.buildProgram({ tokenRow: true });
  const imageProgram = buildImageProgram(build, description, sizes, attention);
  const sidePrograms = [draftProgram, visionProgram, imageProgram].filter((program) => program !== undefined);
  return {
    config,
    contextSize,
    maxSessions,
    cache,
    programs,
    draftProgram,
    visionProgram,
    imageProgram,
    attention,
    maxChunk: sizes.maxChunk,
    numStates,
    numTop,
    tracedLayers: tracedLayers === undefined ? undefined : [...tracedLayers.values()],
    visitedLayers: visited?.layers,
    heavyHitters: sizes.heavyHitters,
    rotatesKeys,
    rotaryLengths: rotaryLengthsIn(config.rope, contextSize),
    tiers,
    memory: memoryOf(sizes, programs, sidePrograms, tiers, sideBytes / attention.blockSize),
  };
}

function sizesOf(config: DecoderConfig, options: ResolvedPlanOptions): Sizes {
  const { kvCache } = options;
  const contextSize = checkContextSize(config, options.context);
  const maxSessions = positiveInteger('maxSessions', options.maxSessions ?? defaultMaxSessions);
  const maxChunk = Math.min(contextSize, positiveInteger('batchSize', options.batchSize ?? defaultBatchSize));
  const cacheSize = Math.max(contextSize, positiveInteger('kvCache.capacity', kvCache.capacity ?? contextSize));
  const dtype = checkKvDTypes('kvCache.dtype', kvCache.dtype ?? 'f32');
  const maxSequences = Math.min(maxSessions, maxBatchSequences);
  const isRecurrent = (layer: number): boolean => config.recurrentLayers?.[layer] === true;
  const attending = Array.from({ length: config.numLayers }, (_, layer) => layer).filter((i) => !isRecurrent(i));
  const rowBytes = (each: DType): number[] =>
    attending.flatMap((layer) => (kvLayerOf(config, layer) === layer ? tokenBytes(config, layer, each) : []));
  const [keyBytes, valueBytes] = [rowBytes(dtype.keys), rowBytes(dtype.values)];
  if (options.trace?.attention === true) checkTraceable(config, dtype);
  const isSpeculative = options.speculative !== 'off';
  const numKvHeads = attending.map((layer) => kvHeadsOf(config, layer).numKvHeads);
  return {
    contextSize,
    maxSessions,
    maxChunk,
    cacheSize,
    dtype,
    maxSequences,
    // in addition to a whole chunk, so that chunks begin where they would if the sequence ran alone
    maxTokens: maxChunk + maxSequences - 1,
    isSpeculative,
    maxDecodeTokens: isSpeculative ? Math.max(maxSequences, maxInvariantTokens) : maxSequences,
    attending,
    kvBytesPerToken: [...keyBytes, ...valueBytes].reduce((sum, each) => sum + each, 4),
    keyBytes: Math.max(0, ...keyBytes),
    valueBytes: Math.max(0, ...valueBytes),
    rotatesKeys: checkRotation(kvCache.rotation ?? 'none', config) === 'hadamard',
    heavyHitters: heavyHitterOptions(kvCache.eviction ?? 'oldest', contextSize, numKvHeads),
  };
}

/** Bytes of keys, or of values, of one token in a layer. */
function tokenBytes(config: DecoderConfig, layer: number, dtype: DType): number {
  const { numKvHeads, headDim } = kvHeadsOf(config, layer);
  return tensorBytes(dtype, [numKvHeads, storedHeadDim(headDim, dtype)]);
}

function checkContextSize({ contextLength, maxPositions, rope }: DecoderConfig, asked: number | undefined): number {
  const contextSize = positiveInteger('context', asked ?? Math.min(contextLength, defaultContextSize));
  checkRotaryLength(rope, contextSize);
  if (maxPositions === undefined || contextSize <= maxPositions) return contextSize;
  const expected = `at most ${maxPositions}, the positions that the model has embeddings for`;
  throw new ArgumentError({ argument: 'context', expected, actual: String(contextSize) });
}

/** The blocks of the KV cache, and its tiers if offload is needed. */
interface OffloadSizes {
  readonly tiers: SizedTiers | undefined;
  /** Bytes of a block besides keys and values, over all layers. */
  readonly sideBytes: number;
  readonly counts: Omit<KvCacheShape, 'dtype'>;
}

function sizeOffload(
  config: DecoderConfig,
  options: ResolvedPlanOptions,
  sizes: Sizes,
  attention: AttentionPlan,
): OffloadSizes {
  const { contextSize, cacheSize, maxSessions, maxSequences, maxTokens, attending } = sizes;
  if (attending.length === 0) refuseWithoutAttention(attention, options);
  const { blockSize } = attention;
  const numContextBlocks = Math.ceil(contextSize / blockSize);
  // each further session may leave a block partly empty
  const numCacheBlocks = Math.ceil(cacheSize / blockSize) + maxSessions - 1;
  const sideBytes = boxBlockBytes(attention, attending, blockSize, (layer) => {
    const { numKvHeads, headDim } = kvHeadsOf(config, layer);
    return { kvLayer: kvLayerOf(config, layer), numKvHeads, headDim: storedHeadDim(headDim, sizes.dtype.keys) };
  });
  const facts = {
    blockBytes: sizes.kvBytesPerToken * blockSize + sideBytes,
    keyRowBytes: sizes.keyBytes * blockSize,
    valueRowBytes: sizes.valueBytes * blockSize,
    numAllBlocks: numContextBlocks * maxSessions,
    numCacheBlocks,
    maxTokens,
    maxSequences,
    maxSessions,
    blockSize,
  };
  const isTraced = options.trace?.attention === true;
  const tiers = sizeTiers(options.kvCache, facts, () =>
    tierAttention(attention, isTraced, (layer) => attending.includes(layer)),
  );
  const numBlocks = tiers?.sizes.numBlocks ?? numCacheBlocks;
  // one more for a sequence that was truncated within a block, and one while blocks are being offloaded
  const maxBlocksPerSequence = tiers === undefined ? numContextBlocks : Math.min(numContextBlocks + 2, numBlocks);
  return { tiers, sideBytes, counts: { numBlocks, blockSize, maxBlocksPerSequence } };
}

interface BuiltPrograms {
  readonly programs: ModelPlan['programs'];
  readonly tiers: TierPlan | undefined;
}

const oneToken = { maxTokens: 1, maxSequences: 1, maxOutputRows: 1 };

/** The program that drafts with the weights and the cache of the model. */
function buildDraftProgram(
  build: BuildProgram,
  { description, sparse, feedForward }: ModelToPlan,
  policy: string | undefined,
  notice: (text: string) => void,
): Program | undefined {
  if (policy === undefined) {
    refuseDraftsOnly(sparse);
    return undefined;
  }
  const own = { ...oneToken, ...draftAttention(policy, description.config, notice) };
  const skips = sparse?.isForDrafts === true;
  const program = skips ? build(own, draftFeedForward(sparse, feedForward)) : build(own);
  refuseStates(program, policy);
  return skips ? withOwnRows(program, description) : program;
}

/** The program of steps of the rows of one image, where they attend to each other. */
function buildImageProgram(
  build: BuildProgram,
  { vision, config }: ModelDescription,
  { maxTokens: maxBatch, maxSequences }: Sizes,
  attention: AttentionPlan,
): Program | undefined {
  if (vision?.isBidirectional !== true) return undefined;
  const { numRows: maxTokens } = vision;
  const maxOutputRows = Math.min(maxTokens, maxRowsOf(config, maxBatch, maxSequences));
  return build({ maxTokens, maxSequences: 1, maxOutputRows, ...attention.programOptions('image') });
}

/** Maximum number of output rows of steps of up to `maxTokens` tokens. */
function maxRowsOf({ vocabSize }: DecoderConfig, maxTokens: number, maxSequences: number): number {
  return Math.min(maxTokens, Math.max(maxSequences, Math.floor(maxLogitsBytes / (4 * vocabSize)), 1));
}

function buildPrograms(
  build: BuildProgram,
  config: DecoderConfig,
  { maxTokens, isSpeculative, maxDecodeTokens, maxSequences }: Sizes,
  attention: AttentionPlan,
  sizedTiers: SizedTiers | undefined,
): BuiltPrograms {
  const steps = {
    decode: oneToken,
    batch: { maxTokens, maxSequences, maxOutputRows: maxRowsOf(config, maxTokens, maxSequences) },
    decodeBatch: { maxTokens: maxDecodeTokens, maxSequences, maxOutputRows: maxDecodeTokens },
  };
  const buildStep = (step: keyof typeof steps, phase: StepPhase): Program =>
    build({ ...steps[step], ...attention.programOptions(phase) });
  const decode = buildStep('decode', 'decode');
  const batch = buildStep('batch', 'prefill');
  const decodeBatch = !attention.isUniform && maxDecodeTokens > 1 ? [buildStep('decodeBatch', 'decode')] : [];
  const isInvariant = isSpeculative && attention.verifiesDrafts;
  const tiers =
    sizedTiers &&
    planTiers(sizedTiers, { maxTokens, maxSequences, isInvariant }, (step, lowering) =>
      build({ ...steps[step], attention: lowering }),
    );
  return { programs: [decode, batch, ...decodeBatch], tiers };
}

function memoryOf(
  { contextSize, maxSessions, kvBytesPerToken }: Sizes,
  programs: readonly Program[],
  sidePrograms: readonly Program[],
  tiers: TierPlan | undefined,
  sideBytesPerToken: number,
): MemoryPlan {
  const all = [...programs, ...sidePrograms, ...(tiers?.programs ?? [])];
  const kvBytes = kvBytesOf(all);
  const hotBytes = kvBytesOf(programs);
  const budgets =
    tiers &&
    tierBudgets(tiers.sizes, kvBytes - hotBytes, {
      numTokens: contextSize * maxSessions,
      bytesPerToken: kvBytesPerToken - 4,
      sideBytesPerToken,
      hotBytes,
    });
  const weightsBytes = weightBytesOf(all);
  const activationBytes = all.reduce((sum, { peakBytes }) => sum + peakBytes, 0);
  return {
    weightsBytes,
    kvBytes,
    activationBytes,
    totalBytes: weightsBytes + kvBytes + activationBytes + (budgets?.warmBytes ?? 0) + (budgets?.residentBytes ?? 0),
    contextSize,
    kvBytesPerToken,
    ...(budgets === undefined ? {} : { tiers: budgets }),
  };
}

function kvBytesOf(programs: readonly Program[]): number {
  const kv = buffersOf(programs).filter(({ name, usage }) => usage === 'kv' && !isSlotBuffer(name));
  return kv.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

/** The notice for contexts beyond the trained length. */
export function beyondTrained(numTokens: number, contextLength: number): string {
  return `${numTokens} tokens exceed the trained context of ${contextLength}: the output may become incoherent`;
}

/** Attention mass needs dense attention over slots in the pool. */
function checkMeasurable({ text }: AttentionPlan, { trace }: ResolvedPlanOptions, hasTiers: boolean): void {
  const actual = text ?? (trace?.attention === true ? 'trace.attention' : hasTiers ? 'KV offload' : undefined);
  if (actual === undefined) return;
  const expected = 'oldest, unless attention is dense, not traced, and not offloaded';
  throw new ArgumentError({ argument: 'kvCache.eviction', expected, actual: `least-attended with ${actual}` });
}

function tierBudgets(
  { warmBytes, cold }: TierSizes,
  chunkBytes: number,
  all: {
    readonly numTokens: number;
    readonly bytesPerToken: number;
    readonly sideBytesPerToken: number;
    readonly hotBytes: number;
  },
): TierBudgets {
  const { numTokens, bytesPerToken, sideBytesPerToken, hotBytes } = all;
  const numBelow = Math.max(0, numTokens - hotBytes / (bytesPerToken + sideBytesPerToken));
  const below = Math.ceil(numBelow * bytesPerToken);
  const coldBytes = cold === undefined ? 0 : Math.max(0, below - warmBytes);
  const residentBytes = Math.ceil(numBelow * sideBytesPerToken);
  return { hotBytes, chunkBytes, warmBytes: Math.min(warmBytes, below), residentBytes, coldBytes };
}

/** Options that the contents of a cache depend on. */
export function sessionOptions({
  cache,
  attention,
  heavyHitters,
  rotatesKeys,
  rotaryLengths,
}: ModelPlan): Readonly<Record<string, SessionOptionValue>> {
  const { dtype, blockSize } = cache;
  return {
    keyDType: dtype.keys,
    valueDType: dtype.values,
    blockSize,
    ...(rotatesKeys ? { kvRotation: 'hadamard' } : {}),
    ...(heavyHitters === undefined ? {} : { eviction: 'least-attended' }),
    ...(attention.text === undefined ? {} : { attention: attention.text }),
    // up to their usual context these models have no rows of frequencies
    ...(rotaryLengths === undefined ? {} : { rotaryRows: true }),
  };
}
