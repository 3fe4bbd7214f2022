/** Blocks of one layer and their memory on a backend, shared by sequences. */
import type { Backend, PartialStates } from '@winnow/ops';
import { createBlockManager, type BlockManager } from '../blocks/block-manager.js';
import type { BlockChanges } from '../blocks/slot-writer.js';
import type { SequenceView } from '../blocks/sequence-state.js';
import { Limiter } from '../limiter.js';
import { AttentionPrograms, type AttendOptions, type AttentionCall } from './programs.js';
import type { KvBlocks } from './shape.js';
import { KvStorage, kvStorageNames, type KvStorageOptions } from './storage.js';
import { PageSummaries, type PageSummaryOptions } from './page-summaries.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface KvPoolOptions extends KvStorageOptions {
  /** Share common leading blocks between sequences. Default false; then `append` needs no token ids. */
  readonly prefixSharing?: boolean;
  /** Keep summaries of the pool's pages. */
  readonly summaries?: PageSummaryOptions;
}

const kvPoolNames: OptionNames<KvPoolOptions> = {
  ...kvStorageNames,
  prefixSharing: true,
  summaries: { landmarks: true, bounds: true, transposedKeys: true },
};

/** Calls of all sequences of a pool are serialized. */
export class KvPool {
  readonly manager: BlockManager;
  readonly storage: KvStorage;
  readonly summaries: PageSummaries | undefined;
  readonly #programs: AttentionPrograms;
  readonly #turns = new Limiter(1);

  private constructor(manager: BlockManager, storage: KvStorage, summaries: PageSummaries | undefined) {
    this.manager = manager;
    this.storage = storage;
    this.summaries = summaries;
    this.#programs = new AttentionPrograms(storage, manager.maxBlocksPerSequence);
  }

  /** @throws {ArgumentError | ShapeError} for invalid sizes and dtypes; {CapacityError} without memory */
  static async create(options: KvPoolOptions, blocks: KvBlocks): Promise<KvPool> {
    checkOptions(options, kvPoolNames);
    const { prefixSharing = false, summaries: kinds, ...storageOptions } = options;
    const storage = await KvStorage.create(storageOptions, blocks);
    const summaries = kinds && new PageSummaries(storage, kinds);
    const { numBlocks, blockSize } = blocks;
    return new KvPool(createBlockManager({ numBlocks, blockSize, prefixSharing }), storage, summaries);
  }

  get backend(): Backend {
    return this.storage.backend;
  }

  /** Runs a task when all earlier ones are done. */
  exclusive<T>(task: () => Promise<T>): Promise<T> {
    return this.#turns.run(task);
  }

  /** Applies the changes of the block manager to memory and summaries. */
  async apply({ newBlocks, copies, clearedSlots }: BlockChanges): Promise<void> {
    const { storage, summaries } = this;
    const { blockSize } = storage.shape;
    for (const block of newBlocks) {
      summaries?.reset(block);
      await storage.setPositions(block * blockSize, new Int32Array(blockSize).fill(-1));
    }
    for (const copy of copies) {
      await storage.copyBlock(copy);
      summaries?.copy(copy);
    }
    for (const slot of clearedSlots) {
      summaries?.remove(slot);
      await storage.setPositions(slot, Int32Array.of(-1));
    }
  }

  /** Attention of a sequence: see `KvCache.attend`. */
  attend(
    sequence: SequenceView,
    q: Float32Array,
    options: AttendOptions & { readonly masses?: Float32Array } = {},
  ): Promise<Float32Array> {
    const { masses } = options;
    return this.exclusive(() => {
      const call = callOf(sequence, q, options);
      return masses === undefined ? this.#programs.output(call) : this.#programs.outputWithMass(call, masses);
    });
  }

  /** Partial states of a sequence: see `KvCache.attendPartial`. */
  attendPartial(
    sequence: SequenceView,
    q: Float32Array,
    states: PartialStates,
    options: AttendOptions = {},
  ): Promise<void> {
    return this.exclusive(() => this.#programs.mergePartial(callOf(sequence, q, options), states));
  }

  /** Waits for pending calls and frees all memory. */
  async close(): Promise<void> {
    await this.exclusive(async () => {
      await this.#programs.close();
      await this.summaries?.close();
      await this.storage.close();
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function callOf({ blocks, numSlots, numTokens }: SequenceView, q: Float32Array, options: AttendOptions): AttentionCall {
  return { q, blocks, numSlots, position: options.position ?? numTokens - 1, options };
}
