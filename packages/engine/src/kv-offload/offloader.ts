/**
 * The tiers of the cache below the pool: who leaves the pool when it runs low, and what a step needs to attend to it.
 *
 * Blocks leave in runs, oldest first, never the first block of a sequence (every token looks at it, arXiv:2309.17453 §3.2)
 * nor its newest ones. Their bytes are stored before the block manager lets go of them: a failure loses nothing.
 */
import type { BlockChanges, BlockManager, DetachedPage, SequenceView } from '@winnow/kv-cache';
import { IoError } from '@winnow/tensor';
import { slotPositionsName } from '@winnow/models';
import type { KvBuffer, KvMemory } from '../memory/kv-memory.js';
import type { TierPlan } from './plan.js';
import type { TierStore } from './store.js';
import type { TierStream } from './stream.js';
import type { ReportEvent } from '../metrics/events.js';
import type { TierMetrics } from '../metrics/model-metrics.js';

/** Room that a sequence is about to need. */
export interface RoomRequest {
  readonly view: SequenceView;
  readonly numTokens: number;
}

export interface KvTiers {
  readonly stream: TierStream;
  /**
   * Moves blocks out of the pool until there is room, or nothing is left that may leave; where there is much room, pages of
   * these sequences come back. No step may run meanwhile.
   * @throws {CapacityError | IoError} when blocks cannot be stored; they stay where they are
   * @throws {PageError} when pages that have to be in the pool cannot be read
   */
  makeRoom(requests: readonly RoomRequest[]): Promise<void>;
  /** Whether everything is in the pool that has to be there for a step. */
  isReady(view: SequenceView): boolean;
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
  const { blockSize, maxBlocksPerSequence, numBlocks } = manager;
  const { reads } = plan;
  const storedBuffers = memory.blockBuffers.filter(({ name }) => name !== slotPositionsName);
  const positionBuffer = memory.blockBuffers.find(({ name }) => name === slotPositionsName);
  const storedBlockBytes = storedBuffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
  /** Newest blocks of a sequence that stay while others can leave; the last one always stays. */
  const numRecent = Math.max(1, Math.min(4, numBlocks >> 3));
  /** The run of each buffer that was read last by `read`. */
  const lastRuns = new Map<KvBuffer, { readonly runId: number; readonly bytes: Promise<Uint8Array> }>();
  let numDemotedBlocks = 0;
  let numPromotedBlocks = 0;
  /** Sequences whose next step is about to run. */
  let running: ReadonlySet<number> = new Set();

  function isMovable(view: SequenceView, tableIndex: number, numKept: number): boolean {
    const { positions, numCommitted, blocks } = view;
    if (tableIndex < 1 || tableIndex >= blocks.length - numKept) return false;
    const begin = tableIndex * blockSize;
    if (begin + blockSize > positions.length) return false;
    // others get what they read back before they run
    const mayRead = running.has(view.id) || numKept > 1;
    for (let slot = begin; slot < begin + blockSize; slot++) {
      const position = positions[slot] as number;
      if (position >= numCommitted || (mayRead && isRead(view, position))) return false;
    }
    return true;
  }

  function isRead({ numTokens }: SequenceView, position: number): boolean {
    if (reads === undefined || position < 0) return false;
    return position < reads.sinks || position > numTokens - reads.window;
  }

  /** Pages that have to be in the pool before the next step. */
  function missingPages(view: SequenceView): readonly DetachedPage[] {
    if (reads === undefined) return [];
    return view.detachedPages.filter(({ positions }) => positions.some((position) => isRead(view, position)));
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
    for (const [id, pages] of leaving) apply(manager.detach(id, pages));
    numDemotedBlocks += candidates.length;
    report({
      kind: 'demoted',
      numTokens: candidates.length * blockSize,
      sizeBytes: candidates.length * storedBlockBytes,
    });
  }

  /** Pages that have come back to the pool are dropped. */
  function apply(changes: BlockChanges): void {
    store.drop(changes.droppedPages);
    memory.queue(changes);
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

  async function read(buffer: KvBuffer, pageId: number, byteOffset: number, target: Uint8Array): Promise<void> {
    if (store.residentBuffers.includes(buffer)) {
      const { buffer: bytes } = store.resident(pageId);
      target.set(new Uint8Array(bytes, store.residentOffset(buffer) * 4 + byteOffset, target.byteLength));
      return;
    }
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
  }

  /** Brings pages back to the pool, which has room for them. A page that cannot be read stays where it is. */
  async function promote({ id }: SequenceView, pages: readonly DetachedPage[]): Promise<void> {
    await memory.flush();
    let numBlocksBack = 0;
    try {
      for (const { pageId } of pages) {
        const rows = storedBuffers.map((buffer) => ({ buffer, bytes: new Uint8Array(buffer.rowBytes) }));
        for (const { buffer, bytes } of rows) await read(buffer, pageId, 0, bytes);
        const attached = manager.attach(id, pageId);
        for (const { buffer, bytes } of rows) await memory.write(buffer, attached.block, 0, bytes);
        const { positions } = attached;
        const positionBytes = new Uint8Array(positions.buffer, positions.byteOffset, positions.byteLength);
        if (positionBuffer !== undefined) await memory.write(positionBuffer, attached.block, 0, positionBytes);
        apply(attached); // the page goes
        numBlocksBack++;
      }
    } finally {
      lastRuns.clear();
      if (numBlocksBack > 0) {
        numPromotedBlocks += numBlocksBack;
        const [numTokens, sizeBytes] = [numBlocksBack * blockSize, numBlocksBack * storedBlockBytes];
        report({ kind: 'promoted', numTokens, sizeBytes });
      }
    }
  }

  /** Whether a page can come back without a change to the order of slots: slots are in the order of their positions. */
  function fitsIn({ positions, blocks }: SequenceView, { positions: own }: DetachedPage): boolean {
    const firstOfLast = positions[(blocks.length - 1) * blockSize] ?? -1;
    return !own.includes(-1) && (own[0] as number) < firstOfLast;
  }

  /** Brings back what was demoted last, by whole runs, while more stays free than a demotion makes. */
  async function promoteSome(view: SequenceView, wanted: number): Promise<void> {
    if (view.numEvicted > 0 || view.detachedPages.length === 0) return; // after evictions slots are in another order
    const reserve = wanted + plan.runBlocks + numRecent;
    const room = (): number => Math.min(numAvailable() - reserve, maxBlocksPerSequence - wanted - view.blocks.length);
    if (room() <= 0) return;
    const byRun = new Map<number, DetachedPage[]>();
    for (const page of view.detachedPages) {
      if (!fitsIn(view, page)) continue;
      const { runId } = store.locate(page.pageId);
      byRun.set(runId, [...(byRun.get(runId) ?? []), page]);
    }
    const newest = (pages: readonly DetachedPage[]): number =>
      Math.max(...pages.map(({ positions }) => positions[0] as number));
    for (const pages of [...byRun.values()].sort((a, b) => newest(b) - newest(a))) {
      if (pages.length > room()) return;
      try {
        await promote(view, pages);
      } catch (error) {
        if (IoError.isInstance(error)) return; // whoever needs the page is told
        throw error;
      }
    }
  }

  return {
    stream,
    makeBlocks,
    async makeRoom(requests): Promise<void> {
      running = new Set(requests.map(({ view }) => view.id));
      try {
        let wanted = 0;
        for (const { view, numTokens } of requests) {
          const numNew = manager.countNewBlocks(view.id, numTokens) + missingPages(view).length;
          wanted += numNew;
          while (view.blocks.length + numNew > maxBlocksPerSequence) {
            const candidates = candidatesOf(view, 1);
            if (candidates.length === 0) break;
            await demote(view, candidates);
          }
        }
        await makeBlocks(wanted);
        for (const { view } of requests) await promote(view, missingPages(view));
        const numNew = requests.reduce(
          (sum, { view, numTokens }) => sum + manager.countNewBlocks(view.id, numTokens),
          0,
        );
        for (const { view } of requests) await promoteSome(view, numNew);
      } finally {
        running = new Set();
      }
    },
    isReady: (view) => missingPages(view).length === 0,
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
    read,
    drop: (pageIds) => store.drop(pageIds),
    metrics(): TierMetrics {
      const {
        numStoredBlocks,
        warmBytes,
        coldBytes,
        residentBytes,
        bytesRead,
        bytesWritten,
        warmHits,
        misses,
        demotions,
      } = store.statistics();
      return {
        hotBytes: plan.numBlocks * memory.blockBytes,
        warmBytes,
        coldBytes,
        residentBytes,
        numStoredTokens: numStoredBlocks * blockSize,
        numDemotedTokens: numDemotedBlocks * blockSize,
        numPromotedTokens: numPromotedBlocks * blockSize,
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
