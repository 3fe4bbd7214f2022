/** Sequences over a pool of blocks: see `BlockManager` for the contract. */
import { ArgumentError } from '@winnow/tensor';
import { createBlockLedger, hashTokens } from './ledger.js';
import { createBlockWriter, noChanges, type Changes } from './writer.js';
import {
  checkSequence,
  countFilled,
  createSequenceState,
  forkState,
  removeBlock,
  tableIndexOf,
  type SequenceState,
} from './sequence-state.js';
import type { BlockChanges, BlockManager, BlockManagerOptions } from './types.js';
import { createPrefixIndex } from './prefix-index.js';
import { restoreState } from './restore-sequence.js';

/** @throws {ArgumentError} for sizes that are not positive integers */
export function createBlockManager(options: BlockManagerOptions): BlockManager {
  const { numBlocks, blockSize, maxBlocksPerSequence = numBlocks, prefixSharing = true } = options;
  for (const [argument, value] of Object.entries({ numBlocks, blockSize, maxBlocksPerSequence })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
    }
  }
  const ledger = createBlockLedger(numBlocks, options.onContentDropped ?? (() => undefined));
  const prefixes = createPrefixIndex(ledger, blockSize, options.hash ?? hashTokens);
  const statistics = { numSharedTokens: 0, numCopies: 0, numEvictedTokens: 0 };
  const writer = createBlockWriter({ ledger, numBlocks, blockSize, maxBlocksPerSequence, statistics });
  const sequences = new Map<number, SequenceState>();
  const pageReferences = new Map<number, number>();
  let nextId = 0;

  function stateOf(id: number): SequenceState {
    const state = sequences.get(id);
    if (state !== undefined) return state;
    throw new ArgumentError({ argument: 'sequence', expected: 'the id of an open sequence', actual: String(id) });
  }

  function releasePage(pageId: number, changes: Changes): void {
    const count = (pageReferences.get(pageId) as number) - 1;
    if (count > 0) {
      pageReferences.set(pageId, count);
    } else {
      pageReferences.delete(pageId);
      changes.droppedPages.push(pageId);
    }
  }

  function truncate(state: SequenceState, numTokens: number): BlockChanges {
    const changes = noChanges();
    if (numTokens >= state.tokens.length) return changes;
    if (state.isSorted) {
      writer.cut(state, numTokens, changes);
    } else {
      const slots: number[] = [];
      state.positions.view().forEach((position, slot) => {
        if (position >= numTokens) slots.push(slot);
      });
      writer.clear(state, slots, changes);
    }
    state.detached = state.detached.filter(({ pageId, positions }) => {
      for (let i = 0; i < positions.length; i++) if (positions[i] >= numTokens) positions[i] = -1;
      if (countFilled(positions) > 0) return true;
      releasePage(pageId, changes);
      return false;
    });
    state.tokens.truncate(numTokens);
    state.numCommitted = Math.min(state.numCommitted, numTokens);
    state.chain.length = Math.min(state.chain.length, Math.floor(numTokens / blockSize));
    const partialBegin = numTokens - (numTokens % blockSize);
    // the next block would not start at a multiple of the block size
    if (partialBegin < numTokens && state.isShareable && tableIndexOf(state, partialBegin, blockSize) < 0) {
      state.isShareable = false;
    }
    return changes;
  }

  return {
    numBlocks,
    blockSize,
    maxBlocksPerSequence,
    get sequenceIds() {
      return [...sequences.keys()];
    },
    createSequence({ prefix = [], salt = '', acceptPrefix = () => true } = {}) {
      const found = prefixSharing ? prefixes.match(prefix, salt, maxBlocksPerSequence) : [];
      let numShared = found.length;
      while (numShared > 0 && !acceptPrefix(found[numShared - 1].contentId, numShared * blockSize)) numShared--;
      const state = createSequenceState(nextId++, salt);
      for (let index = 0; index < numShared; index++) {
        const { contentId } = found[index];
        const block = ledger.blockOf(contentId);
        ledger.retain(block);
        state.blocks.push(block);
        state.chain.push(found[index]);
      }
      state.numCommitted = numShared * blockSize;
      for (let position = 0; position < state.numCommitted; position++) {
        state.tokens.push(prefix[position]);
        state.positions.push(position);
      }
      statistics.numSharedTokens += state.numCommitted;
      sequences.set(state.id, state);
      return state.view;
    },
    restoreSequence(contents) {
      const state = restoreState(nextId, contents, blockSize);
      for (const { pageId } of state.detached) checkUnused(pageId);
      const numTableBlocks = Math.ceil(state.positions.length / blockSize);
      writer.checkRoom(state, numTableBlocks, numTableBlocks);
      nextId++;
      while (state.blocks.length < numTableBlocks) state.blocks.push(ledger.take());
      for (const { pageId } of state.detached) pageReferences.set(pageId, 1);
      sequences.set(state.id, state);
      return state.view;
    },
    countCached: (prefix, salt = '') =>
      prefixSharing ? blockSize * prefixes.match(prefix, salt, maxBlocksPerSequence).length : 0,
    sequence: (id) => stateOf(id).view,
    countNewBlocks: (id, numTokens) => writer.planAppend(stateOf(id), numTokens).numBlocksNeeded,
    canAppend: (id, numTokens) => writer.refusalOf(writer.planAppend(stateOf(id), numTokens)) === undefined,
    append(id, tokens) {
      const state = stateOf(id);
      for (let i = 0; i < tokens.length; i++) {
        if ((tokens[i] | 0) === tokens[i]) continue;
        throw new ArgumentError({ argument: 'tokens', expected: '32-bit integers', actual: `${tokens[i]} at ${i}` });
      }
      return writer.append(state, tokens);
    },
    commit(id) {
      const state = stateOf(id);
      state.numCommitted = state.tokens.length;
      if (prefixSharing && state.isShareable) prefixes.register(state);
    },
    rollback(id) {
      const state = stateOf(id);
      return truncate(state, state.numCommitted);
    },
    fork(id) {
      const state = stateOf(id);
      if (state.numCommitted < state.tokens.length) {
        const actual = `${state.tokens.length - state.numCommitted} uncommitted tokens`;
        throw new ArgumentError({ argument: 'sequence', expected: 'no uncommitted tokens', actual });
      }
      const copy = forkState(state, nextId++);
      for (const block of copy.blocks) ledger.retain(block);
      for (const { pageId } of copy.detached) {
        pageReferences.set(pageId, (pageReferences.get(pageId) as number) + 1);
      }
      sequences.set(copy.id, copy);
      return copy.view;
    },
    truncate(id, numTokens) {
      if (!Number.isSafeInteger(numTokens) || numTokens < 0) {
        throw new ArgumentError({
          argument: 'numTokens',
          expected: 'a non-negative integer',
          actual: String(numTokens),
        });
      }
      return truncate(stateOf(id), numTokens);
    },
    free(id) {
      const state = stateOf(id);
      const changes = noChanges();
      // the last block first: of cached blocks those are reclaimed first that depend on others
      for (let index = state.blocks.length - 1; index >= 0; index--) ledger.release(state.blocks[index]);
      for (const { pageId } of state.detached) releasePage(pageId, changes);
      sequences.delete(id);
      return changes;
    },
    evict(id, logicalSlots) {
      const state = stateOf(id);
      const slots = [...new Set(Array.from(logicalSlots))];
      for (const slot of slots) {
        const position = slot >= 0 && slot < state.positions.length ? state.positions.at(slot) : -1;
        if (Number.isInteger(slot) && position >= 0 && position < state.numCommitted) continue;
        throw new ArgumentError({
          argument: 'logicalSlots',
          expected: 'slots in use whose tokens are committed',
          actual: `slot ${slot} with position ${position}`,
        });
      }
      const changes = noChanges();
      if (slots.length === 0) return changes;
      writer.clear(state, slots, changes);
      state.isShareable = false;
      state.chain = [];
      statistics.numEvictedTokens += slots.length;
      return changes;
    },
    detach(id, pages) {
      const state = stateOf(id);
      const leaving = new Map(pages.map(({ tableIndex, pageId }) => [tableIndex, pageId]));
      const ids = new Set(pages.map(({ pageId }) => pageId));
      if (leaving.size !== pages.length || ids.size !== pages.length) {
        throw new ArgumentError({
          argument: 'pages',
          expected: 'distinct blocks and page ids',
          actual: 'repeated ones',
        });
      }
      for (const [tableIndex, pageId] of leaving) {
        checkDetachable(state, tableIndex);
        checkUnused(pageId);
      }
      for (const tableIndex of [...leaving.keys()].sort((a, b) => b - a)) {
        const pageId = leaving.get(tableIndex) as number;
        const begin = tableIndex * blockSize;
        state.detached.push({ pageId, positions: state.positions.view().slice(begin, begin + blockSize) });
        pageReferences.set(pageId, 1);
        ledger.release(state.blocks[tableIndex]);
        removeBlock(state, tableIndex, blockSize);
      }
      return noChanges();
    },
    dropPages(id, pageIds) {
      const state = stateOf(id);
      const leaving = new Set(pageIds);
      const dropped = state.detached.filter(({ pageId }) => leaving.has(pageId));
      if (dropped.length < leaving.size) {
        const expected = 'detached pages of the sequence';
        throw new ArgumentError({ argument: 'pageIds', expected, actual: pageIds.join(', ') });
      }
      const changes = noChanges();
      if (dropped.length === 0) return changes;
      state.detached = state.detached.filter(({ pageId }) => !leaving.has(pageId));
      for (const { pageId, positions } of dropped) {
        statistics.numEvictedTokens += countFilled(positions);
        releasePage(pageId, changes);
      }
      state.isShareable = false;
      state.chain = [];
      return changes;
    },
    attach(id, pageId) {
      const state = stateOf(id);
      const index = state.detached.findIndex((page) => page.pageId === pageId);
      if (index < 0) {
        throw new ArgumentError({
          argument: 'pageId',
          expected: 'a detached page of the sequence',
          actual: String(pageId),
        });
      }
      writer.checkRoom(state, 1, 1);
      const { positions } = state.detached[index];
      const changes = noChanges();
      const attached = writer.insertBlock(state, positions, changes);
      state.detached.splice(index, 1);
      releasePage(pageId, changes);
      return { ...changes, ...attached, positions };
    },
    contentId(id, numTokens) {
      const { chain } = stateOf(id);
      if (numTokens <= 0 || numTokens % blockSize !== 0) return undefined;
      const found = chain[numTokens / blockSize - 1]?.contentId;
      return found !== undefined && ledger.has(found) ? found : undefined;
    },
    dropCached: () => ledger.dropCached(),
    usage: () => ({
      numFreeBlocks: ledger.numFree,
      numCachedBlocks: ledger.numCached,
      numUsedBlocks: numBlocks - ledger.numFree - ledger.numCached,
    }),
    statistics: () => ({ ...statistics, numReclaimedBlocks: ledger.numReclaimed }),
    refCount: (block) => ledger.refCount(block),
    checkIntegrity() {
      const references = new Int32Array(numBlocks);
      const pages = new Map<number, number>();
      for (const state of sequences.values()) {
        checkSequence(state, blockSize, maxBlocksPerSequence);
        for (const block of state.blocks) references[block]++;
        for (const { pageId } of state.detached) pages.set(pageId, (pages.get(pageId) ?? 0) + 1);
      }
      ledger.checkIntegrity(references);
      const counts = (map: ReadonlyMap<number, number>): string => [...map].sort(([a], [b]) => a - b).join(' ');
      if (counts(pages) !== counts(pageReferences)) {
        throw new Error(`Winnow internal error: pages ${counts(pages)}, counted ${counts(pageReferences)}`);
      }
    },
  };

  function checkUnused(pageId: number): void {
    if (!pageReferences.has(pageId)) return;
    throw new ArgumentError({ argument: 'pageId', expected: 'an id not in use', actual: String(pageId) });
  }

  function checkDetachable(state: SequenceState, tableIndex: number): void {
    const begin = tableIndex * blockSize;
    const isFull = tableIndex >= 0 && tableIndex < state.blocks.length && begin + blockSize <= state.positions.length;
    if (isFull) {
      const positions = state.positions.view().subarray(begin, begin + blockSize);
      if (positions.every((position) => position < state.numCommitted)) return;
    }
    throw new ArgumentError({
      argument: 'tableIndex',
      expected: 'a full block of committed tokens',
      actual: String(tableIndex),
    });
  }
}
