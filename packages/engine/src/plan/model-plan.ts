/** Sizes a model for its options: cache, programs, bytes. */
import type { HeavyHitterOptions, SessionOptionValue } from '@winnow/kv-cache';
import { storedHeadDim, type DecoderConfig, type KvCacheShape, type ModelDescription } from '@winnow/models';
import type { Program, ProgramBuffer } from '@winnow/ops';
import { ArgumentError, tensorBytes, type DType } from '@winnow/tensor';
import { planAttention, type AttentionPlan } from './attention-plan.js';
import type { TracedLayer } from './attention-trace.js';
import { heavyHitterOptions } from './eviction.js';
import { boxBlockBytes, tierAttention } from '../kv-offload/attention.js';
import { countStepBlocks, planTiers, sizeTiers, type TierPlan } from '../kv-offload/plan.js';
import type { MemoryPlan, TierBudgets } from './memory-plan.js';
import { buffersOf, weightBytesOf, isSlotBuffer } from '../memory/program-buffers.js';
import { checkKvDTypes, checkRotation, checkTraceable, positiveInteger, type PlanOptions } from './options.js';

/** Slots per block of the cache, unless an attention policy needs another number. */
const usualBlockSize = 64;
const defaultContextSize = 4096;
const defaultMaxSessions = 8;
const defaultBatchSize = 64;
/** Most sequences in one step. More may be open; they take turns. */
const maxBatchSequences = 32;
/** Rows of recurrent states for one more sequence that is open for log-probabilities, and for snapshots. */
const numSpareStates = 3;
/** Most bytes of logits of one step: each output row is as long as the vocabulary. */
const maxLogitsBytes = 8 * 1024 * 1024;
/** Most tokens that the `topValues` output holds. */
const maxTop = 64;

export interface ModelPlan {
  readonly config: DecoderConfig;
  readonly contextSize: number;
  readonly maxSessions: number;
  readonly cache: KvCacheShape;
  /**
   * For one token of one sequence; for steps of several sequences, a chunk of a prompt beside a token of every other one;
   * and, when generated tokens attend in another way than prompts, for one token of each of several sequences.
   */
  readonly programs: readonly [decode: Program, batch: Program, ...decodeBatch: Program[]];
  readonly attention: AttentionPlan;
  /** Most tokens of a sequence in one step. */
  readonly maxChunk: number;
  /** Rows of every buffer of recurrent states. */
  readonly numStates: number;
  readonly numTop: number;
  /** With `traceAttention`: the layers that attend. */
  readonly tracedLayers: readonly TracedLayer[] | undefined;
  /** With an `eviction` by what is looked at. */
  readonly heavyHitters: HeavyHitterOptions | undefined;
  readonly rotatesKeys: boolean;
  /** With `kv` tiers that are needed. */
  readonly tiers: TierPlan | undefined;
  readonly memory: MemoryPlan;
}

/** @throws {ArgumentError} for options that make no sense for this model */
export function planModel(
  description: ModelDescription,
  options: PlanOptions,
  notice: (text: string) => void,
): ModelPlan {
  const { config } = description;
  const contextSize = positiveInteger(
    'contextSize',
    options.contextSize ?? Math.min(config.contextLength, defaultContextSize),
  );
  if (config.maxPositions !== undefined && contextSize > config.maxPositions) {
    const expected = `at most ${config.maxPositions}, the positions that the model has embeddings for`;
    throw new ArgumentError({ argument: 'contextSize', expected, actual: String(contextSize) });
  }
  const maxSessions = positiveInteger('maxSessions', options.maxSessions ?? defaultMaxSessions);
  const batchSize = Math.min(contextSize, positiveInteger('batchSize', options.batchSize ?? defaultBatchSize));
  const cacheSize = Math.max(contextSize, positiveInteger('cacheSize', options.cacheSize ?? contextSize));
  const { keys: keyDType, values: valueDType } = checkKvDTypes(options.kvDType ?? 'f32');
  const maxSequences = Math.min(maxSessions, maxBatchSequences);
  // beside a whole chunk: so chunks begin where they would if the sequence were alone
  const maxTokens = batchSize + maxSequences - 1;
  const isRecurrent = (layer: number): boolean => config.recurrentLayers?.[layer] === true;
  const attending = Array.from({ length: config.numLayers }, (_, layer) => layer).filter((i) => !isRecurrent(i));
  const rowBytes = (dtype: DType): number =>
    tensorBytes(dtype, [config.numKvHeads, storedHeadDim(config.headDim, dtype)]);
  const kvBytesPerToken = attending.length * (rowBytes(keyDType) + rowBytes(valueDType)) + 4;
  if (options.traceAttention === true) checkTraceable(config, { keys: keyDType, values: valueDType });
  const tracedLayers = options.traceAttention === true ? new Map<number, TracedLayer>() : undefined;
  const rotatesKeys = checkRotation(options.kvRotation ?? 'none', config.headDim) === 'hadamard';
  const heavyHitters = heavyHitterOptions(options.eviction ?? 'oldest', contextSize);
  const attention = planAttention({
    spec: options.attention,
    numLayers: config.numLayers,
    usualBlockSize,
    onTracedLayer: tracedLayers && ((layer): void => void tracedLayers.set(layer.layer, layer)),
    massUpTo: heavyHitters && attending.at(-1),
    notice,
  });
  const { blockSize } = attention;
  const numContextBlocks = Math.ceil(contextSize / blockSize);
  // each further session may leave a block partly empty
  const numCacheBlocks = Math.ceil(cacheSize / blockSize) + maxSessions - 1;
  const tellsLength = attention.requirements.reads === undefined; // otherwise distances stay small
  if (tellsLength && contextSize > config.contextLength) notice(beyondTrained(contextSize, config.contextLength));
  const sideBytes = boxBlockBytes(attention, attending, {
    blockSize,
    numKvHeads: config.numKvHeads,
    headDim: storedHeadDim(config.headDim, keyDType),
  });
  const tierSizes = sizeTiers(
    options.kv,
    {
      blockBytes: kvBytesPerToken * blockSize + sideBytes,
      keyRowBytes: rowBytes(keyDType) * blockSize,
      valueRowBytes: rowBytes(valueDType) * blockSize,
      numAllBlocks: numContextBlocks * maxSessions,
      numCacheBlocks,
      numStepBlocks: countStepBlocks(maxTokens, maxSequences, blockSize),
      maxSessions,
      blockSize,
    },
    () => tierAttention(attention, options.traceAttention === true, (layer) => attending.includes(layer)),
  );
  if (heavyHitters !== undefined) checkMeasurable(attention, options, tierSizes !== undefined);
  const numBlocks = tierSizes?.numBlocks ?? numCacheBlocks;
  // cut where no block begins, a sequence has one more; and one while blocks are on their way out
  const maxBlocksPerSequence = tierSizes === undefined ? numContextBlocks : Math.min(numContextBlocks + 2, numBlocks);
  const cache: KvCacheShape = { numBlocks, blockSize, maxBlocksPerSequence, keyDType, valueDType };
  const numTop = Math.min(maxTop, config.vocabSize);
  const maxOutputRows = Math.max(1, Math.floor(maxLogitsBytes / (4 * config.vocabSize)));
  // what each open session holds, what a step writes anew, and snapshots
  const numStates = maxSessions + maxSequences + numSpareStates;
  const common = { cache, rotateKeys: rotatesKeys, contextSize, numStates, topK: numTop };
  const one = { maxTokens: 1, maxSequences: 1, maxOutputRows: 1 };
  const several = {
    maxTokens,
    maxSequences,
    maxOutputRows: Math.min(maxTokens, Math.max(maxSequences, maxOutputRows)),
  };
  const decodeBatch = { maxTokens: maxSequences, maxSequences, maxOutputRows: maxSequences };
  const decode = description.buildProgram({ ...common, ...attention.programOptions('decode'), ...one });
  const batch = description.buildProgram({ ...common, ...attention.programOptions('prefill'), ...several });
  const programs: [decode: Program, batch: Program, ...decodeBatch: Program[]] = [decode, batch];
  if (!attention.isUniform && maxSequences > 1) {
    programs.push(description.buildProgram({ ...common, ...attention.programOptions('decode'), ...decodeBatch }));
  }
  const tiers =
    tierSizes &&
    planTiers(tierSizes, { maxTokens, maxSequences }, (step, writer) =>
      description.buildProgram({ ...common, attention: writer, ...{ decode: one, batch: several, decodeBatch }[step] }),
    );
  const allPrograms = [...programs, ...(tiers?.programs ?? [])];
  const bytesOf = (buffers: readonly ProgramBuffer[]): number =>
    buffers.reduce((sum, { name, usage, sizeBytes }) => {
      return usage === 'kv' && !isSlotBuffer(name) ? sum + sizeBytes : sum;
    }, 0);
  const kvBytes = bytesOf(buffersOf(allPrograms));
  const budgets =
    tiers &&
    tierBudgets(tiers, kvBytes - bytesOf(buffersOf(programs)), {
      numTokens: contextSize * maxSessions,
      bytesPerToken: kvBytesPerToken - 4,
      sideBytesPerToken: sideBytes / blockSize,
      hotBytes: bytesOf(buffersOf(programs)),
    });
  const weightsBytes = weightBytesOf(allPrograms);
  const activationBytes = allPrograms.reduce((sum, { peakBytes }) => sum + peakBytes, 0);
  return {
    config,
    contextSize,
    maxSessions,
    cache,
    programs,
    attention,
    maxChunk: batchSize,
    numStates,
    numTop,
    tracedLayers: tracedLayers === undefined ? undefined : [...tracedLayers.values()],
    heavyHitters,
    rotatesKeys,
    tiers,
    memory: {
      weightsBytes,
      kvBytes,
      activationBytes,
      totalBytes: weightsBytes + kvBytes + activationBytes + (budgets?.warmBytes ?? 0) + (budgets?.residentBytes ?? 0),
      contextSize,
      kvBytesPerToken,
      ...(budgets === undefined ? {} : { tiers: budgets }),
    },
  };
}

/** What a caller should know who goes beyond what the model has learned. */
export function beyondTrained(numTokens: number, contextLength: number): string {
  return `${numTokens} tokens are more than the ${contextLength} that the model was trained for: it may lose the thread`;
}

/** Masses are those of dense attention, over slots that are in the pool. */
function checkMeasurable({ text }: AttentionPlan, { traceAttention }: PlanOptions, hasTiers: boolean): void {
  const actual = text ?? (traceAttention === true ? 'traceAttention' : hasTiers ? 'kv tiers' : undefined);
  if (actual === undefined) return;
  const expected = 'oldest, unless attention is dense, not traced, and all in the backend';
  throw new ArgumentError({ argument: 'eviction', expected, actual: `least-attended with ${actual}` });
}

function tierBudgets(
  { warmBytes, cold }: TierPlan,
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
  contextSize,
  config,
  attention,
  heavyHitters,
  rotatesKeys,
}: ModelPlan): Readonly<Record<string, SessionOptionValue>> {
  const { keyDType, valueDType, blockSize } = cache;
  const beyond = config.rope?.beyond;
  return {
    keyDType,
    valueDType,
    blockSize,
    ...(rotatesKeys ? { kvRotation: 'hadamard' } : {}),
    ...(heavyHitters === undefined ? {} : { eviction: 'least-attended' }),
    ...(attention.text === undefined ? {} : { attention: attention.text }),
    // models with two sets of rotation speeds choose one by the context
    ...(beyond === undefined ? {} : { longRope: contextSize > beyond.contextLength }),
  };
}
