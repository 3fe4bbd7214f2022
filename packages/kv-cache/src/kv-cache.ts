/**
 * The KV cache of one layer and one sequence on typed arrays, contiguous or paged behind one contract. A contiguous cache
 * is a pool with a single block as long as the cache; so both run the same code, and give the same bits.
 */
import { attendPartial, type AttendOptions, type SlotReader } from './attend.js';
import { createBlockManager } from './block-manager.js';
import type { BlockChanges, BlockManager, SequenceView } from './block-types.js';
import { createKvStorage, type KvStorage, type KvStorageOptions } from './kv-storage.js';
import type { KvSizes } from './memory.js';
import { createPageSummaries, type PageSummaries, type PageSummaryOptions } from './page-summaries.js';
import { createStates, finishStates } from './partial-states.js';
import { createValueMean, type ValueMean } from './value-mean.js';

/** Blocks and their memory, shared by the sequences of one layer. */
export interface KvPool {
  readonly manager: BlockManager;
  readonly storage: KvStorage;
  /** Summaries to keep up to date, if any. */
  readonly summaries?: PageSummaries;
  /** Each sequence keeps the mean of its values. */
  readonly keepValueMean: boolean;
}

export interface KvPoolOptions extends KvStorageOptions {
  readonly prefixSharing?: boolean;
  /** Makes summaries of the pool's pages. */
  readonly summaries?: PageSummaryOptions;
  /** Keep the mean of the values of each sequence. Default false. */
  readonly keepValueMean?: boolean;
}

export interface KvCache extends SlotReader {
  /** Tokens so far; also the position of the next one. */
  readonly numTokens: number;
  /** The sequence in the pool. */
  readonly sequence: SequenceView;
  readonly pool: KvPool;
  /** Mean of the sequence's values, if the pool keeps it. */
  readonly valueMean?: ValueMean;
  /**
   * Stores keys `[T, K, H]` and values `[T, K, D]` of the next T tokens.
   * @param tokens their ids, for prefix sharing. Default: zeros, and then nothing should be shared
   * @throws {CapacityError} when there is no room; nothing is stored then
   */
  append(k: Float32Array, v: Float32Array, tokens?: ArrayLike<number>): void;
  truncate(numTokens: number): void;
  /** Empties logical slots: see `BlockManager.evict`. */
  evict(logicalSlots: ArrayLike<number>): void;
  fork(): KvCache;
  /** Attention output `[N, D]` for one token's queries `[N, H]`. Default position: that of the last token. */
  attend(q: Float32Array, options?: AttendOptions): Float32Array;
  /** Gives the blocks back. */
  free(): void;
}

/** @throws {ArgumentError} for sizes and dtypes that make no sense */
export function createKvPool(options: KvPoolOptions): KvPool {
  const { numBlocks, blockSize, prefixSharing = false } = options;
  const storage = createKvStorage(options);
  const summaries = options.summaries && createPageSummaries(storage, options.summaries);
  return {
    manager: createBlockManager({ numBlocks, blockSize, prefixSharing }),
    storage,
    keepValueMean: options.keepValueMean ?? false,
    ...(summaries === undefined ? {} : { summaries }),
  };
}

/** A cache of fixed capacity in one piece. */
export function createContiguousCache(
  options: KvSizes & { readonly capacity: number; readonly rotateKeys?: boolean },
): KvCache {
  return createPagedCache(createKvPool({ ...options, numBlocks: 1, blockSize: options.capacity }));
}

/**
 * A new sequence in a pool.
 * @param prefix tokens whose leading blocks may be found in the pool, when it shares prefixes; see `numTokens` for how many were
 */
export function createPagedCache(pool: KvPool, prefix: ArrayLike<number> = []): KvCache {
  const sequence = pool.manager.createSequence({ prefix });
  const mean = pool.keepValueMean ? createValueMean(pool.storage) : undefined;
  const { blockSize } = pool.storage;
  for (const block of sequence.blocks) for (let i = 0; i < blockSize; i++) mean?.add(block * blockSize + i);
  return overSequence(pool, sequence, mean);
}

/** Does to tensors (and summaries) what the block manager asks for. */
export function applyChanges({ storage, summaries }: KvPool, changes: BlockChanges): void {
  for (const block of changes.newBlocks) {
    summaries?.reset(block);
    storage.slotPositions.fill(-1, block * storage.blockSize, (block + 1) * storage.blockSize);
  }
  for (const copy of changes.copies) {
    storage.copyBlock(copy);
    summaries?.copy(copy);
  }
  for (const slot of changes.clearedSlots) {
    summaries?.remove(slot);
    storage.slotPositions[slot] = -1;
  }
}

function overSequence(pool: KvPool, sequence: SequenceView, mean: ValueMean | undefined): KvCache {
  const { manager, storage, summaries } = pool;
  const { numKvHeads, headDim, valueDim, blockSize, rotateKeys } = storage;
  const { id } = sequence;
  const physicalSlot = (logicalSlot: number): number => {
    const offset = logicalSlot % blockSize;
    return sequence.blocks[(logicalSlot - offset) / blockSize] * blockSize + offset;
  };
  const slotsWhere = (isWanted: (position: number) => boolean): number[] => {
    if (mean === undefined) return [];
    const slots: number[] = [];
    sequence.positions.forEach((position, slot) => {
      if (position >= 0 && isWanted(position)) slots.push(physicalSlot(slot));
    });
    return slots;
  };
  const cache: KvCache = {
    ...(mean === undefined ? {} : { valueMean: mean }),
    numKvHeads,
    headDim,
    valueDim,
    rotateKeys,
    pool,
    sequence,
    get numTokens() {
      return sequence.numTokens;
    },
    get numSlots() {
      return sequence.numSlots;
    },
    position: (logicalSlot) => storage.slotPositions[physicalSlot(logicalSlot)],
    readKey: (logicalSlot, kvHead, out, outOffset) =>
      storage.readKey(physicalSlot(logicalSlot), kvHead, out, outOffset),
    readValue: (logicalSlot, kvHead, out, outOffset) =>
      storage.readValue(physicalSlot(logicalSlot), kvHead, out, outOffset),
    append(k, v, tokens = new Int32Array(k.length / (numKvHeads * headDim))) {
      const appended = manager.append(id, tokens);
      applyChanges(pool, appended);
      for (const slot of appended.slots) summaries?.prepare(slot);
      try {
        storage.write(appended.slots, appended.positions, k, v);
      } catch (error) {
        applyChanges(pool, manager.rollback(id));
        throw error;
      }
      for (const slot of appended.slots) {
        summaries?.add(slot);
        mean?.add(slot);
      }
      manager.commit(id);
    },
    truncate(numTokens) {
      const victims = slotsWhere((position) => position >= numTokens);
      const changes = manager.truncate(id, numTokens);
      for (const slot of victims) mean?.remove(slot);
      applyChanges(pool, changes);
    },
    evict(logicalSlots) {
      const victims = mean === undefined ? [] : Array.from(new Set(Array.from(logicalSlots)), physicalSlot);
      const changes = manager.evict(id, logicalSlots);
      for (const slot of victims) mean?.remove(slot);
      applyChanges(pool, changes);
    },
    fork: () => overSequence(pool, manager.fork(id), mean?.fork()),
    attend(q, options = {}) {
      const states = createStates(q.length / headDim, valueDim);
      attendPartial(cache, q, states, options);
      return finishStates(states);
    },
    free: () => applyChanges(pool, manager.free(id)),
  };
  return cache;
}
