/**
 * Sequences over a pool of blocks, without tensors: every call returns what the owner of the tensors must do.
 *
 * A block is a range of `blockSize` physical slots of the pool; physical slot `s` is slot `s % blockSize` of block
 * `floor(s / blockSize)`. A sequence has a block table; its logical slot `j` is slot `j % blockSize` of block
 * `blocks[floor(j / blockSize)]`. Positions are not slots: a sequence records the position that each logical slot
 * holds, -1 for none.
 */
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { BlockPool } from './block-pool.js';
import { PageReferences } from './page-references.js';
import { PrefixIndex } from './prefix-index.js';
import { restoreState, type SequenceContents } from './restore-sequence.js';
import {
  checkSequence,
  countFilled,
  createSequenceState,
  forkState,
  removeBlock,
  tableIndexOf,
  type SequenceState,
  type SequenceView,
} from './sequence-state.js';
import { noChanges, SlotWriter, type AppendedSlots, type BlockChanges, type Changes } from './slot-writer.js';

/** A detached page back in the pool. The caller fills `block` with its bytes before anything reads it. */
export interface AttachedPage extends BlockChanges {
  readonly block: number;
  /** Index in the block table. */
  readonly tableIndex: number;
  readonly positions: Int32Array;
}

export interface BlockManagerOptions {
  readonly numBlocks: number;
  /** Slots per block, for example 64. */
  readonly blockSize: number;
  /** Width of the block tables of kernels. Default: `numBlocks`. */
  readonly maxBlocksPerSequence?: number;
  /** Cache unreferenced blocks for reuse by a common prefix. Default true. */
  readonly prefixSharing?: boolean;
  /** Called when the content with this id leaves the cache, so that you can drop data that you stored for it. */
  readonly onContentDropped?: (contentId: number) => void;
  /** Hash of a block's tokens, chained from the hash before; any 32-bit integer. For tests; collisions are harmless. */
  readonly hash?: (previous: number, tokens: Int32Array) => number;
}

const blockManagerNames: OptionNames<BlockManagerOptions> = {
  numBlocks: true,
  blockSize: true,
  maxBlocksPerSequence: true,
  prefixSharing: true,
  onContentDropped: true,
  hash: true,
};

export interface CreateSequenceOptions {
  /** Tokens whose leading full blocks may be found in the cache. The sequence starts with those. */
  readonly prefix?: ArrayLike<number>;
  /**
   * Sequences share blocks only with others of the same salt: attention policy, adapter, anything that changes the
   * values.
   */
  readonly salt?: string;
  /**
   * Called for each cached prefix, longest first; the first accepted one is used. A model with recurrent state accepts
   * only those whose snapshot it has under `contentId`.
   */
  readonly acceptPrefix?: (contentId: number, numTokens: number) => boolean;
}

/** Blocks of the pool by state. The three counts add up to `numBlocks`. */
export interface BlockUsage {
  readonly numFreeBlocks: number;
  /** Unreferenced, cached for prefix sharing, reclaimed when no free block is left. */
  readonly numCachedBlocks: number;
  readonly numUsedBlocks: number;
}

/** Counters since creation. */
export interface BlockStatistics {
  readonly numSharedTokens: number;
  readonly numCopies: number;
  readonly numEvictedTokens: number;
  readonly numReclaimedBlocks: number;
}

/** @throws {ArgumentError} for sizes that are not positive integers */
export function createBlockManager(options: BlockManagerOptions): BlockManager {
  return new BlockManager(options);
}

/**
 * Blocks and sequences as plain data. A call that throws changes nothing.
 *
 * In a step, `append` allocates slots, the caller applies the changes and stores keys and values, and `commit` makes
 * them shareable; `rollback` undoes a failed step.
 */
export class BlockManager {
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
    checkOptions(options, blockManagerNames);
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
    this.#writer = new SlotWriter(this.#pool, this);
  }

  get sequenceIds(): readonly number[] {
    return [...this.#sequences.keys()];
  }

  /** Creates a sequence. Shared blocks already have their contents. */
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

  /**
   * Creates a sequence with the slots of a saved one, in new blocks. The caller fills all of them, then calls `commit`,
   * which makes them shareable if possible.
   * @throws {ArgumentError} for invalid positions
   * @throws {CapacityError} when the pool or the block table has no room
   */
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

  /** Number of leading tokens of `prefix` that a new sequence would find. */
  countCached(prefix: ArrayLike<number>, salt = ''): number {
    if (!this.#prefixSharing) return 0;
    return this.blockSize * this.#prefixes.match(prefix, salt, this.maxBlocksPerSequence).length;
  }

  /** @throws {ArgumentError} when there is no such sequence */
  sequence(id: number): SequenceView {
    return this.#stateOf(id).view;
  }

  /** Number of blocks that `append` of that many tokens would allocate. */
  countNewBlocks(id: number, numTokens: number): number {
    return this.#writer.planAppend(this.#stateOf(id), numTokens).numBlocksNeeded;
  }

  canAppend(id: number, numTokens: number): boolean {
    return this.#writer.canCarryOut(this.#writer.planAppend(this.#stateOf(id), numTokens));
  }

  /** @throws {CapacityError} when the pool or the block table has no room */
  append(id: number, tokens: ArrayLike<number>): AppendedSlots {
    const state = this.#stateOf(id);
    for (let i = 0; i < tokens.length; i++) {
      if ((tokens[i] | 0) !== tokens[i]) refuse('tokens', '32-bit integers', `${tokens[i]} at ${i}`);
    }
    return this.#writer.append(state, tokens);
  }

  /** Marks the keys and values of all appended tokens as stored. */
  commit(id: number): void {
    const state = this.#stateOf(id);
    state.numCommitted = state.tokens.length;
    if (this.#prefixSharing && state.isShareable) this.#prefixes.register(state);
  }

  /** Undoes appends since the last commit. */
  rollback(id: number): BlockChanges {
    const state = this.#stateOf(id);
    return this.#truncate(state, state.numCommitted);
  }

  /**
   * Creates a second sequence with the same contents and shared blocks. @throws {ArgumentError} with uncommitted tokens
   */
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

  /**
   * Forgets positions from `numTokens` on. Evicted positions stay evicted: see `numEvicted`.
   * @throws {CapacityError} when a shared block with holes must be copied and there is no room
   */
  truncate(id: number, numTokens: number): BlockChanges {
    if (!Number.isSafeInteger(numTokens) || numTokens < 0) refuse('numTokens', 'a non-negative integer', numTokens);
    return this.#truncate(this.#stateOf(id), numTokens);
  }

  free(id: number): BlockChanges {
    const state = this.#stateOf(id);
    const changes = noChanges();
    // last block first, so that cached blocks are reclaimed before the ones that they depend on
    for (const block of state.blocks.toReversed()) this.#pool.release(block);
    for (const { pageId } of state.detached) this.#pages.release(pageId, changes.droppedPages);
    this.#sequences.delete(id);
    return changes;
  }

  /**
   * Empties logical slots. Blocks without positions leave the table; the others keep holes that the next tokens fill.
   * Logical slots change, so read the view again.
   * @throws {ArgumentError} for empty, uncommitted or unknown slots
   * @throws {CapacityError} when a shared block must be copied and there is no room
   */
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

  /**
   * Moves blocks out of the pool without forgetting them. Call it after you stored their bytes under unused ids of your
   * choice.
   * @param pages index in the block table and page id of each
   */
  detach(id: number, pages: readonly { readonly tableIndex: number; readonly pageId: number }[]): BlockChanges {
    const state = this.#stateOf(id);
    const leaving = new Map(pages.map(({ tableIndex, pageId }) => [tableIndex, pageId]));
    const ids = new Set(pages.map(({ pageId }) => pageId));
    if (leaving.size !== pages.length || ids.size !== pages.length) {
      refuse('pages', 'distinct blocks and page ids', 'duplicates');
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

  /**
   * Forgets detached pages: their positions are evicted.
   * @throws {ArgumentError} for pages that the sequence does not have
   */
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

  /** @throws {CapacityError} when there is no room for the block */
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

  /** Content id of the first `numTokens` tokens in the cache, for whole blocks of shareable sequences. */
  contentId(id: number, numTokens: number): number | undefined {
    const { chain } = this.#stateOf(id);
    if (numTokens <= 0 || numTokens % this.blockSize !== 0) return undefined;
    const found = chain[numTokens / this.blockSize - 1]?.contentId;
    return found !== undefined && this.#pool.hasContent(found) ? found : undefined;
  }

  /** Drops cached blocks that are not in use. */
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

  /** Number of sequences that refer to a block. */
  refCount(block: number): number {
    return this.#pool.refCount(block);
  }

  /** @throws {Error} when any invariant is broken: a bug in Winnow */
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

  /** Values of later tokens depend on evictions, so nothing can be shared from now on. */
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
