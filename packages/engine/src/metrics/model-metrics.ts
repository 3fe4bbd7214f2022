/** What happens inside a loaded model, in numbers and as events. */
import type { FeedForwardMetrics } from './feed-forward.js';

/** The page pool that all sessions share. Used, cached and free blocks add up to `numBlocks`. */
export interface CacheMetrics {
  /** Tokens per block. */
  readonly blockSize: number;
  /** Bytes of a block over all layers. */
  readonly blockBytes: number;
  readonly numBlocks: number;
  readonly numUsedBlocks: number;
  /** Kept for sessions with an equal prefix, given up when no free block is left. */
  readonly numCachedBlocks: number;
  readonly numFreeBlocks: number;
  /** Prompt tokens that were taken over from other sequences instead of being computed. */
  readonly numSharedTokens: number;
  /** Blocks copied because two sessions that shared them went different ways. */
  readonly numCopiedBlocks: number;
  readonly copiedBytes: number;
  /** Tokens dropped by `slide` and `evict`. */
  readonly numEvictedTokens: number;
  /** Cached blocks that were given up. */
  readonly numReclaimedBlocks: number;
  /** Rows of recurrent states, for models that have them. */
  readonly numStates: number;
  /** Recurrent states kept beside cached blocks. */
  readonly numStateSnapshots: number;
}

/** The tiers of the cache, when it has several. */
export interface TierMetrics {
  /** Size of the pool in the backend's memory. */
  readonly hotBytes: number;
  /** What is in memory beside it, and in files. */
  readonly warmBytes: number;
  readonly coldBytes: number;
  /** What is kept in memory of the pages outside the pool, to choose among them. */
  readonly residentBytes: number;
  /** Tokens outside the pool now; those of several sessions count for each. */
  readonly numStoredTokens: number;
  /** Tokens that have left the pool. */
  readonly numDemotedTokens: number;
  /** Tokens that have come back to it. */
  readonly numPromotedTokens: number;
  /** Pages, each of one layer's keys or values, that went from memory to files. */
  readonly numColdMoves: number;
  /** From and to files. */
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Pages that steps found in memory, and those that they had to wait for or read ahead from files. */
  readonly numHits: number;
  readonly numMisses: number;
  /** Pieces of the context that were brought in for a step, and the time that steps waited for them. */
  readonly numChunks: number;
  readonly waitedMs: number;
  /** Pages that queries chose to attend to, each of one layer and KV head, in the pool or outside it. */
  readonly numChosenPages: number;
}

/** Steps of all sessions since loading. */
export interface StepMetrics {
  readonly numSteps: number;
  /** Steps that computed tokens of more than one sequence. */
  readonly numSharedSteps: number;
  readonly numTokens: number;
  /** How long steps ran, and the tokens of prompts and answers that a second of that computed. */
  readonly stepMs: number;
  readonly tokensPerSecond: number;
  /** Sequences that gave up their blocks for others and were computed again. */
  readonly numPreemptions: number;
  /** Devices that were lost; the weights were loaded again and the sequences recomputed on another one. */
  readonly numDeviceLosses: number;
  /** Sequences that wait for room in the cache now. */
  readonly numWaiting: number;
}

export interface ModelMetrics {
  readonly numSessions: number;
  readonly cache: CacheMetrics;
  /** With `kv` tiers that are needed. */
  readonly tiers?: TierMetrics;
  readonly steps: StepMetrics;
  /** Records of the programs that run on the reference because the backend has no kernel: see `Model.fallbacks`. */
  readonly numFallbackRecords: number;
  /** With `sparsity`, and with weights in tiers. */
  readonly feedForward?: FeedForwardMetrics;
}
