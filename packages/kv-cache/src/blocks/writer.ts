/**
 * The changes that need blocks or touch the contents of blocks: appending, clearing slots, cutting the end, inserting a
 * block. Each plans first and throws before it changes anything.
 */
import { CapacityError } from '@winnow/tensor';
import type { BlockLedger } from './ledger.js';
import { removeBlock, type SequenceState } from './sequence-state.js';
import type { AppendedSlots, BlockChanges, BlockCopy } from './types.js';

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

/** What appending would do. */
export interface AppendPlan {
  readonly numFromHoles: number;
  readonly numTokens: number;
  /** Table indices of shared blocks that would be written to. */
  readonly sharedBlocks: readonly number[];
  readonly numTableBlocks: number;
  readonly numBlocksNeeded: number;
}

export interface BlockWriter {
  planAppend(state: SequenceState, numTokens: number): AppendPlan;
  /** Why a plan cannot be carried out. */
  refusalOf(plan: AppendPlan): CapacityError | undefined;
  /** @throws {CapacityError} */
  append(state: SequenceState, tokens: ArrayLike<number>): AppendedSlots;
  /** Empties slots in use. @throws {CapacityError} when shared blocks have to be copied and there is no room */
  clear(state: SequenceState, slots: readonly number[], changes: Changes): void;
  /** Cuts a sorted sequence before the first position >= numTokens. */
  cut(state: SequenceState, numTokens: number, changes: Changes): void;
  /** @throws {CapacityError} */
  checkRoom(state: SequenceState, numNewTableBlocks: number, numBlocksNeeded: number): void;
  /** Adds a block whose slots hold `positions`; there must be room. */
  insertBlock(state: SequenceState, positions: Int32Array, changes: Changes): { block: number; tableIndex: number };
}

export interface BlockWriterOptions {
  readonly ledger: BlockLedger;
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly maxBlocksPerSequence: number;
  readonly statistics: { numCopies: number };
}

export function createBlockWriter(options: BlockWriterOptions): BlockWriter {
  const { ledger, numBlocks, blockSize, maxBlocksPerSequence, statistics } = options;
  const blockIndex = (slot: number): number => Math.floor(slot / blockSize);

  function refusal(numTableBlocks: number, needed: number, extraAvailable = 0): CapacityError | undefined {
    if (numTableBlocks > maxBlocksPerSequence) {
      return new CapacityError({
        resource: 'kv cache: block table',
        needed: numTableBlocks,
        available: maxBlocksPerSequence,
        unit: 'blocks',
        hint: `one sequence holds at most ${maxBlocksPerSequence * blockSize} tokens`,
      });
    }
    const available = ledger.numFree + ledger.numCached + extraAvailable;
    if (needed <= available) return undefined;
    const hint = `${numBlocks - available} of ${numBlocks} blocks of ${blockSize} tokens are in use`;
    return new CapacityError({ resource: 'kv cache', needed, available, unit: 'blocks', hint });
  }

  function check(error: CapacityError | undefined): void {
    if (error !== undefined) throw error;
  }

  /** Makes a block of the table one that only this sequence refers to and that no prefix lookup finds. */
  function makeWritable(state: SequenceState, tableIndex: number, changes: Changes): void {
    const block = state.blocks[tableIndex];
    if (ledger.refCount(block) === 1) {
      ledger.forget(block);
      return;
    }
    const copy = ledger.take();
    ledger.release(block);
    state.blocks[tableIndex] = copy;
    const numSlots = Math.min(blockSize, state.positions.length - tableIndex * blockSize);
    changes.newBlocks.push(copy);
    changes.copies.push({ from: block, to: copy, numSlots });
    statistics.numCopies++;
  }

  function physicalSlot(state: SequenceState, slot: number): number {
    return state.blocks[blockIndex(slot)] * blockSize + (slot % blockSize);
  }

  function planAppend(state: SequenceState, numTokens: number): AppendPlan {
    const numFromHoles = Math.min(numTokens, state.holes.length);
    const numAtEnd = numTokens - numFromHoles;
    const numSlots = state.positions.length;
    const written = new Set<number>();
    for (let i = 0; i < numFromHoles; i++) written.add(blockIndex(state.holes[i]));
    if (numAtEnd > 0 && numSlots % blockSize !== 0) written.add(blockIndex(numSlots));
    const sharedBlocks = [...written].filter((index) => ledger.refCount(state.blocks[index]) > 1);
    const numTableBlocks = Math.ceil((numSlots + numAtEnd) / blockSize);
    const numBlocksNeeded = sharedBlocks.length + numTableBlocks - state.blocks.length;
    return { numFromHoles, numTokens, sharedBlocks, numTableBlocks, numBlocksNeeded };
  }

  return {
    planAppend,
    refusalOf: ({ numTableBlocks, numBlocksNeeded }) => refusal(numTableBlocks, numBlocksNeeded),
    append(state, tokens) {
      const { numFromHoles, numTableBlocks, numBlocksNeeded } = planAppend(state, tokens.length);
      check(refusal(numTableBlocks, numBlocksNeeded));
      const changes = noChanges();
      const { positions } = state;
      const written = state.holes.slice(0, numFromHoles);
      const touched = new Set(written.map(blockIndex));
      if (tokens.length > numFromHoles && positions.length % blockSize !== 0) touched.add(blockIndex(positions.length));
      for (const tableIndex of touched) makeWritable(state, tableIndex, changes);
      while (state.blocks.length < numTableBlocks) {
        const block = ledger.take();
        state.blocks.push(block);
        changes.newBlocks.push(block);
      }
      if (numFromHoles > 0) {
        state.holes = state.holes.slice(numFromHoles);
        state.isSorted = false;
      }
      const slots = new Int32Array(tokens.length);
      const appended = new Int32Array(tokens.length);
      for (let i = 0; i < tokens.length; i++) {
        const position = state.tokens.length;
        let slot = positions.length;
        if (i < numFromHoles) {
          slot = written[i];
          positions.set(slot, position);
        } else {
          positions.push(position);
        }
        state.tokens.push(tokens[i]);
        slots[i] = physicalSlot(state, slot);
        appended[i] = position;
      }
      return { ...changes, slots, positions: appended };
    },
    clear(state, slots, changes) {
      const { positions } = state;
      const victims = new Map<number, number[]>();
      for (const slot of slots) {
        const tableIndex = blockIndex(slot);
        const others = victims.get(tableIndex);
        if (others === undefined) victims.set(tableIndex, [slot]);
        else others.push(slot);
      }
      const numFilled = (tableIndex: number): number => {
        const end = Math.min((tableIndex + 1) * blockSize, positions.length);
        let count = 0;
        for (let slot = tableIndex * blockSize; slot < end; slot++) if (positions.at(slot) >= 0) count++;
        return count;
      };
      const emptied = [...victims]
        .filter(([index, group]) => numFilled(index) === group.length)
        .map(([index]) => index);
      for (const tableIndex of emptied) victims.delete(tableIndex);
      const isShared = (tableIndex: number): boolean => ledger.refCount(state.blocks[tableIndex]) > 1;
      const numShared = [...victims.keys()].filter(isShared).length;
      const numGained = emptied.filter((tableIndex) => !isShared(tableIndex)).length;
      check(refusal(state.blocks.length, numShared, numGained));
      emptied.sort((a, b) => b - a);
      for (const tableIndex of emptied) ledger.release(state.blocks[tableIndex]);
      for (const [tableIndex, group] of victims) {
        makeWritable(state, tableIndex, changes);
        for (const slot of group) {
          positions.set(slot, -1);
          state.holes.push(slot);
          changes.clearedSlots.push(physicalSlot(state, slot));
        }
      }
      for (const tableIndex of emptied) removeBlock(state, tableIndex, blockSize);
    },
    cut(state, numTokens, changes) {
      const { positions } = state;
      const before = positions.length;
      let length = before;
      while (length > 0 && (positions.at(length - 1) >= numTokens || positions.at(length - 1) < 0)) length--;
      const numKept = Math.ceil(length / blockSize);
      while (state.blocks.length > numKept) ledger.release(state.blocks.pop() as number);
      const end = Math.min(before, numKept * blockSize);
      if (end > length && ledger.refCount(state.blocks[numKept - 1]) === 1) {
        ledger.forget(state.blocks[numKept - 1]);
        for (let slot = length; slot < end; slot++) {
          if (positions.at(slot) >= 0) changes.clearedSlots.push(physicalSlot(state, slot));
        }
      }
      positions.truncate(length);
      state.holes = state.holes.filter((slot) => slot < length);
    },
    checkRoom: (state, numNewTableBlocks, numBlocksNeeded) =>
      check(refusal(state.blocks.length + numNewTableBlocks, numBlocksNeeded)),
    insertBlock(state, inserted, changes) {
      const block = ledger.take();
      changes.newBlocks.push(block);
      let tableIndex = 0;
      if (state.isSorted) {
        const first = inserted.find((position) => position >= 0) as number;
        const isBefore = (index: number): boolean => {
          const end = Math.min((index + 1) * blockSize, state.positions.length);
          for (let slot = index * blockSize; slot < end; slot++) {
            if (state.positions.at(slot) >= 0) return state.positions.at(slot) < first;
          }
          return false;
        };
        while (tableIndex < state.blocks.length && isBefore(tableIndex)) tableIndex++;
        // a partial block has to stay the last one
        if (tableIndex === state.blocks.length && state.positions.length % blockSize !== 0) {
          tableIndex--;
          state.isSorted = false;
        }
      }
      const begin = tableIndex * blockSize;
      state.holes = state.holes.map((slot) => (slot < begin ? slot : slot + blockSize));
      inserted.forEach((position, i) => {
        if (position < 0) state.holes.push(begin + i);
      });
      state.positions.insert(begin, inserted);
      state.blocks.splice(tableIndex, 0, block);
      return { block, tableIndex };
    },
  };
}
