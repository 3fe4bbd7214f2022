/** Metrics of a loaded model. */
import type { FeedForwardMetrics } from './feed-forward.js';
import type { SpeculationMetrics } from './speculation.js';
import type { VisitedKeysMetrics } from './visited-keys.js';

/** The page pool that all sessions share. Used, cached and free blocks add up to `numBlocks`. */
export interface CacheMetrics {
  /** Tokens per block. */
  readonly blockSize: number;
  /** Bytes of a block over all layers. */
  readonly blockBytes: number;
  readonly numBlocks: number;
  readonly numUsedBlocks: number;
  /** Cached for sessions with the same prefix; reclaimed when no free block is left. */
  readonly numCachedBlocks: number;
  readonly numFreeBlocks: number;
  /** Prompt tokens found in blocks of other sequences. */
  readonly numSharedTokens: number;
  /** Blocks copied because sessions that shared them diverged. */
  readonly numCopiedBlocks: number;
  readonly copiedBytes: number;
  /** Tokens dropped by `slide` and `evict`. */
  readonly numEvictedTokens: number;
  /** Cached blocks that were reclaimed. */
  readonly numReclaimedBlocks: number;
  /** Rows of recurrent states, for models that have them. */
  readonly numStates: number;
  /** Recurrent states that are cached with blocks. */
  readonly numStateSnapshots: number;
}

/** The tiers of an offloaded cache. */
export interface TierMetrics {
  /** Size of the pool in the backend's memory. */
  readonly hotBytes: number;
  /** Bytes in memory outside the backend, and in files. */
  readonly warmBytes: number;
  readonly coldBytes: number;
  /** Pages outside the pool, each of one layer's keys or values, in memory and in files. */
  readonly numWarmPages: number;
  readonly numColdPages: number;
  /** Bytes kept in memory to select among pages outside the pool. */
  readonly residentBytes: number;
  /** Tokens currently outside the pool, counted once per session. */
  readonly numStoredTokens: number;
  /** Tokens that have left the pool. */
  readonly numDemotedTokens: number;
  /** Tokens that were restored to it. */
  readonly numPromotedTokens: number;
  /** Pages, each of one layer's keys or values, moved from memory to files. */
  readonly numColdMoves: number;
  /** Bytes read from and written to files. */
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Pages that steps found in memory, and pages that were read from files. */
  readonly numHits: number;
  readonly numMisses: number;
  /** Chunks of the context that were staged for steps, and the time that steps waited for them. */
  readonly numChunks: number;
  readonly waitedMs: number;
  /** Pages that queries selected, each of one layer and KV head, in the pool or outside it. */
  readonly numChosenPages: number;
}

/** Pages of prompts in files, when loaded with `promptCache`. */
export interface PromptCacheMetrics {
  /** Prompt tokens whose pages were read. */
  readonly numReadTokens: number;
  /** Pages that were written. */
  readonly numStoredPages: number;
  /** Pages that were damaged and removed. */
  readonly numDamagedPages: number;
  /** Pages that could not be read or written because the store failed; they were computed, or are not kept. */
  readonly numFailures: number;
  /** Time of reading. */
  readonly readMs: number;
  /** Size of all pages in the stores, including those of other models, as far as the stores know it. */
  readonly sizeBytes: number;
}

/** Steps of all sessions since loading. */
export interface StepMetrics {
  readonly numSteps: number;
  /** Steps that computed tokens of more than one sequence. */
  readonly numSharedSteps: number;
  readonly numTokens: number;
  /** Total time of steps, and prompt and answer tokens per second of it. */
  readonly stepMs: number;
  readonly tokensPerSecond: number;
  /** Sequences that were preempted and recomputed. */
  readonly numPreemptions: number;
  /** Lost devices; each was replaced, the weights reloaded and the sequences recomputed. */
  readonly numDeviceLosses: number;
  /** Sequences that currently wait for blocks. */
  readonly numWaiting: number;
}

export interface ModelMetrics {
  readonly numSessions: number;
  readonly cache: CacheMetrics;
  /** If the KV cache is offloaded. */
  readonly tiers?: TierMetrics;
  /** When loaded with `promptCache`. */
  readonly promptCache?: PromptCacheMetrics;
  readonly steps: StepMetrics;
  /** Drafts of all generations with `speculative`. */
  readonly speculation: SpeculationMetrics;
  /** Records of the programs that run on the reference because the backend has no kernel: see `Model.fallbacks`. */
  readonly numFallbackRecords: number;
  /** With `sparsity` or offloaded weights. */
  readonly feedForward?: FeedForwardMetrics;
  /** When loaded with `trace.visitedKeys`. */
  readonly visitedKeys?: VisitedKeysMetrics;
}
