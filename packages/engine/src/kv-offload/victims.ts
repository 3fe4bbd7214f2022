/**
 * Selects the blocks that leave the pool: the oldest of a sequence, but never its first block (attention sinks,
 * arXiv:2309.17453 §3.2) nor its newest ones.
 */
import type { BlockManager, DetachedPage, SequenceView } from '@winnow/kv-cache';
import type { KeptPositions } from './attention.js';

/** A block of the pool that may leave, as one of its sequences has it. */
export interface Victim {
  readonly tableIndex: number;
  readonly block: number;
  /** The other sequences that share it. */
  readonly others: readonly { readonly id: number; readonly tableIndex: number }[];
}

/** Blocks of one sequence that leave together. */
export interface VictimRun {
  readonly view: SequenceView;
  readonly victims: readonly Victim[];
}

export class VictimSelector {
  /** Number of newest blocks of a sequence that stay while others can leave; the last one always stays. */
  readonly numRecent: number;
  readonly #manager: BlockManager;
  readonly #runBlocks: number;
  readonly #reads: KeptPositions | undefined;
  /** Sequences whose next step is about to run. */
  #running: ReadonlySet<number> = new Set();

  /**
   * @param runBlocks maximum number of blocks that leave together
   * @param reads with a policy that attends to nothing outside the pool: positions that have to be in the pool for a
   *   step
   */
  constructor(manager: BlockManager, runBlocks: number, reads: KeptPositions | undefined) {
    this.numRecent = Math.max(1, Math.min(4, manager.numBlocks >> 3));
    this.#manager = manager;
    this.#runBlocks = runBlocks;
    this.#reads = reads;
  }

  /** Protects what the next step of these sequences reads. */
  protect(sequenceIds: Iterable<number>): void {
    this.#running = new Set(sequenceIds);
  }

  /** The longest run of all sequences; among equals, of the sequence with the most blocks. */
  selectRun(): VictimRun | undefined {
    return this.#selectRun(this.numRecent) ?? this.#selectRun(1);
  }

  /** The oldest blocks of a sequence that all of their sequences allow to leave. */
  select(view: SequenceView, numKept: number): Victim[] {
    const victims: Victim[] = [];
    for (let tableIndex = 1; tableIndex < view.blocks.length - numKept; tableIndex++) {
      if (victims.length === this.#runBlocks) break;
      if (!this.#isMovable(view, tableIndex, numKept)) continue;
      const block = view.blocks[tableIndex] as number;
      const others = this.#manager.refCount(block) === 1 ? [] : this.#othersOf(view.id, block, numKept);
      if (others !== undefined) victims.push({ tableIndex, block, others });
    }
    return victims;
  }

  /** Offloaded pages that must be restored before the next step. */
  missingPages(view: SequenceView): readonly DetachedPage[] {
    if (this.#reads === undefined) return [];
    return view.detachedPages.filter(({ positions }) => positions.some((position) => this.#isRead(view, position)));
  }

  #selectRun(numKept: number): VictimRun | undefined {
    let best: VictimRun | undefined;
    for (const id of this.#manager.sequenceIds) {
      const view = this.#manager.sequence(id);
      const victims = this.select(view, numKept);
      const excess = victims.length - (best?.victims.length ?? 0);
      if (excess < 0 || victims.length === 0) continue;
      if (excess === 0 && view.blocks.length <= (best?.view.blocks.length ?? 0)) continue;
      best = { view, victims };
    }
    return best;
  }

  /** The other sequences of a block; `undefined` when one of them must keep it. */
  #othersOf(id: number, block: number, numKept: number): Victim['others'] | undefined {
    const others: { id: number; tableIndex: number }[] = [];
    for (const otherId of this.#manager.sequenceIds) {
      if (otherId === id) continue;
      const other = this.#manager.sequence(otherId);
      const tableIndex = other.blocks.indexOf(block);
      if (tableIndex < 0) continue;
      if (!this.#isMovable(other, tableIndex, numKept)) return undefined;
      others.push({ id: otherId, tableIndex });
    }
    return others;
  }

  #isMovable(view: SequenceView, tableIndex: number, numKept: number): boolean {
    const { positions, numCommitted, blocks } = view;
    const { blockSize } = this.#manager;
    if (tableIndex < 1 || tableIndex >= blocks.length - numKept) return false;
    const begin = tableIndex * blockSize;
    if (begin + blockSize > positions.length) return false;
    // sequences that are not running have their pages restored before they run
    const isProtected = this.#running.has(view.id) || numKept > 1;
    for (let slot = begin; slot < begin + blockSize; slot++) {
      const position = positions[slot] as number;
      if (position >= numCommitted || (isProtected && this.#isRead(view, position))) return false;
    }
    return true;
  }

  #isRead({ numTokens }: SequenceView, position: number): boolean {
    const reads = this.#reads;
    if (reads === undefined || position < 0) return false;
    return position < reads.sinks || position > numTokens - reads.window;
  }
}
