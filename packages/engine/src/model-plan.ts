/** Sizes a model for its options: cache, programs, bytes. */
import type { DecoderProgramOptions, KvCacheShape, ModelDescription } from '@winnow/models';
import { cacheDTypes, type Program } from '@winnow/ops';
import { ArgumentError, dtypeInfo, tensorBytes } from '@winnow/tensor';
import type { MemoryPlan } from './memory-plan.js';
import type { LoadOptions } from './types.js';

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
  const maxSessions = count('maxSessions', options.maxSessions ?? defaultMaxSessions);
  const batchSize = Math.min(contextSize, count('batchSize', options.batchSize ?? defaultBatchSize));
  const dtype = options.kvDType ?? 'f32';
  if (!cacheDTypes.includes(dtype) || config.headDim % dtypeInfo(dtype).blockSize !== 0) {
    const usable = cacheDTypes.filter((candidate) => config.headDim % dtypeInfo(candidate).blockSize === 0);
    throw new ArgumentError({
      argument: 'kvDType',
      expected: `${usable.join(' | ')} for heads of ${config.headDim}`,
      actual: String(dtype),
    });
  }
  const maxBlocksPerSequence = Math.ceil(contextSize / kvBlockSize);
  // each further session may leave a block partly empty
  const numBlocks = maxBlocksPerSequence + maxSessions - 1;
  const cache: KvCacheShape = { numBlocks, blockSize: kvBlockSize, maxBlocksPerSequence, dtype };
  const numTop = Math.min(maxTop, config.vocabSize);
  const maxOutputRows = Math.max(1, Math.floor(maxLogitsBytes / (4 * config.vocabSize)));
  const programOptions = (maxTokens: number): DecoderProgramOptions => ({
    maxTokens,
    maxSequences: 1,
    maxOutputRows: Math.min(maxTokens, maxOutputRows),
    cache,
    topK: numTop,
  });
  const decode = description.buildProgram(programOptions(1));
  const prefill = description.buildProgram(programOptions(batchSize));
  const kvBytes = decode.buffers.reduce((sum, { usage, sizeBytes }) => (usage === 'kv' ? sum + sizeBytes : sum), 0);
  let weightsBytes = 0;
  for (const { sizeBytes } of weights.values()) weightsBytes += sizeBytes;
  for (const values of constants.values()) weightsBytes += values.byteLength;
  const activationBytes = decode.peakBytes + prefill.peakBytes;
  const rowBytes = tensorBytes(dtype, [config.numKvHeads, config.headDim]);
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
      kvBytesPerToken: 2 * config.numLayers * rowBytes + 4,
    },
  };
}

function count(argument: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
}
