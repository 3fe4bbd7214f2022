/**
 * The tiers of the KV cache below the pool: offloads blocks when the pool runs low, and restores them where steps need
 * them or there is room again. Blocks leave in runs. Their bytes are stored before the block manager releases them, so
 * a failure loses nothing.
 */
import type { BlockChanges, BlockManager, DetachedPage, SequenceView } from '@winnow/kv-cache';
import { slotPositionsName } from '@winnow/models';
import { IoError } from '@winnow/tensor';
import type { KvBuffer, KvMemory } from '../memory/kv-memory.js';
import type { ReportEvent } from '../metrics/events.js';
import type { TierMetrics } from '../metrics/model-metrics.js';
import type { OffloadParts } from './parts.js';
import type { TierSizes } from './plan.js';
import type { ReadRow, OffloadStore } from './store.js';
import type { TierStream } from './stream.js';
import { VictimSelector, type Victim, type VictimRun } from './victims.js';

/** Tokens of a sequence that need room in the pool. */
export interface RoomRequest {
  readonly sequence: { readonly view: SequenceView };
  readonly count: number;
}

/** The most recently read run of a buffer. */
interface CachedRun {
  readonly runId: number;
  readonly bytes: Promise<Uint8Array>;
}

export class KvOffloader {
  readonly stream: TierStream;
  readonly #manager: BlockManager;
  readonly #memory: KvMemory;
  readonly #sizes: TierSizes;
  readonly #store: OffloadStore;
  readonly #report: ReportEvent;
  readonly #victims: VictimSelector;
  readonly #storedBuffers: readonly KvBuffer[];
  readonly #positionBuffer: KvBuffer | undefined;
  readonly #storedBlockBytes: number;
  readonly #lastRuns = new Map<KvBuffer, CachedRun>();
  #numDemotedBlocks = 0;
  #numPromotedBlocks = 0;

  constructor({ pool, plan, store }: OffloadParts, stream: TierStream) {
    const { manager, memory } = pool;
    this.stream = stream;
    this.#manager = manager;
    this.#memory = memory;
    this.#sizes = plan.sizes;
    this.#store = store;
    this.#report = pool.report;
    this.#victims = new VictimSelector(manager, plan.sizes.runBlocks, plan.reads);
    this.#storedBuffers = memory.contentBuffers;
    this.#positionBuffer = memory.blockBuffers.find(({ name }) => name === slotPositionsName);
    this.#storedBlockBytes = this.#storedBuffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
  }

  /**
   * Offloads blocks until there is room, or no block may leave; if there is ample room, restores pages of these
   * sequences. No step may run meanwhile.
   * @throws {CapacityError | IoError} when blocks cannot be stored; they stay where they are
   * @throws {PageError} when pages that must be in the pool cannot be read
   */
  async makeRoom(requests: readonly RoomRequest[]): Promise<void> {
    const views = requests.map(({ sequence }) => sequence.view);
    this.#victims.protect(views.map(({ id }) => id));
    try {
      let wanted = 0;
      for (const request of requests) wanted += await this.#shortenTable(request);
      await this.makeBlocks(wanted);
      for (const view of views) await this.#promote(view, this.#victims.missingPages(view));
      const numNew = requests.reduce((sum, request) => sum + this.#countNewBlocks(request), 0);
      for (const view of views) await this.#promoteNewest(view, numNew);
    } finally {
      this.#victims.protect([]);
    }
  }

  /** Whether everything that a step needs is in the pool. */
  isReady(view: SequenceView): boolean {
    return this.#victims.missingPages(view).length === 0;
  }

  /** Offloads blocks until that many are available, or no block may leave. As `makeRoom`. */
  async makeBlocks(numBlocks: number): Promise<void> {
    this.#lastRuns.clear();
    while (this.#numAvailable() < numBlocks) {
      const run = this.#victims.selectRun();
      if (run === undefined) return;
      await this.#demote(run);
    }
  }

  /**
   * Stores blocks from outside the pool, such as those of a session file. As `OffloadStore.put`, for any number of
   * blocks.
   */
  async store(positions: readonly Int32Array[], readRow: ReadRow): Promise<readonly number[]> {
    const { runBlocks } = this.#sizes;
    const pageIds: number[] = [];
    try {
      for (let begin = 0; begin < positions.length; begin += runBlocks) {
        const own = positions.slice(begin, begin + runBlocks);
        const readOwn: ReadRow = (buffer, index, target) => readRow(buffer, begin + index, target);
        pageIds.push(...(await this.#store.put(own, readOwn)));
      }
    } catch (error) {
      this.#store.drop(pageIds);
      throw error;
    }
    return pageIds;
  }

  /** Copies bytes of a stored block's row, from `byteOffset` on. @throws {PageError} */
  async read(buffer: KvBuffer, pageId: number, byteOffset: number, target: Uint8Array): Promise<void> {
    if (this.#store.residentBuffers.includes(buffer)) {
      const { buffer: bytes } = this.#store.resident(pageId);
      target.set(new Uint8Array(bytes, this.#store.residentOffset(buffer) * 4 + byteOffset, target.byteLength));
      return;
    }
    const { runId, index } = this.#store.locate(pageId);
    try {
      const begin = index * buffer.rowBytes + byteOffset;
      target.set((await this.#readRun(runId, buffer)).subarray(begin, begin + target.byteLength));
    } catch (error) {
      this.#lastRuns.delete(buffer);
      throw error;
    }
  }

  /** Drops pages that no sequence refers to anymore. */
  drop(pageIds: readonly number[]): void {
    this.#store.drop(pageIds);
  }

  metrics(): TierMetrics {
    const { blockSize } = this.#manager;
    const statistics = this.#store.statistics();
    return {
      hotBytes: this.#sizes.numBlocks * this.#memory.blockBytes,
      warmBytes: statistics.warmBytes,
      coldBytes: statistics.coldBytes,
      numWarmPages: statistics.numWarmPages,
      numColdPages: statistics.numColdPages,
      residentBytes: statistics.residentBytes,
      numStoredTokens: statistics.numStoredBlocks * blockSize,
      numDemotedTokens: this.#numDemotedBlocks * blockSize,
      numPromotedTokens: this.#numPromotedBlocks * blockSize,
      numColdMoves: statistics.demotions,
      bytesRead: statistics.bytesRead,
      bytesWritten: statistics.bytesWritten,
      numHits: statistics.warmHits,
      numMisses: statistics.misses,
      ...this.stream.statistics(),
    };
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  /** Offloads blocks of a sequence until its block table has room. Returns the blocks that it needs. */
  async #shortenTable(request: RoomRequest): Promise<number> {
    const { view } = request.sequence;
    const numNew = this.#countNewBlocks(request) + this.#victims.missingPages(view).length;
    while (view.blocks.length + numNew > this.#manager.maxBlocksPerSequence) {
      const victims = this.#victims.select(view, 1);
      if (victims.length === 0) break;
      await this.#demote({ view, victims });
    }
    return numNew;
  }

  #countNewBlocks({ sequence, count }: RoomRequest): number {
    return this.#manager.countNewBlocks(sequence.view.id, count);
  }

  #numAvailable(): number {
    const { numFreeBlocks, numCachedBlocks } = this.#manager.usage();
    return numFreeBlocks + numCachedBlocks;
  }

  /** Drops pages that are back in the pool. */
  #apply(changes: BlockChanges): void {
    this.#store.drop(changes.droppedPages);
    this.#memory.queue(changes);
  }

  /** Stores a run of blocks, then detaches them from all sequences. */
  async #demote({ view, victims }: VictimRun): Promise<void> {
    const { blockSize } = this.#manager;
    await this.#memory.flush();
    const positions = victims.map(({ tableIndex }) =>
      view.positions.slice(tableIndex * blockSize, (tableIndex + 1) * blockSize),
    );
    const pageIds = await this.#store.put(positions, (buffer, index, target) =>
      this.#memory.read(buffer, (victims[index] as Victim).block, 0, target),
    );
    for (const [id, pages] of this.#pagesBySequence(view.id, victims, pageIds)) {
      this.#apply(this.#manager.detach(id, pages));
    }
    this.#numDemotedBlocks += victims.length;
    const [numTokens, sizeBytes] = [victims.length * blockSize, victims.length * this.#storedBlockBytes];
    this.#report({ kind: 'demoted', numTokens, sizeBytes });
  }

  /** The blocks that each sequence detaches; sequences that share a block get separate page ids. */
  #pagesBySequence(
    id: number,
    victims: readonly Victim[],
    pageIds: readonly number[],
  ): ReadonlyMap<number, { tableIndex: number; pageId: number }[]> {
    const pagesOf = new Map<number, { tableIndex: number; pageId: number }[]>();
    const add = (owner: number, tableIndex: number, pageId: number): void => {
      const pages = pagesOf.get(owner) ?? [];
      pages.push({ tableIndex, pageId });
      pagesOf.set(owner, pages);
    };
    for (const [index, { tableIndex, others }] of victims.entries()) {
      const pageId = pageIds[index] as number;
      add(id, tableIndex, pageId);
      for (const other of others) add(other.id, other.tableIndex, this.#store.share(pageId));
    }
    return pagesOf;
  }

  /** The rows of a run, caching the last one of each buffer. */
  #readRun(runId: number, buffer: KvBuffer): Promise<Uint8Array> {
    const last = this.#lastRuns.get(buffer);
    if (last?.runId === runId) return last.bytes;
    const target = new Uint8Array(this.#sizes.runBlocks * buffer.rowBytes);
    const bytes = this.#store.readRun(runId, buffer, target).then(() => target);
    this.#lastRuns.set(buffer, { runId, bytes });
    return bytes;
  }

  /** Restores pages to the pool, which has room for them. A page that cannot be read stays in its tier. */
  async #promote({ id }: SequenceView, pages: readonly DetachedPage[]): Promise<void> {
    await this.#memory.flush();
    let numBlocks = 0;
    try {
      for (const { pageId } of pages) {
        await this.#attach(id, pageId);
        numBlocks++;
      }
    } finally {
      this.#lastRuns.clear();
      if (numBlocks > 0) {
        this.#numPromotedBlocks += numBlocks;
        const [numTokens, sizeBytes] = [numBlocks * this.#manager.blockSize, numBlocks * this.#storedBlockBytes];
        this.#report({ kind: 'promoted', numTokens, sizeBytes });
      }
    }
  }

  async #attach(sequenceId: number, pageId: number): Promise<void> {
    const rows = this.#storedBuffers.map((buffer) => ({ buffer, bytes: new Uint8Array(buffer.rowBytes) }));
    for (const { buffer, bytes } of rows) await this.read(buffer, pageId, 0, bytes);
    const attached = this.#manager.attach(sequenceId, pageId);
    for (const { buffer, bytes } of rows) await this.#memory.write(buffer, attached.block, 0, bytes);
    const { buffer: memory, byteOffset, byteLength } = attached.positions;
    const positionBytes = new Uint8Array(memory, byteOffset, byteLength);
    if (this.#positionBuffer !== undefined) {
      await this.#memory.write(this.#positionBuffer, attached.block, 0, positionBytes);
    }
    this.#apply(attached);
  }

  /** Restores the most recently demoted runs while more blocks stay free than a demotion releases. */
  async #promoteNewest(view: SequenceView, wanted: number): Promise<void> {
    if (view.numEvicted > 0 || view.detachedPages.length === 0) return; // evictions change the order of slots
    const { maxBlocksPerSequence } = this.#manager;
    const reserve = wanted + this.#sizes.runBlocks + this.#victims.numRecent;
    const room = (): number =>
      Math.min(this.#numAvailable() - reserve, maxBlocksPerSequence - wanted - view.blocks.length);
    if (room() <= 0) return;
    for (const pages of this.#runsNewestFirst(view)) {
      if (pages.length > room()) return;
      try {
        await this.#promote(view, pages);
      } catch (error) {
        if (IoError.isInstance(error)) return; // a step that needs the page reports it
        throw error;
      }
    }
  }

  /** Pages, by run, that can be restored while slots stay in the order of positions. */
  #runsNewestFirst(view: SequenceView): DetachedPage[][] {
    const firstOfLast = view.positions[(view.blocks.length - 1) * this.#manager.blockSize] ?? -1;
    const byRun = new Map<number, DetachedPage[]>();
    for (const page of view.detachedPages) {
      if (page.positions.includes(-1) || (page.positions[0] as number) >= firstOfLast) continue;
      const { runId } = this.#store.locate(page.pageId);
      byRun.set(runId, [...(byRun.get(runId) ?? []), page]);
    }
    const newest = (pages: readonly DetachedPage[]): number =>
      Math.max(...pages.map(({ positions }) => positions[0] as number));
    return [...byRun.values()].sort((a, b) => newest(b) - newest(a));
  }
}
