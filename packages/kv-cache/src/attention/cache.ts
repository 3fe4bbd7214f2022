/**
 * The KV cache of one layer and one sequence. A contiguous cache is a pool with a single block as long as the cache, so
 * contiguous and paged caches run the same programs.
 */
import type { PartialStates } from '@winnow/ops';
import type { SequenceView } from '../blocks/sequence-state.js';
import type { AttendOptions } from './programs.js';
import { KvPool } from './pool.js';
import { kvStorageNames, type KvStorageOptions } from './storage.js';
import { checkOptions } from '@winnow/tensor';

/** A contiguous cache of fixed capacity. `close` its pool when you are done. */
export async function createContiguousCache(options: KvStorageOptions, capacity: number): Promise<KvCache> {
  checkOptions(options, kvStorageNames);
  return createPagedCache(await KvPool.create(options, { numBlocks: 1, blockSize: capacity }));
}

/**
 * A new sequence in a pool.
 * @param prefix tokens whose leading blocks may be in the pool, if it shares prefixes; `numTokens` says how many were
 *   found
 */
export function createPagedCache(pool: KvPool, prefix: ArrayLike<number> = []): KvCache {
  return new KvCache(pool, pool.manager.createSequence({ prefix }));
}

/** A sequence in a pool, with the tensors of one layer. */
export class KvCache {
  readonly pool: KvPool;
  /** The sequence as the block manager sees it. */
  readonly sequence: SequenceView;

  constructor(pool: KvPool, sequence: SequenceView) {
    this.pool = pool;
    this.sequence = sequence;
  }

  /** Tokens so far; also the position of the next one. */
  get numTokens(): number {
    return this.sequence.numTokens;
  }

  /** Logical slots in use, empty ones included. */
  get numSlots(): number {
    return this.sequence.numSlots;
  }

  /** Position that a logical slot holds, -1 for none. */
  position(logicalSlot: number): number {
    return this.sequence.positions[logicalSlot];
  }

  /** One key as stored. */
  readKey(logicalSlot: number, kvHead: number): Promise<Float32Array> {
    return this.pool.storage.readKey(this.#physicalSlot(logicalSlot), kvHead);
  }

  readValue(logicalSlot: number, kvHead: number): Promise<Float32Array> {
    return this.pool.storage.readValue(this.#physicalSlot(logicalSlot), kvHead);
  }

  /**
   * Stores keys `[T, K, H]` and values `[T, K, D]` of the next T tokens.
   * @param tokens their ids, for prefix sharing. Default: zeros, without prefix sharing
   * @throws {CapacityError} when there is no room; then nothing is stored
   */
  append(k: Float32Array, v: Float32Array, tokens?: ArrayLike<number>): Promise<void> {
    const { manager, storage, summaries } = this.pool;
    const { numKvHeads, headDim } = storage.shape;
    const { id } = this.sequence;
    return this.pool.exclusive(async () => {
      const appended = manager.append(id, tokens ?? new Int32Array(k.length / (numKvHeads * headDim)));
      try {
        await this.pool.apply(appended);
        for (const slot of appended.slots) summaries?.prepare(slot);
        await storage.write(appended.slots, appended.positions, k, v);
      } catch (error) {
        await this.pool.apply(manager.rollback(id));
        throw error;
      }
      for (const slot of appended.slots) summaries?.add(slot);
      manager.commit(id);
    });
  }

  /** Forgets positions from `numTokens` on. */
  truncate(numTokens: number): Promise<void> {
    const { pool, sequence } = this;
    return pool.exclusive(() => pool.apply(pool.manager.truncate(sequence.id, numTokens)));
  }

  /** Empties logical slots: see `BlockManager.evict`. */
  evict(logicalSlots: ArrayLike<number>): Promise<void> {
    const { pool, sequence } = this;
    return pool.exclusive(() => pool.apply(pool.manager.evict(sequence.id, logicalSlots)));
  }

  /** A second sequence with the same contents, which share their blocks. */
  fork(): KvCache {
    return new KvCache(this.pool, this.pool.manager.fork(this.sequence.id));
  }

  /**
   * Attention output `[N, D]` for one token's queries `[N, H]`; query head `n` reads KV head `floor(n * K / N)`.
   * @param options.masses receives the probability of each logical slot, summed over heads; `numSlots` values. Computes
   *   the logits a second time
   * @throws {ShapeError | ArgumentError} for queries that do not fit the cache
   */
  attend(q: Float32Array, options: AttendOptions & { readonly masses?: Float32Array } = {}): Promise<Float32Array> {
    return this.pool.attend(this.sequence, q, options);
  }

  /** Merges attention over this cache into row `n` of `states` for each query head `n`: for keys in several places. */
  attendPartial(q: Float32Array, states: PartialStates, options: AttendOptions = {}): Promise<void> {
    return this.pool.attendPartial(this.sequence, q, states, options);
  }

  /**
   * Mean of the sequence's values per KV head, `[K, D]`: SparQ (arXiv:2312.04985 §4) substitutes it for the keys that
   * it skips. Computed as attention with zero queries, which weights all keys equally.
   */
  meanValue(): Promise<Float32Array> {
    const { numKvHeads, headDim } = this.pool.storage.shape;
    return this.attend(new Float32Array(numKvHeads * headDim));
  }

  /** Releases the blocks. */
  free(): Promise<void> {
    const { pool, sequence } = this;
    return pool.exclusive(() => pool.apply(pool.manager.free(sequence.id)));
  }

  #physicalSlot(logicalSlot: number): number {
    const { blockSize } = this.pool.storage.shape;
    const offset = logicalSlot % blockSize;
    return this.sequence.blocks[(logicalSlot - offset) / blockSize] * blockSize + offset;
  }
}
