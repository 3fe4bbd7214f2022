/** The KV cache that all sequences of a model share: its blocks, their memory, recurrent states and offloaded pages. */
import { DeviceLostError } from '@winnow/tensor';
import type { RotaryLengths } from '@winnow/models';
import type { BlockChanges, BlockManager, HeavyHitterOptions } from '@winnow/kv-cache';
import type { KvOffloader } from '../kv-offload/offloader.js';
import type { KvMemory } from '../memory/kv-memory.js';
import type { ReportEvent } from '../metrics/events.js';
import type { CacheMetrics } from '../metrics/model-metrics.js';
import type { Sequence } from './sequence.js';
import type { StateRows } from './state-rows.js';

export interface KvPoolParts {
  readonly manager: BlockManager;
  readonly memory: KvMemory;
  /** For models with recurrent state. */
  readonly states?: StateRows | undefined;
  /** The tiers below the pool. */
  readonly tiers?: KvOffloader | undefined;
  /** For models whose RoPE depends on the length of the sequence. */
  readonly rotaryLengths?: RotaryLengths | undefined;
  /** With an eviction rule that tracks attention mass. */
  readonly heavyHitters?: HeavyHitterOptions | undefined;
  readonly report: ReportEvent;
}

export class KvPool {
  readonly manager: BlockManager;
  readonly memory: KvMemory;
  readonly states: StateRows | undefined;
  readonly tiers: KvOffloader | undefined;
  readonly rotaryLengths: RotaryLengths | undefined;
  readonly heavyHitters: HeavyHitterOptions | undefined;
  readonly report: ReportEvent;
  /** All open sequences. */
  readonly sequences: Set<Sequence> = new Set();
  /** Forks in the block manager that sessions are being saved from. */
  readonly drafts: Set<number> = new Set();
  /** The last lost device, whose contents are gone. */
  lost: DeviceLostError | undefined;
  /** Called when blocks may have become free; the scheduler sets it. */
  onFreed: () => void = () => undefined;

  constructor({ manager, memory, states, tiers, rotaryLengths, heavyHitters, report }: KvPoolParts) {
    this.manager = manager;
    this.memory = memory;
    this.states = states;
    this.tiers = tiers;
    this.rotaryLengths = rotaryLengths;
    this.heavyHitters = heavyHitters;
    this.report = report;
  }

  /** Drops the offloaded pages that no sequence refers to anymore, and queues the other changes until the next step. */
  apply(changes: BlockChanges): void {
    if (changes.droppedPages.length > 0) this.tiers?.drop(changes.droppedPages);
    this.memory.queue(changes);
  }

  /**
   * Handles the loss of the device's cache: all sequences keep their tokens for recomputation, and shared blocks are
   * gone.
   * @returns the error of each sequence that cannot be recomputed, because it is not known when positions were
   * evicted
   */
  forget(lost: DeviceLostError): ReadonlyMap<Sequence, DeviceLostError> {
    const failures = new Map<Sequence, DeviceLostError>();
    this.lost = lost;
    for (const fork of this.drafts) this.apply(this.manager.truncate(fork, 0));
    for (const sequence of this.sequences) {
      sequence.rollback();
      const obstacle = this.#obstacleOf(sequence);
      if (obstacle === undefined) {
        sequence.preempt();
        continue;
      }
      const { backend } = lost;
      const failure = new DeviceLostError({ backend, reason: `${lost.reason}; ${obstacle}` }, { cause: lost });
      sequence.lose(failure);
      failures.set(sequence, failure);
    }
    this.manager.dropCached();
    this.memory.forget();
    return failures;
  }

  /** The reason why a sequence cannot be recomputed from its tokens. */
  #obstacleOf({ view, evictions }: Sequence): string | undefined {
    if (view.numEvicted === 0) return undefined;
    const rest = 'so the sequence cannot be recomputed';
    if (!evictions.isComplete) return `positions were evicted before the session was saved, ${rest}`;
    return this.tiers === undefined ? undefined : `positions were evicted from offloaded pages, ${rest}`;
  }

  /** Blocks that `numTokens` more tokens of a sequence need, and blocks that are free or can be reclaimed. */
  roomFor(sequenceId: number, numTokens: number): { readonly neededBlocks: number; readonly availableBlocks: number } {
    const { numFreeBlocks, numCachedBlocks } = this.manager.usage();
    const neededBlocks = this.manager.countNewBlocks(sequenceId, numTokens);
    return { neededBlocks, availableBlocks: numFreeBlocks + numCachedBlocks };
  }

  hasRoomFor(sequenceId: number, numTokens: number): boolean {
    const { neededBlocks, availableBlocks } = this.roomFor(sequenceId, numTokens);
    return neededBlocks <= availableBlocks;
  }

  metrics(): CacheMetrics {
    const { manager, memory, states } = this;
    const { numUsedBlocks, numCachedBlocks, numFreeBlocks } = manager.usage();
    const { numSharedTokens, numEvictedTokens, numReclaimedBlocks } = manager.statistics();
    return {
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
    };
  }
}
