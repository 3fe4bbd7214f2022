/** Sequences over a pool of blocks: see `BlockManager` for the contract. */
import { ArgumentError } from '@winnow/tensor';
import { BlockPool } from './block-pool.js';
import { PageReferences } from './page-references.js';
import { PrefixIndex } from './prefix-index.js';
import { restoreState } from './restore-sequence.js';
import {
  checkSequence,
  countFilled,
  createSequenceState,
  forkState,
  removeBlock,
  tableIndexOf,
  type SequenceState,
} from './sequence-state.js';
import { noChanges, SlotWriter, type Changes } from './slot-writer.js';
import type {
  AppendedSlots,
  AttachedPage,
  BlockChanges,
  BlockManager,
  BlockManagerOptions,
  BlockStatistics,
  BlockUsage,
  CreateSequenceOptions,
  SequenceContents,
  SequenceView,
} from './types.js';

/** @throws {ArgumentError} for sizes that are not positive integers */
export function createBlockManager(options: BlockManagerOptions): BlockManager {
  return new PagedBlockManager(options);
}

class PagedBlockManager implements BlockManager {
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly maxBlocksPerSequence: number;
  readonly #prefixSharing: boolean;
  readonly #pool: BlockPool;
  readonly #prefixes: PrefixIndex;
  readonly #writer: SlotWriter;
  readonly #pages = new PageReferences();
  readonly #sequences = new Map<number, SequenceState>();
  #nextId = 0;
  #numSharedTokens = 0;
  #numEvictedTokens = 0;

  constructor(options: BlockManagerOptions) {
    const { numBlocks, blockSize, maxBlocksPerSequence = numBlocks, prefixSharing = true } = options;
    for (const [argument, value] of Object.entries({ numBlocks, blockSize, maxBlocksPerSequence })) {
      if (!Number.isSafeInteger(value) || value < 1) refuse(argument, 'a positive integer', value);
    }
    this.numBlocks = numBlocks;
    this.blockSize = blockSize;
    this.maxBlocksPerSequence = maxBlocksPerSequence;
    this.#prefixSharing = prefixSharing;
    this.#pool = new BlockPool(numBlocks, options.onContentDropped ?? (() => undefined));
    this.#prefixes = new PrefixIndex(this.#pool, blockSize, options.hash);
    this.#writer = new SlotWriter(this.#pool, { numBlocks, blockSize, maxBlocksPerSequence });
  }

  get sequenceIds(): readonly number[] {
    return [...this.#sequences.keys()];
  }

  createSequence({ prefix = [], salt = '', acceptPrefix = () => true }: CreateSequenceOptions = {}): SequenceView {
    const found = this.#prefixSharing ? this.#prefixes.match(prefix, salt, this.maxBlocksPerSequence) : [];
    let numShared = found.length;
    while (numShared > 0 && !acceptPrefix(found[numShared - 1].contentId, numShared * this.blockSize)) numShared--;
    const state = createSequenceState(this.#nextId++, salt);
    for (const link of found.slice(0, numShared)) {
      const block = this.#pool.blockOf(link.contentId);
      this.#pool.retain(block);
      state.blocks.push(block);
      state.chain.push(link);
    }
    state.numCommitted = numShared * this.blockSize;
    for (let position = 0; position < state.numCommitted; position++) {
      state.tokens.push(prefix[position]);
      state.positions.push(position);
    }
    this.#numSharedTokens += state.numCommitted;
    this.#sequences.set(state.id, state);
    return state.view;
  }

  restoreSequence(contents: SequenceContents): SequenceView {
    const state = restoreState(this.#nextId, contents, this.blockSize);
    for (const { pageId } of state.detached) this.#pages.checkUnused(pageId);
    const numTableBlocks = Math.ceil(state.positions.length / this.blockSize);
    this.#writer.checkRoom(numTableBlocks, numTableBlocks);
    this.#nextId++;
    while (state.blocks.length < numTableBlocks) state.blocks.push(this.#pool.allocate());
    for (const { pageId } of state.detached) this.#pages.retain(pageId);
    this.#sequences.set(state.id, state);
    return state.view;
  }

  countCached(prefix: ArrayLike<number>, salt = ''): number {
    if (!this.#prefixSharing) return 0;
    return this.blockSize * this.#prefixes.match(prefix, salt, this.maxBlocksPerSequence).length;
  }

  sequence(id: number): SequenceView {
    return this.#stateOf(id).view;
  }

  countNewBlocks(id: number, numTokens: number): number {
    return this.#writer.planAppend(this.#stateOf(id), numTokens).numBlocksNeeded;
  }

  canAppend(id: number, numTokens: number): boolean {
    return this.#writer.canCarryOut(this.#writer.planAppend(this.#stateOf(id), numTokens));
  }

  append(id: number, tokens: ArrayLike<number>): AppendedSlots {
    const state = this.#stateOf(id);
    for (let i = 0; i < tokens.length; i++) {
      if ((tokens[i] | 0) !== tokens[i]) refuse('tokens', '32-bit integers', `${tokens[i]} at ${i}`);
    }
    return this.#writer.append(state, tokens);
  }

  commit(id: number): void {
    const state = this.#stateOf(id);
    state.numCommitted = state.tokens.length;
    if (this.#prefixSharing && state.isShareable) this.#prefixes.register(state);
  }

  rollback(id: number): BlockChanges {
    const state = this.#stateOf(id);
    return this.#truncate(state, state.numCommitted);
  }

  fork(id: number): SequenceView {
    const state = this.#stateOf(id);
    const numUncommitted = state.tokens.length - state.numCommitted;
    if (numUncommitted > 0) refuse('sequence', 'no uncommitted tokens', `${numUncommitted} uncommitted tokens`);
    const copy = forkState(state, this.#nextId++);
    for (const block of copy.blocks) this.#pool.retain(block);
    for (const { pageId } of copy.detached) this.#pages.retain(pageId);
    this.#sequences.set(copy.id, copy);
    return copy.view;
  }

  truncate(id: number, numTokens: number): BlockChanges {
    if (!Number.isSafeInteger(numTokens) || numTokens < 0) refuse('numTokens', 'a non-negative integer', numTokens);
    return this.#truncate(this.#stateOf(id), numTokens);
  }

  free(id: number): BlockChanges {
    const state = this.#stateOf(id);
    const changes = noChanges();
    // the last block first: of cached blocks those are reclaimed first that depend on others
    for (const block of state.blocks.toReversed()) this.#pool.release(block);
    for (const { pageId } of state.detached) this.#pages.release(pageId, changes.droppedPages);
    this.#sequences.delete(id);
    return changes;
  }

  evict(id: number, logicalSlots: ArrayLike<number>): BlockChanges {
    const state = this.#stateOf(id);
    const slots = [...new Set(Array.from(logicalSlots))];
    for (const slot of slots) {
      const position = slot >= 0 && slot < state.positions.length ? state.positions.at(slot) : -1;
      if (Number.isInteger(slot) && position >= 0 && position < state.numCommitted) continue;
      refuse('logicalSlots', 'slots in use whose tokens are committed', `slot ${slot} with position ${position}`);
    }
    const changes = noChanges();
    if (slots.length === 0) return changes;
    this.#writer.clear(state, slots, changes);
    this.#noteEvicted(state, slots.length);
    return changes;
  }

  detach(id: number, pages: readonly { readonly tableIndex: number; readonly pageId: number }[]): BlockChanges {
    const state = this.#stateOf(id);
    const leaving = new Map(pages.map(({ tableIndex, pageId }) => [tableIndex, pageId]));
    const ids = new Set(pages.map(({ pageId }) => pageId));
    if (leaving.size !== pages.length || ids.size !== pages.length) {
      refuse('pages', 'distinct blocks and page ids', 'repeated ones');
    }
    for (const [tableIndex, pageId] of leaving) {
      if (!this.#isDetachable(state, tableIndex)) refuse('tableIndex', 'a full block of committed tokens', tableIndex);
      this.#pages.checkUnused(pageId);
    }
    for (const [tableIndex, pageId] of [...leaving].sort(([a], [b]) => b - a)) {
      const begin = tableIndex * this.blockSize;
      state.detached.push({ pageId, positions: state.positions.view().slice(begin, begin + this.blockSize) });
      this.#pages.retain(pageId);
      this.#pool.release(state.blocks[tableIndex]);
      removeBlock(state, tableIndex, this.blockSize);
    }
    return noChanges();
  }

  dropPages(id: number, pageIds: readonly number[]): BlockChanges {
    const state = this.#stateOf(id);
    const leaving = new Set(pageIds);
    const dropped = state.detached.filter(({ pageId }) => leaving.has(pageId));
    if (dropped.length < leaving.size) refuse('pageIds', 'detached pages of the sequence', pageIds.join(', '));
    const changes = noChanges();
    if (dropped.length === 0) return changes;
    state.detached = state.detached.filter(({ pageId }) => !leaving.has(pageId));
    let numEvicted = 0;
    for (const { pageId, positions } of dropped) {
      numEvicted += countFilled(positions);
      this.#pages.release(pageId, changes.droppedPages);
    }
    this.#noteEvicted(state, numEvicted);
    return changes;
  }

  attach(id: number, pageId: number): AttachedPage {
    const state = this.#stateOf(id);
    const index = state.detached.findIndex((page) => page.pageId === pageId);
    if (index < 0) refuse('pageId', 'a detached page of the sequence', pageId);
    this.#writer.checkRoom(state.blocks.length + 1, 1);
    const { positions } = state.detached[index];
    const changes = noChanges();
    const attached = this.#writer.insertBlock(state, positions, changes);
    state.detached.splice(index, 1);
    this.#pages.release(pageId, changes.droppedPages);
    return { ...changes, ...attached, positions };
  }

  contentId(id: number, numTokens: number): number | undefined {
    const { chain } = this.#stateOf(id);
    if (numTokens <= 0 || numTokens % this.blockSize !== 0) return undefined;
    const found = chain[numTokens / this.blockSize - 1]?.contentId;
    return found !== undefined && this.#pool.hasContent(found) ? found : undefined;
  }

  dropCached(): void {
    this.#pool.dropCached();
  }

  usage(): BlockUsage {
    const { numFree, numCached } = this.#pool;
    return {
      numFreeBlocks: numFree,
      numCachedBlocks: numCached,
      numUsedBlocks: this.numBlocks - numFree - numCached,
    };
  }

  statistics(): BlockStatistics {
    return {
      numSharedTokens: this.#numSharedTokens,
      numCopies: this.#writer.numCopies,
      numEvictedTokens: this.#numEvictedTokens,
      numReclaimedBlocks: this.#pool.numReclaimed,
    };
  }

  refCount(block: number): number {
    return this.#pool.refCount(block);
  }

  checkIntegrity(): void {
    const references = new Int32Array(this.numBlocks);
    for (const state of this.#sequences.values()) {
      checkSequence(state, this.blockSize, this.maxBlocksPerSequence);
      for (const block of state.blocks) references[block]++;
    }
    this.#pool.checkIntegrity(references);
    this.#pages.checkIntegrity([...this.#sequences.values()].flatMap(({ detached }) => detached));
  }

  #stateOf(id: number): SequenceState {
    return this.#sequences.get(id) ?? refuse('sequence', 'the id of an open sequence', id);
  }

  #truncate(state: SequenceState, numTokens: number): BlockChanges {
    const changes = noChanges();
    if (numTokens >= state.tokens.length) return changes;
    if (state.isSorted) this.#writer.cut(state, numTokens, changes);
    else this.#writer.clear(state, slotsFrom(state, numTokens), changes);
    this.#truncatePages(state, numTokens, changes);
    state.tokens.truncate(numTokens);
    state.numCommitted = Math.min(state.numCommitted, numTokens);
    state.chain.length = Math.min(state.chain.length, Math.floor(numTokens / this.blockSize));
    const partialBegin = numTokens - (numTokens % this.blockSize);
    // the next block would not start at a multiple of the block size
    if (partialBegin < numTokens && state.isShareable && tableIndexOf(state, partialBegin, this.blockSize) < 0) {
      state.isShareable = false;
    }
    return changes;
  }

  #truncatePages(state: SequenceState, numTokens: number, changes: Changes): void {
    state.detached = state.detached.filter(({ pageId, positions }) => {
      for (let i = 0; i < positions.length; i++) if (positions[i] >= numTokens) positions[i] = -1;
      if (countFilled(positions) > 0) return true;
      this.#pages.release(pageId, changes.droppedPages);
      return false;
    });
  }

  #isDetachable({ blocks, positions, numCommitted }: SequenceState, tableIndex: number): boolean {
    const begin = tableIndex * this.blockSize;
    const end = begin + this.blockSize;
    if (!(tableIndex >= 0 && tableIndex < blocks.length && end <= positions.length)) return false;
    const own = positions.view().subarray(begin, end);
    return own.every((position) => position < numCommitted);
  }

  /** Values of later tokens depend on what was evicted: nothing can be shared from now on. */
  #noteEvicted(state: SequenceState, numPositions: number): void {
    state.isShareable = false;
    state.chain = [];
    this.#numEvictedTokens += numPositions;
  }
}

/** Logical slots of the positions from `numTokens` on. */
function slotsFrom({ positions }: SequenceState, numTokens: number): number[] {
  const slots: number[] = [];
  positions.view().forEach((position, slot) => {
    if (position >= numTokens) slots.push(slot);
  });
  return slots;
}

function refuse(argument: string, expected: string, actual: unknown): never {
  throw new ArgumentError({ argument, expected, actual: String(actual) });
}
