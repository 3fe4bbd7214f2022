/** Embedding programs for encoders and decoders: steps of whole texts, with one vector per text. */
import {
  lowerDenseAttention,
  type AttentionLowering,
  type FeedForwardLowering,
  type PoolingKind,
  type ProgramTensor,
} from '@winnow/ops';
import type { EmbedderDescription } from './architecture.js';
import { DecoderStepBuilder, type DecoderStep } from './decoder-program.js';
import type { ExpertPlacement } from './expert-placement.js';

/** How the token vectors of a text are pooled: `cls` takes the first one; the others as in the op `pool-rows`. */
export type Pooling = 'cls' | Exclude<PoolingKind, 'first'>;

/**
 * Capacities of an embedding program. A step is a flat list of the tokens of whole texts; the scalar slots are those of a
 * decoder's step, plus `starts` `[B]`, the index of the first token of each text. Models with segments read them from
 * `tokenTypes` `[T]`. The output `embeddings` is `[B, hiddenDim]`; models with token layers also have `tokenOutputs`. The
 * KV cache is scratch memory of the step, shared by all layers; each text starts a new block.
 */
export interface EmbeddingProgramOptions {
  /** Maximum number of tokens per step (symbol T). */
  readonly maxTokens: number;
  /** Maximum number of texts per step (symbol B). */
  readonly maxSequences: number;
  /** Maximum number of tokens of a text. Default: `maxTokens`. */
  readonly contextSize?: number;
  readonly pooling: Pooling;
  /** As for generative programs. */
  readonly feedForward?: FeedForwardLowering;
  readonly experts?: ExpertPlacement;
  /** As for generative programs. */
  readonly namePrefix?: string;
}

/** The layers of a reranker after pooling, which compute scores `[B, numLabels]`. */
export type RankingHead = (step: DecoderStep, pooled: ProgramTensor) => ProgramTensor;

/** Options of rerankers, whose programs have the output `scores` instead of `embeddings`. */
export interface RankingProgramOptions extends EmbeddingProgramOptions {
  readonly head?: RankingHead;
}

/** Slots per block of the scratch cache. */
export const embeddingBlockSize = 64;

/** Dense bidirectional attention. */
export const lowerBidirectionalAttention: AttentionLowering = (b, node) => {
  const { q, positions, sequences, kv, scale, window, softCap, sinkLogits, positionBias } = node;
  return b.activation(
    'attention',
    { q, positions, sequences, ...kv, sinkLogits, positionBias },
    { scale, window, softCap, causal: false },
  );
};

/** Starts an embedding program. */
export function beginEmbedding(
  parts: Pick<EmbedderDescription, 'config' | 'weights' | 'constants'>,
  { maxTokens, maxSequences, contextSize = maxTokens, feedForward, experts, namePrefix }: EmbeddingProgramOptions,
): DecoderStep {
  const options = {
    maxTokens,
    maxSequences,
    maxOutputRows: 0,
    topK: 0,
    contextSize,
    cache: {
      // each text may leave its last block partly empty
      numBlocks: Math.floor(maxTokens / embeddingBlockSize) + maxSequences,
      blockSize: embeddingBlockSize,
      maxBlocksPerSequence: Math.ceil(contextSize / embeddingBlockSize),
      dtype: { keys: 'f32', values: 'f32' },
    },
    attention: parts.config.isEncoder === true ? lowerBidirectionalAttention : lowerDenseAttention,
    ...(feedForward === undefined ? {} : { feedForward }),
    ...(experts === undefined ? {} : { experts }),
    ...(namePrefix === undefined ? {} : { namePrefix }),
  } as const;
  return new DecoderStepBuilder(parts, options, true);
}

/** Completes an embedding program. @param normalize the norm after the last layer */
export function endEmbedding(
  step: DecoderStep,
  hidden: ProgramTensor,
  normalize: (rows: ProgramTensor) => ProgramTensor,
  { pooling, head }: Pick<RankingProgramOptions, 'pooling' | 'head'>,
): void {
  const { b, contextLengths } = step;
  b.setLayer(-1);
  const kind: PoolingKind = pooling === 'cls' ? 'first' : pooling;
  const runs = { starts: b.scalar('starts', ['B']), lengths: contextLengths };
  const pool = (x: ProgramTensor): ProgramTensor => b.activation('pool-rows', { x, ...runs }, { kind });
  // only the rows that are pooled need the norm
  const takesOne = kind === 'first' || kind === 'last';
  const vectors = takesOne ? normalize(pool(hidden)) : pool(normalize(hidden));
  if (head !== undefined) return b.output('scores', head(step, vectors));
  b.output('embeddings', applyDenseLayers(step, vectors));
  writeTokenOutputs(step, () => normalize(hidden));
}

/** Names of the dense layers after pooling, in order, in programs and GGUF files. */
export const denseLayers = ['dense_2', 'dense_3'] as const;

function applyDenseLayers({ b, optionalWeight }: DecoderStep, vectors: ProgramTensor): ProgramTensor {
  let y = vectors;
  for (const layer of denseLayers) {
    const weight = optionalWeight(`${layer}.weight`);
    if (weight !== undefined) y = b.activation('matmul', { x: y, weight });
  }
  return y;
}

/**
 * Names of layers that compute an output per token from the normalized hidden states, in checkpoints and programs: BGE-M3
 * (arXiv:2402.03216 section 3.2) has one for lexical weights and one for multi-vectors.
 */
export const tokenLayers = ['sparse_linear', 'colbert_linear'] as const;

/** The outputs of these layers in programs: `[T, 1]`, before the ReLU, and `[T, E]`, not normalized. */
export const tokenOutputs: Readonly<Record<(typeof tokenLayers)[number], string>> = {
  sparse_linear: 'tokenWeights',
  colbert_linear: 'tokenVectors',
};

function writeTokenOutputs({ b, optionalWeight }: DecoderStep, rows: () => ProgramTensor): void {
  for (const layer of tokenLayers) {
    const weight = optionalWeight(`${layer}.weight`);
    if (weight === undefined) continue;
    b.output(tokenOutputs[layer], b.activation('matmul', { x: rows(), weight, bias: optionalWeight(`${layer}.bias`) }));
  }
}
