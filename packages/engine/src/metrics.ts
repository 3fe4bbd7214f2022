/** What happens inside a loaded model, in numbers and as events. */
import type { KvPool } from './sequence.js';
import type { Scheduler } from './scheduler.js';

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

/** Steps of all sessions since loading. */
export interface StepMetrics {
  readonly numSteps: number;
  /** Steps that computed tokens of more than one sequence. */
  readonly numSharedSteps: number;
  readonly numTokens: number;
  /** Sequences that gave up their blocks for others and were computed again. */
  readonly numPreemptions: number;
  /** Sequences that wait for room in the cache now. */
  readonly numWaiting: number;
}

export interface ModelMetrics {
  readonly numSessions: number;
  readonly cache: CacheMetrics;
  readonly steps: StepMetrics;
}

/** Something that a caller may want to know when it happens. */
export type EngineEvent =
  /** Positions left the cache of a sequence whose context was full. */
  | { readonly kind: 'evicted'; readonly numTokens: number }
  /** Shared blocks were copied before they changed. */
  | { readonly kind: 'copied'; readonly numBlocks: number; readonly sizeBytes: number }
  /** A sequence waits for room in the cache. */
  | { readonly kind: 'waiting'; readonly neededBlocks: number; readonly availableBlocks: number }
  /** A sequence gave up its blocks for others. */
  | { readonly kind: 'preempted'; readonly numTokens: number }
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
  { manager, memory, states }: KvPool,
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
    steps: scheduler.statistics(),
  };
}
