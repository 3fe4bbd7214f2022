/** Programs that embed: steps of whole texts, and one vector for each text. Encoders and decoders alike. */
import {
  lowerDenseAttention,
  type AttentionLowering,
  type FeedForwardLowering,
  type PoolingKind,
  type ProgramTensor,
} from '@winnow/ops';
import type { EmbedderDescription } from './architecture.js';
import { beginDecoder, type DecoderStep } from './decoder-program.js';
import type { ExpertPlacement } from './expert-placement.js';

/** How the vectors of a text's tokens become one: `cls` takes the first one; the rest as in the op `pool-rows`. */
export type Pooling = 'cls' | Exclude<PoolingKind, 'first'>;

/**
 * Capacities of a program that embeds. A step is a flat list of the tokens of whole texts; the scalar slots are those of a
 * decoder's step, and `starts` `[B]`: where each text begins among the tokens. The output `embeddings` is `[B, hiddenDim]`.
 * The cache is scratch of the step: one for all layers, in blocks that begin anew with each text.
 */
export interface EmbeddingProgramOptions {
  /** Most tokens of a step (symbol T). */
  readonly maxTokens: number;
  /** Most texts of a step (symbol B). */
  readonly maxSequences: number;
  /** Tokens that a text may have. Default: `maxTokens`. */
  readonly contextSize?: number;
  readonly pooling: Pooling;
  /** As for programs that generate. */
  readonly feedForward?: FeedForwardLowering;
  readonly experts?: ExpertPlacement;
}

/** Slots per block of the scratch cache. */
export const embeddingBlockSize = 64;

/** Exact attention to the whole text. */
const lowerBidirectionalAttention: AttentionLowering = (b, site) => {
  const { q, positions, sequences, kv, scale, window, softCap } = site;
  return b.activation('attention', { q, positions, sequences, ...kv }, { scale, window, softCap, causal: false });
};

/** Opens a program that embeds. */
export function beginEmbedding(
  parts: Pick<EmbedderDescription, 'config' | 'weights' | 'constants'>,
  { maxTokens, maxSequences, contextSize = maxTokens, feedForward, experts }: EmbeddingProgramOptions,
): DecoderStep {
  const options = {
    maxTokens,
    maxSequences,
    maxOutputRows: 0,
    topK: 0,
    contextSize,
    cache: {
      // each text may leave a block partly empty
      numBlocks: Math.floor(maxTokens / embeddingBlockSize) + maxSequences,
      blockSize: embeddingBlockSize,
      maxBlocksPerSequence: Math.ceil(contextSize / embeddingBlockSize),
      keyDType: 'f32',
      valueDType: 'f32',
    },
    attention: parts.config.isEncoder === true ? lowerBidirectionalAttention : lowerDenseAttention,
    ...(feedForward === undefined ? {} : { feedForward }),
    ...(experts === undefined ? {} : { experts }),
  } as const;
  return beginDecoder(parts, options, true);
}

/** Closes a program that embeds. @param normalize the norm after the last layer, which goes row by row */
export function endEmbedding(
  { b, contextLengths }: DecoderStep,
  hidden: ProgramTensor,
  normalize: (rows: ProgramTensor) => ProgramTensor,
  pooling: Pooling,
): void {
  b.setLayer(-1);
  const kind: PoolingKind = pooling === 'cls' ? 'first' : pooling;
  const runs = { starts: b.scalar('starts', ['B']), lengths: contextLengths };
  const pool = (x: ProgramTensor): ProgramTensor => b.activation('pool-rows', { x, ...runs }, { kind });
  // one row of a text needs no norm of the others
  const takesOne = kind === 'first' || kind === 'last';
  b.output('embeddings', takesOne ? normalize(pool(hidden)) : pool(normalize(hidden)));
}
