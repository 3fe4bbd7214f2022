/**
 * Changes of a sequence that need blocks or touch the contents of blocks: appending, clearing slots, truncating,
 * inserting a block. Each checks for room first and throws before it changes anything.
 */
import { CapacityError } from '@winnow/tensor';
import type { BlockPool } from './block-pool.js';
import { removeBlock, type SequenceState } from './sequence-state.js';

/** The first `numSlots` slots of block `from` (keys, values, positions, summaries) are copied to block `to`. */
export interface BlockCopy {
  readonly from: number;
  readonly to: number;
  readonly numSlots: number;
}

/** What the owner of the tensors must do after a call, in this order, before anything else is written or read. */
export interface BlockChanges {
  /** Newly allocated blocks, still empty. */
  readonly newBlocks: readonly number[];
  /** Copies to perform. Sources stay in use by other sequences. */
  readonly copies: readonly BlockCopy[];
  /** Physical slots that are now empty: set their position to -1. */
  readonly clearedSlots: readonly number[];
  /** Detached pages that no sequence refers to: you can delete their stored bytes. */
  readonly droppedPages: readonly number[];
}

/** Where new tokens go. */
export interface AppendedSlots extends BlockChanges {
  /** Physical slot of each token. */
  readonly slots: Int32Array;
  /** Position of each token. */
  readonly positions: Int32Array;
}

/** `BlockChanges` while they are collected. */
export interface Changes extends BlockChanges {
  readonly newBlocks: number[];
  readonly copies: BlockCopy[];
  readonly clearedSlots: number[];
  readonly droppedPages: number[];
}

export function noChanges(): Changes {
  return { newBlocks: [], copies: [], clearedSlots: [], droppedPages: [] };
}

/** The effect of an append. */
export interface AppendPlan {
  /** Tokens that fill holes; the others go to the end. */
  readonly numFromHoles: number;
  /** Table indices of blocks in use that would be written to. */
  readonly writtenBlocks: ReadonlySet<number>;
  readonly numTableBlocks: number;
  /** New blocks and copies of shared ones. */
  readonly numBlocksNeeded: number;
}

export interface SlotWriterOptions {
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly maxBlocksPerSequence: number;
}

export class SlotWriter {
  readonly #pool: BlockPool;
  readonly #options: SlotWriterOptions;
  #numCopies = 0;

  constructor(pool: BlockPool, options: SlotWriterOptions) {
    this.#pool = pool;
    this.#options = options;
  }

  /** Number of blocks copied so far because they were shared. */
  get numCopies(): number {
    return this.#numCopies;
  }

  planAppend(state: SequenceState, numTokens: number): AppendPlan {
    const { blockSize } = this.#options;
    const numFromHoles = Math.min(numTokens, state.holes.length);
    const numAtEnd = numTokens - numFromHoles;
    const numSlots = state.positions.length;
    const writtenBlocks = new Set<number>();
    for (let i = 0; i < numFromHoles; i++) writtenBlocks.add(this.#tableIndexOf(state.holes[i]));
    if (numAtEnd > 0 && numSlots % blockSize !== 0) writtenBlocks.add(this.#tableIndexOf(numSlots));
    const numShared = [...writtenBlocks].filter((index) => this.#isShared(state, index)).length;
    const numTableBlocks = Math.ceil((numSlots + numAtEnd) / blockSize);
    const numBlocksNeeded = numShared + numTableBlocks - state.blocks.length;
    return { numFromHoles, writtenBlocks, numTableBlocks, numBlocksNeeded };
  }

  canCarryOut({ numTableBlocks, numBlocksNeeded }: AppendPlan): boolean {
    return this.#refusal(numTableBlocks, numBlocksNeeded) === undefined;
  }

  /** @throws {CapacityError} when the pool or the block table has no room */
  append(state: SequenceState, tokens: ArrayLike<number>): AppendedSlots {
    const { numFromHoles, writtenBlocks, numTableBlocks, numBlocksNeeded } = this.planAppend(state, tokens.length);
    this.checkRoom(numTableBlocks, numBlocksNeeded);
    const changes = noChanges();
    for (const tableIndex of writtenBlocks) this.#makeWritable(state, tableIndex, changes);
    while (state.blocks.length < numTableBlocks) {
      const block = this.#pool.allocate();
      state.blocks.push(block);
      changes.newBlocks.push(block);
    }
    const filledHoles = state.holes.slice(0, numFromHoles);
    if (numFromHoles > 0) {
      state.holes = state.holes.slice(numFromHoles);
      state.isSorted = false;
    }
    const slots = new Int32Array(tokens.length);
    const positions = new Int32Array(tokens.length);
    for (let i = 0; i < tokens.length; i++) {
      const position = state.tokens.length;
      let slot = state.positions.length;
      if (i < numFromHoles) {
        slot = filledHoles[i];
        state.positions.set(slot, position);
      } else {
        state.positions.push(position);
      }
      state.tokens.push(tokens[i]);
      slots[i] = this.#physicalSlot(state, slot);
      positions[i] = position;
    }
    return { ...changes, slots, positions };
  }

  /** Empties slots in use. @throws {CapacityError} when shared blocks must be copied and there is no room */
  clear(state: SequenceState, slots: readonly number[], changes: Changes): void {
    const victims = Map.groupBy(slots, (slot) => this.#tableIndexOf(slot));
    const emptied = [...victims.keys()].filter((tableIndex) => {
      return this.#countFilled(state, tableIndex) === (victims.get(tableIndex) as number[]).length;
    });
    for (const tableIndex of emptied) victims.delete(tableIndex);
    const numShared = [...victims.keys()].filter((tableIndex) => this.#isShared(state, tableIndex)).length;
    const numGained = emptied.filter((tableIndex) => !this.#isShared(state, tableIndex)).length;
    this.checkRoom(state.blocks.length, numShared, numGained);
    emptied.sort((a, b) => b - a);
    for (const tableIndex of emptied) this.#pool.release(state.blocks[tableIndex]);
    for (const [tableIndex, group] of victims) {
      this.#makeWritable(state, tableIndex, changes);
      for (const slot of group) {
        state.positions.set(slot, -1);
        state.holes.push(slot);
        changes.clearedSlots.push(this.#physicalSlot(state, slot));
      }
    }
    for (const tableIndex of emptied) removeBlock(state, tableIndex, this.#options.blockSize);
  }

  /** Truncates a sorted sequence before the first position >= numTokens. */
  cut(state: SequenceState, numTokens: number, changes: Changes): void {
    const { blockSize } = this.#options;
    const { positions } = state;
    const before = positions.length;
    let length = before;
    while (length > 0 && (positions.at(length - 1) >= numTokens || positions.at(length - 1) < 0)) length--;
    const numKept = Math.ceil(length / blockSize);
    while (state.blocks.length > numKept) this.#pool.release(state.blocks.pop() as number);
    const end = Math.min(before, numKept * blockSize);
    if (end > length && !this.#isShared(state, numKept - 1)) {
      this.#pool.dropContent(state.blocks[numKept - 1]);
      for (let slot = length; slot < end; slot++) {
        if (positions.at(slot) >= 0) changes.clearedSlots.push(this.#physicalSlot(state, slot));
      }
    }
    positions.truncate(length);
    state.holes = state.holes.filter((slot) => slot < length);
  }

  /** Adds a block whose slots hold `inserted`; there must be room. */
  insertBlock(state: SequenceState, inserted: Int32Array, changes: Changes): { block: number; tableIndex: number } {
    const { blockSize } = this.#options;
    const block = this.#pool.allocate();
    changes.newBlocks.push(block);
    const tableIndex = this.#insertionIndex(state, inserted);
    const begin = tableIndex * blockSize;
    state.holes = state.holes.map((slot) => (slot < begin ? slot : slot + blockSize));
    inserted.forEach((position, i) => {
      if (position < 0) state.holes.push(begin + i);
    });
    state.positions.insert(begin, inserted);
    state.blocks.splice(tableIndex, 0, block);
    return { block, tableIndex };
  }

  /** @throws {CapacityError} when the block table would be too long or the pool has too few blocks */
  checkRoom(numTableBlocks: number, numBlocksNeeded: number, numGained = 0): void {
    const refusal = this.#refusal(numTableBlocks, numBlocksNeeded, numGained);
    if (refusal !== undefined) throw refusal;
  }

  #refusal(numTableBlocks: number, needed: number, numGained = 0): CapacityError | undefined {
    const { numBlocks, blockSize, maxBlocksPerSequence } = this.#options;
    if (numTableBlocks > maxBlocksPerSequence) {
      return new CapacityError({
        resource: 'kv cache: block table',
        needed: numTableBlocks,
        available: maxBlocksPerSequence,
        unit: 'blocks',
        hint: `one sequence holds at most ${maxBlocksPerSequence * blockSize} tokens`,
      });
    }
    const available = this.#pool.numFree + this.#pool.numCached + numGained;
    if (needed <= available) return undefined;
    const hint = `${numBlocks - available} of ${numBlocks} blocks of ${blockSize} tokens are in use`;
    return new CapacityError({ resource: 'kv cache', needed, available, unit: 'blocks', hint });
  }

  /** Makes a block of the table exclusive to this sequence and invisible to prefix lookups. */
  #makeWritable(state: SequenceState, tableIndex: number, changes: Changes): void {
    const block = state.blocks[tableIndex];
    if (!this.#isShared(state, tableIndex)) {
      this.#pool.dropContent(block);
      return;
    }
    const { blockSize } = this.#options;
    const copy = this.#pool.allocate();
    this.#pool.release(block);
    state.blocks[tableIndex] = copy;
    const numSlots = Math.min(blockSize, state.positions.length - tableIndex * blockSize);
    changes.newBlocks.push(copy);
    changes.copies.push({ from: block, to: copy, numSlots });
    this.#numCopies++;
  }

  /** Where to insert a block so that a sorted sequence stays sorted, if possible. */
  #insertionIndex(state: SequenceState, inserted: Int32Array): number {
    if (!state.isSorted) return 0;
    const first = inserted.find((position) => position >= 0) as number;
    let tableIndex = 0;
    while (tableIndex < state.blocks.length && this.#firstPosition(state, tableIndex) < first) tableIndex++;
    // a partial block must stay last
    if (tableIndex === state.blocks.length && state.positions.length % this.#options.blockSize !== 0) {
      tableIndex--;
      state.isSorted = false;
    }
    return tableIndex;
  }

  #firstPosition(state: SequenceState, tableIndex: number): number {
    for (const position of this.#positionsOf(state, tableIndex)) if (position >= 0) return position;
    return Infinity;
  }

  #countFilled(state: SequenceState, tableIndex: number): number {
    let count = 0;
    for (const position of this.#positionsOf(state, tableIndex)) if (position >= 0) count++;
    return count;
  }

  #positionsOf({ positions }: SequenceState, tableIndex: number): Int32Array {
    const { blockSize } = this.#options;
    return positions.view().subarray(tableIndex * blockSize, (tableIndex + 1) * blockSize);
  }

  #isShared({ blocks }: SequenceState, tableIndex: number): boolean {
    return this.#pool.refCount(blocks[tableIndex]) > 1;
  }

  #tableIndexOf(slot: number): number {
    return Math.floor(slot / this.#options.blockSize);
  }

  #physicalSlot(state: SequenceState, slot: number): number {
    const { blockSize } = this.#options;
    return state.blocks[this.#tableIndexOf(slot)] * blockSize + (slot % blockSize);
  }
}
