/** What happens inside a loaded model, in numbers and as events. */
import type { FeedForwardMetrics } from './feed-forward.js';
import type { KvPool } from '../runtime/sequence.js';
import type { Scheduler } from '../runtime/scheduler.js';

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
  /** Sequences that wait for room in the cache now. */
  readonly numWaiting: number;
}

export interface ModelMetrics {
  readonly numSessions: number;
  readonly cache: CacheMetrics;
  /** With `kv` tiers that are needed. */
  readonly tiers?: TierMetrics;
  readonly steps: StepMetrics;
  /** With `sparse`, and with weights in tiers. */
  readonly feedForward?: FeedForwardMetrics;
}

/** Something that a caller may want to know when it happens. */
export type EngineEvent =
  /** Something about a model that was changed to make it work, in words. */
  | { readonly kind: 'notice'; readonly text: string }
  /** Positions left the cache of a sequence whose context was full. */
  | { readonly kind: 'evicted'; readonly numTokens: number }
  /** Shared blocks were copied before they changed. */
  | { readonly kind: 'copied'; readonly numBlocks: number; readonly sizeBytes: number }
  /** A sequence waits for room in the cache. */
  | { readonly kind: 'waiting'; readonly neededBlocks: number; readonly availableBlocks: number }
  /** A sequence gave up its blocks for others. */
  | { readonly kind: 'preempted'; readonly numTokens: number }
  /** The oldest tokens of a session left the pool for a lower tier. */
  | { readonly kind: 'demoted'; readonly numTokens: number; readonly sizeBytes: number }
  /** Tokens of a session came back to the pool, where there was room again. */
  | { readonly kind: 'promoted'; readonly numTokens: number; readonly sizeBytes: number }
  /** A page, of one layer's keys or values, went on from one tier to another. */
  | {
      readonly kind: 'moved';
      readonly from: 'warm' | 'cold';
      readonly to: 'warm' | 'cold';
      readonly sizeBytes: number;
    }
  | { readonly kind: 'saved'; readonly numTokens: number; readonly sizeBytes: number }
  | { readonly kind: 'restored'; readonly numTokens: number; readonly sizeBytes: number };

export type ReportEvent = (event: EngineEvent) => void;

/** Keeps what a listener throws away from the work that it watches: it becomes an uncaught error, as in event targets. */
export function guardedListener(onEvent: ReportEvent | undefined): ReportEvent {
  if (onEvent === undefined) return () => undefined;
  return (event) => {
    try {
      onEvent(event);
    } catch (error) {
      void Promise.reject(error);
    }
  };
}

export function collectMetrics(
  { manager, memory, states, tiers }: KvPool,
  scheduler: Scheduler,
  numSessions: number,
): ModelMetrics {
  const { numUsedBlocks, numCachedBlocks, numFreeBlocks } = manager.usage();
  const { numSharedTokens, numEvictedTokens, numReclaimedBlocks } = manager.statistics();
  return {
    numSessions,
    cache: {
      blockSize: manager.blockSize,
      blockBytes: memory.blockBytes,
      numBlocks: manager.numBlocks,
      numUsedBlocks,
      numCachedBlocks,
      numFreeBlocks,
      numSharedTokens,
      ...memory.statistics(),
      numEvictedTokens,
      numReclaimedBlocks,
      numStates: states?.numRows ?? 0,
      numStateSnapshots: states?.numSnapshots ?? 0,
    },
    ...(tiers === undefined ? {} : { tiers: tiers.metrics() }),
    steps: scheduler.statistics(),
  };
}
