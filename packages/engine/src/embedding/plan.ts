/** Plans an embedding model: its program and memory. */
import type { EmbedderDescription, Pooling } from '@winnow/models';
import type { Program } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { minStepTokens, type EmbeddingStepSizes } from './step.js';
import type { FeedForwardOptions } from '../plan/fit-weights.js';
import type { MemoryPlan } from '../plan/memory-plan.js';
import { positiveInteger } from '../plan/options.js';
import { checkRotaryLength, rotaryLengthsIn } from '../plan/rotary-length.js';
import type { MemoryOptions } from '../weight-offload/options.js';
import { buffersOf, weightBytesOf, isSlotBuffer } from '../memory/program-buffers.js';

const defaultContextSize = 2048;
const defaultBatchSize = 512;
const defaultMaxTexts = 64;

export interface EmbeddingPlanOptions {
  /**
   * Maximum number of tokens of one text, special tokens included. Default: as the model recommends (`max_seq_length`,
   * or its context), at most 2048.
   */
  readonly context?: number;
  /** Maximum number of tokens of one batch. Default, and minimum: `context`; the default is at least 512. */
  readonly batchSize?: number;
  /** Maximum number of texts of one batch. Default 64. */
  readonly maxTexts?: number;
  /**
   * How the hidden states of a text become one vector. Default: as the model declares, else `mean` for encoders.
   * Required for decoders that declare nothing, usually `last` or `mean`.
   */
  readonly pooling?: Pooling;
  /**
   * Treat the model as a Matryoshka model even if its files do not declare it: its leading dimensions are an embedding
   * of their own. Default: as the files declare.
   */
  readonly isMatryoshka?: boolean;
  /** The memory budget in bytes, or with settings for weights that do not fit, as in `loadModel`. Default: what the backend can hold. */
  readonly memory?: number | MemoryOptions;
}

export type RerankerPlanOptions = Pick<EmbeddingPlanOptions, 'context' | 'batchSize' | 'maxTexts' | 'memory'>;

/** The programs of a plan. */
export function programsOf({ program, visionProgram }: EmbeddingPlan): Program[] {
  return visionProgram === undefined ? [program] : [program, visionProgram];
}

export interface EmbeddingPlan extends EmbeddingStepSizes {
  readonly pooling: Pooling;
  readonly contextSize: number;
  readonly program: Program;
  /** For models that take images. */
  readonly visionProgram: Program | undefined;
  readonly memory: MemoryPlan;
}

/** A model as its files and the options describe it. */
export interface EmbedderToPlan {
  readonly description: EmbedderDescription;
  readonly pooling: Pooling;
  /** Tokens of a text that the model was made for, if it says so. */
  readonly recommendedSize: number | undefined;
}

/** @throws {ArgumentError} for options that this model does not support */
export function planEmbedding(
  { description, pooling, recommendedSize }: EmbedderToPlan,
  options: EmbeddingPlanOptions,
  feedForward: FeedForwardOptions,
): EmbeddingPlan {
  const contextSize = contextSizeOf(description, recommendedSize, options.context);
  const batchSize = positiveInteger('batchSize', options.batchSize ?? defaultBatchSize);
  const maxTokens = Math.max(contextSize, batchSize);
  const maxTexts = Math.min(maxTokens, positiveInteger('maxTexts', options.maxTexts ?? defaultMaxTexts));
  const stepTokens = Math.max(maxTokens, minStepTokens);
  const program = description.buildEmbeddingProgram({
    ...feedForward(stepTokens),
    maxTokens: stepTokens,
    maxSequences: maxTexts + 1, // a filler
    contextSize: Math.max(contextSize, minStepTokens),
    pooling,
  });
  const visionProgram = description.vision?.buildProgram();
  const programs = visionProgram === undefined ? [program] : [program, visionProgram];
  const weightsBytes = weightBytesOf(programs);
  let kvBytes = 0;
  for (const { name, usage, sizeBytes } of buffersOf(programs)) {
    if (usage === 'kv' && !isSlotBuffer(name)) kvBytes += sizeBytes;
  }
  const activationBytes = programs.reduce((sum, { peakBytes }) => sum + peakBytes, 0);
  const totalBytes = weightsBytes + kvBytes + activationBytes;
  return {
    pooling,
    contextSize,
    maxTokens,
    maxTexts,
    rotaryLengths: rotaryLengthsIn(description.config.rope, contextSize),
    program,
    visionProgram,
    memory: { weightsBytes, kvBytes, activationBytes, totalBytes, contextSize, kvBytesPerToken: 0 },
  };
}

function contextSizeOf(
  { config: { contextLength, maxPositions, rope }, padding }: EmbedderDescription,
  recommended: number | undefined,
  asked: number | undefined,
): number {
  const usual = Math.min(contextLength, defaultContextSize, maxPositions ?? Infinity, recommended ?? Infinity);
  const contextSize = positiveInteger('context', asked ?? usual);
  checkRotaryLength(rope, contextSize);
  if (padding !== undefined && contextSize < padding.length) {
    const expected = `${padding.length}, since the model pads all texts to that length`;
    throw new ArgumentError({ argument: 'context', expected, actual: String(contextSize) });
  }
  if (maxPositions === undefined || contextSize <= maxPositions) return contextSize;
  const expected = `at most ${maxPositions}, the positions that the model has embeddings for`;
  throw new ArgumentError({ argument: 'context', expected, actual: String(contextSize) });
}
