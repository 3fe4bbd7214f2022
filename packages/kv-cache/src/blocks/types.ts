/**
 * The vocabulary of the block manager. It holds no tensors: every call returns what the owner of the tensors has to do.
 *
 * A block is a range of `blockSize` physical slots of the pool; physical slot `s` is slot `s % blockSize` of block
 * `floor(s / blockSize)`. A sequence has a block table; its logical slot `j` is slot `j % blockSize` of block
 * `blocks[floor(j / blockSize)]`. Position is not slot: a sequence knows which position each logical slot holds, -1 for none.
 */

/** The first `numSlots` slots of block `from` (keys, values, positions, summaries) go to block `to`. */
export interface BlockCopy {
  readonly from: number;
  readonly to: number;
  readonly numSlots: number;
}

/** What the owner of the tensors does after a call, in this order, before anything else is written or read. */
export interface BlockChanges {
  /** Blocks that now belong to the sequence and hold nothing yet. */
  readonly newBlocks: readonly number[];
  /** Copies to perform. Sources stay in use by other sequences. */
  readonly copies: readonly BlockCopy[];
  /** Physical slots that are empty now: position -1. */
  readonly clearedSlots: readonly number[];
  /** Detached pages that no sequence refers to any more: you can delete their stored bytes. */
  readonly droppedPages: readonly number[];
}

/** Where new tokens go. */
export interface AppendedSlots extends BlockChanges {
  /** Physical slot of each token. */
  readonly slots: Int32Array;
  /** Position of each token. */
  readonly positions: Int32Array;
}

/** A page that left the pool but still belongs to the sequence: attention reads it from a lower tier. */
export interface DetachedPage {
  readonly pageId: number;
  /** Position of each of its `blockSize` slots, -1 for none. */
  readonly positions: Int32Array;
}

/** A detached page back in the pool. The caller fills `block` with its bytes before anything reads it. */
export interface AttachedPage extends BlockChanges {
  readonly block: number;
  /** Index in the block table. */
  readonly tableIndex: number;
  readonly positions: Int32Array;
}

/** A sequence as others see it. Arrays are views that are valid until the next call that changes the sequence. */
export interface SequenceView {
  readonly id: number;
  readonly salt: string;
  /** Tokens so far; also the position of the next one. */
  readonly numTokens: number;
  /** Leading tokens whose keys and values have been stored. */
  readonly numCommitted: number;
  /** Logical slots in use, empty ones included: the context length of kernels. */
  readonly numSlots: number;
  /** Positions that are neither in the pool nor in a detached page. */
  readonly numEvicted: number;
  /** Block table. */
  readonly blocks: readonly number[];
  readonly tokens: Int32Array;
  /** Position of each logical slot, -1 for empty ones. */
  readonly positions: Int32Array;
  readonly detachedPages: readonly DetachedPage[];
  /** Whether blocks that fill up from now on can be shared: nothing was evicted before. */
  readonly isShareable: boolean;
}

export interface BlockManagerOptions {
  readonly numBlocks: number;
  /** Slots per block, 64 or 256 for example. */
  readonly blockSize: number;
  /** Width of the block tables of kernels. Default: `numBlocks`. */
  readonly maxBlocksPerSequence?: number;
  /** Keep blocks that nothing refers to for reuse by an equal prefix. Default true. */
  readonly prefixSharing?: boolean;
  /** Called when the content with this id leaves the cache, so that you can drop what you stored beside it. */
  readonly onContentDropped?: (contentId: number) => void;
  /** Hash of a block's tokens, chained from the hash before; any 32-bit integer. For tests: equal hashes do no harm. */
  readonly hash?: (previous: number, tokens: Int32Array) => number;
}

export interface CreateSequenceOptions {
  /** Tokens whose leading full blocks may be taken from the cache. The sequence then starts with as many as were found. */
  readonly prefix?: ArrayLike<number>;
  /** Sequences share blocks only with others of the same salt: attention policy, adapter, whatever changes the values. */
  readonly salt?: string;
  /**
   * Asked for each cached prefix, longest first; the first accepted one is used. A model with recurrent state accepts
   * only those whose snapshot it has under `contentId`.
   */
  readonly acceptPrefix?: (contentId: number, numTokens: number) => boolean;
}

/** A saved sequence: what `SequenceView` showed of it. */
export interface SequenceContents {
  readonly tokens: ArrayLike<number>;
  /** Position of each logical slot, -1 for empty ones; some in every block. */
  readonly positions: ArrayLike<number>;
  readonly salt?: string;
  /** Whether its blocks may be shared, if they hold every position in order. Default true. */
  readonly isShareable?: boolean;
  /** Pages that are stored already, under ids that are not in use. */
  readonly detachedPages?: readonly DetachedPage[];
}

/** Blocks of the pool by state. The three counts add up to `numBlocks`. */
export interface BlockUsage {
  readonly numFreeBlocks: number;
  /** Referred to by nothing, kept for prefix sharing, taken when no free block is left. */
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

/**
 * Blocks and sequences as plain data. A call that throws changes nothing.
 *
 * A step: `append` gives slots, the caller performs the changes and stores keys and values, then `commit` makes them
 * shareable; after a failure `rollback`.
 */
export interface BlockManager {
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly maxBlocksPerSequence: number;
  /** A new sequence. Shared blocks need no work: their contents are there. */
  createSequence(options?: CreateSequenceOptions): SequenceView;
  /**
   * A sequence with the slots of a saved one, in blocks of its own. The caller fills all of them, then calls `commit`, which
   * makes them shareable where that is possible.
   * @throws {ArgumentError} for positions that no sequence can have
   * @throws {CapacityError} when the pool or the block table has no room
   */
  restoreSequence(contents: SequenceContents): SequenceView;
  /** How many leading tokens of `prefix` a new sequence would find. */
  countCached(prefix: ArrayLike<number>, salt?: string): number;
  /** @throws {ArgumentError} when there is no such sequence */
  sequence(id: number): SequenceView;
  readonly sequenceIds: readonly number[];
  /** Blocks that `append` of that many tokens would take from the pool. */
  countNewBlocks(id: number, numTokens: number): number;
  canAppend(id: number, numTokens: number): boolean;
  /** @throws {CapacityError} when the pool or the block table has no room */
  append(id: number, tokens: ArrayLike<number>): AppendedSlots;
  /** Marks the keys and values of all appended tokens as stored. */
  commit(id: number): void;
  /** Forgets what was appended since the last commit. */
  rollback(id: number): BlockChanges;
  /** A second sequence with the same contents, which share their blocks. @throws {ArgumentError} with uncommitted tokens */
  fork(id: number): SequenceView;
  /**
   * Forgets positions from `numTokens` on. Evicted positions stay evicted: see `numEvicted`.
   * @throws {CapacityError} when a shared block with holes has to be copied and there is no room
   */
  truncate(id: number, numTokens: number): BlockChanges;
  free(id: number): BlockChanges;
  /**
   * Empties logical slots. Blocks without any position left leave the table, the others keep holes that the next tokens
   * fill. Logical slots change: read the view again.
   * @throws {ArgumentError} for empty, uncommitted or unknown slots
   * @throws {CapacityError} when a shared block has to be copied and there is no room
   */
  evict(id: number, logicalSlots: ArrayLike<number>): BlockChanges;
  /**
   * Takes blocks out of the pool without forgetting them. Call it after their bytes are stored under ids of your choice
   * that are not in use.
   * @param pages index in the block table and page id of each
   */
  detach(id: number, pages: readonly { readonly tableIndex: number; readonly pageId: number }[]): BlockChanges;
  /**
   * Forgets detached pages: their positions are evicted.
   * @throws {ArgumentError} for pages that the sequence does not have
   */
  dropPages(id: number, pageIds: readonly number[]): BlockChanges;
  /** @throws {CapacityError} when there is no room for the block */
  attach(id: number, pageId: number): AttachedPage;
  /** Id of the content that the first `numTokens` tokens have in the cache, for whole blocks of shareable sequences. */
  contentId(id: number, numTokens: number): number | undefined;
  /** Forgets cached blocks that nothing refers to. */
  dropCached(): void;
  usage(): BlockUsage;
  statistics(): BlockStatistics;
  /** Sequences that refer to a block. */
  refCount(block: number): number;
  /** @throws {Error} when any invariant is broken: a bug in Winnow */
  checkIntegrity(): void;
}
