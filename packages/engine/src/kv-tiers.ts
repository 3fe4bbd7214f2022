/**
 * The tiers of the cache below the pool: who leaves the pool when it runs low, and what a step needs to attend to it.
 *
 * Blocks leave in runs, oldest first, never the first block of a sequence (every token looks at it, arXiv:2309.17453 §3.2)
 * nor its newest ones. Their bytes are stored before the block manager lets go of them: a failure loses nothing.
 */
import type { BlockManager, SequenceView } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import type { KvBuffer, KvMemory } from './kv-memory.js';
import type { TierPlan } from './kv-tiers-plan.js';
import type { TierStore } from './kv-tiers-store.js';
import type { TierStream } from './kv-tiers-stream.js';
import type { ReportEvent, TierMetrics } from './metrics.js';

/** Room that a sequence is about to need. */
export interface RoomRequest {
  readonly view: SequenceView;
  readonly numTokens: number;
}

export interface KvTiers {
  readonly stream: TierStream;
  /**
   * Moves blocks out of the pool until there is room, or nothing is left that may leave. No step may run meanwhile.
   * @throws {CapacityError | IoError} when blocks cannot be stored; they stay where they are
   */
  makeRoom(requests: readonly RoomRequest[]): Promise<void>;
  /** The same for a number of blocks of no sequence yet. */
  makeBlocks(numBlocks: number): Promise<void>;
  /** Stores blocks that come from elsewhere. As `TierStore.put`, for any number of blocks. */
  store(
    positions: readonly Int32Array[],
    readRow: (buffer: KvBuffer, index: number, target: Uint8Array) => Promise<void>,
  ): Promise<readonly number[]>;
  /** Copies bytes of a stored block's row, from `byteOffset` on. @throws {PageError} */
  read(buffer: KvBuffer, pageId: number, byteOffset: number, target: Uint8Array): Promise<void>;
  /** Forgets pages that no sequence has any more. */
  drop(pageIds: readonly number[]): void;
  metrics(): TierMetrics;
  close(): Promise<void>;
}

export interface KvTierParts {
  readonly manager: BlockManager;
  readonly memory: KvMemory;
  readonly plan: TierPlan;
  readonly store: TierStore;
  readonly stream: TierStream;
  readonly report: ReportEvent;
}

/** A block of the pool that may leave, as one of its sequences has it. */
interface Candidate {
  readonly tableIndex: number;
  readonly block: number;
  /** The other sequences that have it. */
  readonly others: readonly { readonly id: number; readonly tableIndex: number }[];
}

export function createKvTiers({ manager, memory, plan, store, stream, report }: KvTierParts): KvTiers {
  const { blockSize, numBlocks, maxBlocksPerSequence } = manager;
  const storedBuffers = memory.blockBuffers.filter(({ name }) => name !== slotPositionsName);
  const storedBlockBytes = storedBuffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
  /** Newest blocks of a sequence that stay while others can leave; the last one always stays. */
  const numRecent = Math.max(1, Math.min(4, numBlocks >> 3));
  /** The run of each buffer that was read last by `read`. */
  const lastRuns = new Map<KvBuffer, { readonly runId: number; readonly bytes: Promise<Uint8Array> }>();
  let numDemotedBlocks = 0;

  function isMovable(view: SequenceView, tableIndex: number, numKept: number): boolean {
    const { positions, numCommitted, blocks } = view;
    if (tableIndex < 1 || tableIndex >= blocks.length - numKept) return false;
    const begin = tableIndex * blockSize;
    if (begin + blockSize > positions.length) return false;
    for (let slot = begin; slot < begin + blockSize; slot++)
      if ((positions[slot] as number) >= numCommitted) return false;
    return true;
  }

  /** The oldest blocks of a sequence that may leave, of all sequences that have them. */
  function candidatesOf(view: SequenceView, numKept: number): Candidate[] {
    const candidates: Candidate[] = [];
    for (let tableIndex = 1; tableIndex < view.blocks.length - numKept; tableIndex++) {
      if (candidates.length === plan.runBlocks) break;
      if (!isMovable(view, tableIndex, numKept)) continue;
      const block = view.blocks[tableIndex] as number;
      const others = manager.refCount(block) === 1 ? [] : othersOf(view.id, block, numKept);
      if (others !== undefined) candidates.push({ tableIndex, block, others });
    }
    return candidates;
  }

  function othersOf(id: number, block: number, numKept: number): Candidate['others'] | undefined {
    const others: { id: number; tableIndex: number }[] = [];
    for (const otherId of manager.sequenceIds) {
      if (otherId === id) continue;
      const other = manager.sequence(otherId);
      const tableIndex = other.blocks.indexOf(block);
      if (tableIndex < 0) continue;
      if (!isMovable(other, tableIndex, numKept)) return undefined;
      others.push({ id: otherId, tableIndex });
    }
    return others;
  }

  /** Stores a run of blocks, then lets all sequences let go of them. */
  async function demote(view: SequenceView, candidates: readonly Candidate[]): Promise<void> {
    await memory.flush();
    const positions = candidates.map(({ tableIndex }) =>
      view.positions.slice(tableIndex * blockSize, (tableIndex + 1) * blockSize),
    );
    const pageIds = await store.put(positions, (buffer, index, target) =>
      memory.read(buffer, (candidates[index] as Candidate).block, 0, target),
    );
    const leaving = new Map<number, { tableIndex: number; pageId: number }[]>();
    const leave = (id: number, tableIndex: number, pageId: number): void => {
      const pages = leaving.get(id) ?? [];
      pages.push({ tableIndex, pageId });
      leaving.set(id, pages);
    };
    for (const [index, { tableIndex, others }] of candidates.entries()) {
      const pageId = pageIds[index] as number;
      leave(view.id, tableIndex, pageId);
      for (const other of others) leave(other.id, other.tableIndex, store.share(pageId));
    }
    for (const [id, pages] of leaving) memory.queue(manager.detach(id, pages));
    numDemotedBlocks += candidates.length;
    report({
      kind: 'demoted',
      numTokens: candidates.length * blockSize,
      sizeBytes: candidates.length * storedBlockBytes,
    });
  }

  const numAvailable = (): number => {
    const { numFreeBlocks, numCachedBlocks } = manager.usage();
    return numFreeBlocks + numCachedBlocks;
  };

  /** Whole runs first, of whoever has the most. */
  function choose(numKept: number): { view: SequenceView; candidates: Candidate[] } | undefined {
    let best: { view: SequenceView; candidates: Candidate[] } | undefined;
    for (const id of manager.sequenceIds) {
      const view = manager.sequence(id);
      const candidates = candidatesOf(view, numKept);
      const excess = candidates.length - (best?.candidates.length ?? 0);
      if (excess < 0 || candidates.length === 0) continue;
      if (excess === 0 && view.blocks.length <= (best?.view.blocks.length ?? 0)) continue;
      best = { view, candidates };
    }
    return best;
  }

  async function makeBlocks(wanted: number): Promise<void> {
    lastRuns.clear();
    while (numAvailable() < wanted) {
      const victims = choose(numRecent) ?? choose(1);
      if (victims === undefined) return;
      await demote(victims.view, victims.candidates);
    }
  }

  return {
    stream,
    makeBlocks,
    async makeRoom(requests): Promise<void> {
      let wanted = 0;
      for (const { view, numTokens } of requests) {
        const numNew = manager.countNewBlocks(view.id, numTokens);
        wanted += numNew;
        while (view.blocks.length + numNew > maxBlocksPerSequence) {
          const candidates = candidatesOf(view, 1);
          if (candidates.length === 0) break;
          await demote(view, candidates);
        }
      }
      await makeBlocks(wanted);
    },
    async store(positions, readRow): Promise<readonly number[]> {
      const pageIds: number[] = [];
      try {
        for (let begin = 0; begin < positions.length; begin += plan.runBlocks) {
          const own = positions.slice(begin, begin + plan.runBlocks);
          pageIds.push(...(await store.put(own, (buffer, index, target) => readRow(buffer, begin + index, target))));
        }
      } catch (error) {
        store.drop(pageIds);
        throw error;
      }
      return pageIds;
    },
    async read(buffer, pageId, byteOffset, target): Promise<void> {
      const { runId, index } = store.locate(pageId);
      let run = lastRuns.get(buffer);
      if (run?.runId !== runId) {
        const bytes = new Uint8Array(plan.runBlocks * buffer.rowBytes);
        run = { runId, bytes: store.readRun(runId, buffer, bytes).then(() => bytes) };
        lastRuns.set(buffer, run);
      }
      try {
        const begin = index * buffer.rowBytes + byteOffset;
        target.set((await run.bytes).subarray(begin, begin + target.byteLength));
      } catch (error) {
        lastRuns.delete(buffer);
        throw error;
      }
    },
    drop: (pageIds) => store.drop(pageIds),
    metrics(): TierMetrics {
      const { numStoredBlocks, warmBytes, coldBytes, bytesRead, bytesWritten, warmHits, misses, demotions } =
        store.statistics();
      return {
        hotBytes: plan.numBlocks * memory.blockBytes,
        warmBytes,
        coldBytes,
        numStoredTokens: numStoredBlocks * blockSize,
        numDemotedTokens: numDemotedBlocks * blockSize,
        numColdMoves: demotions,
        bytesRead,
        bytesWritten,
        numHits: warmHits,
        numMisses: misses,
        ...stream.statistics(),
      };
    },
    close: () => store.close(),
  };
}
