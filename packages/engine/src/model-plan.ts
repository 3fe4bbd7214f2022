/** Sizes a model for its options: cache, programs, bytes. */
import type { DecoderProgramOptions, KvCacheShape, ModelDescription } from '@winnow/models';
import { cacheDTypes, type Program } from '@winnow/ops';
import { ArgumentError, dtypeInfo, tensorBytes, type DType } from '@winnow/tensor';
import type { MemoryPlan } from './memory-plan.js';
import type { KvDTypes, LoadOptions } from './types.js';

/** Slots per block of the cache. */
export const kvBlockSize = 64;
const defaultContextSize = 4096;
const defaultMaxSessions = 8;
const defaultBatchSize = 64;
/** Most bytes of logits of one step: each output row is as long as the vocabulary. */
const maxLogitsBytes = 8 * 1024 * 1024;
/** Most tokens that the `topValues` output holds. */
const maxTop = 64;

export interface ModelPlan {
  readonly contextSize: number;
  readonly maxSessions: number;
  readonly cache: KvCacheShape;
  readonly decode: Program;
  readonly prefill: Program;
  readonly numTop: number;
  readonly memory: MemoryPlan;
}

/** @throws {ArgumentError} for options that make no sense for this model */
export function planModel(description: ModelDescription, options: LoadOptions): ModelPlan {
  const { config, weights, constants } = description;
  const contextSize = count('contextSize', options.contextSize ?? Math.min(config.contextLength, defaultContextSize));
  if (config.maxPositions !== undefined && contextSize > config.maxPositions) {
    const expected = `at most ${config.maxPositions}, the positions that the model has embeddings for`;
    throw new ArgumentError({ argument: 'contextSize', expected, actual: String(contextSize) });
  }
  const maxSessions = count('maxSessions', options.maxSessions ?? defaultMaxSessions);
  const batchSize = Math.min(contextSize, count('batchSize', options.batchSize ?? defaultBatchSize));
  const { keys: keyDType, values: valueDType } = kvDTypes(options.kvDType ?? 'f32', config.headDim);
  const maxBlocksPerSequence = Math.ceil(contextSize / kvBlockSize);
  // each further session may leave a block partly empty
  const numBlocks = maxBlocksPerSequence + maxSessions - 1;
  const cache: KvCacheShape = { numBlocks, blockSize: kvBlockSize, maxBlocksPerSequence, keyDType, valueDType };
  const numTop = Math.min(maxTop, config.vocabSize);
  const maxOutputRows = Math.max(1, Math.floor(maxLogitsBytes / (4 * config.vocabSize)));
  const programOptions = (maxTokens: number): DecoderProgramOptions => ({
    maxTokens,
    maxSequences: 1,
    maxOutputRows: Math.min(maxTokens, maxOutputRows),
    cache,
    contextSize,
    topK: numTop,
  });
  const decode = description.buildProgram(programOptions(1));
  const prefill = description.buildProgram(programOptions(batchSize));
  const kvBytes = decode.buffers.reduce((sum, { usage, sizeBytes }) => (usage === 'kv' ? sum + sizeBytes : sum), 0);
  let weightsBytes = 0;
  for (const { sizeBytes } of weights.values()) weightsBytes += sizeBytes;
  for (const values of constants.values()) weightsBytes += values.byteLength;
  const activationBytes = decode.peakBytes + prefill.peakBytes;
  const rowBytes = (dtype: DType): number => tensorBytes(dtype, [config.numKvHeads, config.headDim]);
  return {
    contextSize,
    maxSessions,
    cache,
    decode,
    prefill,
    numTop,
    memory: {
      weightsBytes,
      kvBytes,
      activationBytes,
      totalBytes: weightsBytes + kvBytes + activationBytes,
      contextSize,
      kvBytesPerToken: config.numLayers * (rowBytes(keyDType) + rowBytes(valueDType)) + 4,
    },
  };
}

function kvDTypes(option: DType | KvDTypes, headDim: number): KvDTypes {
  const chosen = typeof option === 'string' ? { keys: option, values: option } : option;
  const isUsable = (dtype: DType): boolean => cacheDTypes.includes(dtype) && headDim % dtypeInfo(dtype).blockSize === 0;
  for (const dtype of [chosen.keys, chosen.values]) {
    if (isUsable(dtype)) continue;
    const expected = `${cacheDTypes.filter(isUsable).join(' | ')} for heads of ${headDim}`;
    throw new ArgumentError({ argument: 'kvDType', expected, actual: String(dtype) });
  }
  return chosen;
}

function count(argument: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
}
