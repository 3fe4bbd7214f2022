/**
 * Summaries of blocks in the layout that sparse attention ops read: means, bounds, transposed keys. Changes are noted as slots
 * are written, emptied and copied; `refresh` lets the ops `block-mean-append`, `block-box-append` and `key-columns-append` of
 * @winnow/ops bring the blocks concerned up to date. Values are those that are stored: rounded, and rotated if keys are.
 */
import type { BufferHandle } from '@winnow/ops';
import { ArgumentError, invariant } from '@winnow/tensor';
import type { BlockCopy } from '../blocks/slot-writer.js';
import { Limiter } from '../limiter.js';
import type { KvStorage } from './storage.js';
import { SummaryPrograms } from './summary-programs.js';

export interface PageSummaryOptions {
  /** Means of keys and values, with their number. */
  readonly landmarks?: boolean;
  /** Smallest and largest of each component of the keys, and the largest norm of the values. */
  readonly bounds?: boolean;
  /** Keys component by component: `[H, S]` per head, in f32. */
  readonly transposedKeys?: boolean;
}

export class PageSummaries {
  readonly #storage: KvStorage;
  readonly #options: PageSummaryOptions;
  readonly #programs: SummaryPrograms;
  readonly #turns = new Limiter(1);
  readonly #isFilled: Uint8Array;
  readonly #counts: Int32Array;
  /** Blocks whose means and bounds lack slots that were added. */
  readonly #staleBlocks = new Set<number>();
  /** Blocks whose means and bounds stand for slots that are gone. */
  readonly #lostBlocks: Set<number>;
  /** Slots whose keys are to be transposed. */
  readonly #newSlots = new Set<number>();

  constructor(storage: KvStorage, options: PageSummaryOptions) {
    const { numBlocks, blockSize } = storage.shape;
    this.#storage = storage;
    this.#options = options;
    this.#programs = new SummaryPrograms(storage, options);
    this.#isFilled = new Uint8Array(numBlocks * blockSize);
    this.#counts = new Int32Array(numBlocks);
    this.#lostBlocks = new Set(this.#counts.keys());
  }

  /**
   * Memory by the names that ops give their inputs: `meanCounts`, `keyMeans`, `valueMeans`; `boxCounts`, `keyMin`, `keyMax`,
   * `valueNorms`; `columns`. Call `refresh` before a program reads it.
   */
  get buffers(): ReadonlyMap<string, BufferHandle> {
    return this.#programs.buffers;
  }

  get sizeBytes(): number {
    return this.#programs.sizeBytes + this.#isFilled.byteLength + this.#counts.byteLength;
  }

  /** Filled slots of a block. */
  count(block: number): number {
    return this.#counts[block];
  }

  /** Mean `[H]` of the keys of a block; zeros for an empty one. */
  meanKey(block: number, kvHead: number): Promise<Float32Array> {
    return this.#read('landmarks', 'keyMeans', block, kvHead, 0);
  }

  /** Mean `[D]` of the values of a block; zeros for an empty one. */
  meanValue(block: number, kvHead: number): Promise<Float32Array> {
    return this.#read('landmarks', 'valueMeans', block, kvHead, 0);
  }

  /** `Infinity` for an empty block. */
  minKey(block: number, kvHead: number): Promise<Float32Array> {
    return this.#read('bounds', 'keyMin', block, kvHead, Infinity);
  }

  /** `-Infinity` for an empty block. */
  maxKey(block: number, kvHead: number): Promise<Float32Array> {
    return this.#read('bounds', 'keyMax', block, kvHead, -Infinity);
  }

  /** An upper bound of the Euclidean norms of the values, at most `2^-17` above the largest; 0 for an empty block. */
  async maxValueNorm(block: number, kvHead: number): Promise<number> {
    const [norm] = await this.#read('bounds', 'valueNorms', block, kvHead, 0);
    return norm;
  }

  /** Component `i` of the keys: one value per slot, 0 in empty ones. */
  async keyComponent(block: number, kvHead: number, component: number): Promise<Float32Array> {
    const { blockSize } = this.#storage.shape;
    const columns = await this.#read('transposedKeys', 'columns', block, kvHead, 0);
    const row = columns.slice(component * blockSize, (component + 1) * blockSize);
    return row.map((value, i) => (this.#isFilled[block * blockSize + i] === 1 ? value : 0));
  }

  /**
   * A slot is about to be written. If it counts as filled, a sequence was truncated there: it and the slots after it in the
   * block are removed.
   */
  prepare(slot: number): void {
    if (this.#isFilled[slot] === 0) return;
    const end = (this.#blockOf(slot) + 1) * this.#storage.shape.blockSize;
    for (let lost = slot; lost < end; lost++) this.remove(lost);
  }

  /** A slot has been written. */
  add(slot: number): void {
    invariant(this.#isFilled[slot] === 0, `slot ${slot} was not prepared`);
    const block = this.#blockOf(slot);
    this.#isFilled[slot] = 1;
    this.#counts[block]++;
    this.#newSlots.add(slot);
    this.#staleBlocks.add(block);
  }

  /** A slot was emptied. */
  remove(slot: number): void {
    if (this.#isFilled[slot] === 0) return;
    const block = this.#blockOf(slot);
    this.#isFilled[slot] = 0;
    this.#counts[block]--;
    this.#newSlots.delete(slot);
    this.#lostBlocks.add(block);
    this.#staleBlocks.add(block);
  }

  /** A block holds nothing. */
  reset(block: number): void {
    for (const slot of this.#slotsOf(block)) this.remove(slot);
    this.#lostBlocks.add(block);
  }

  /** A block is the copy of the first slots of another one; the storage has copied them already. */
  copy({ from, to, numSlots }: BlockCopy): void {
    this.reset(to);
    const { blockSize } = this.#storage.shape;
    for (let i = 0; i < numSlots; i++) {
      if (this.#isFilled[from * blockSize + i] === 1) this.add(to * blockSize + i);
    }
  }

  /** A page has been written over a block. @param positions of its slots, -1 for empty ones */
  reload(block: number, positions: Int32Array): void {
    this.reset(block);
    const { blockSize } = this.#storage.shape;
    for (let i = 0; i < blockSize; i++) if (positions[i] >= 0) this.add(block * blockSize + i);
  }

  /** Brings all summaries up to date. Reading does it by itself. */
  refresh(): Promise<void> {
    return this.#turns.run(async () => {
      // taken before anything is awaited: what is written meanwhile belongs to the next refresh
      const newSlots = [...this.#newSlots];
      const staleBlocks = [...this.#staleBlocks];
      this.#newSlots.clear();
      this.#staleBlocks.clear();
      if (newSlots.length > 0) await this.#programs.transpose(newSlots);
      const lastSlots: number[] = [];
      for (const block of staleBlocks) {
        const filled = this.#slotsOf(block);
        if (filled.length === 0) continue;
        const last = filled[filled.length - 1];
        if (last % this.#storage.shape.blockSize !== filled.length - 1) {
          await this.#programs.summarizeSparse(block, filled);
          this.#lostBlocks.add(block); // the ops count on a block without holes when they go on
          continue;
        }
        if (this.#lostBlocks.delete(block)) await this.#programs.clearCounts(block);
        lastSlots.push(last);
      }
      if (lastSlots.length > 0) await this.#programs.summarize(lastSlots);
    });
  }

  async close(): Promise<void> {
    await this.#turns.run(() => this.#programs.close());
  }

  #blockOf(slot: number): number {
    return Math.floor(slot / this.#storage.shape.blockSize);
  }

  /** Filled slots of a block. */
  #slotsOf(block: number): number[] {
    const { blockSize } = this.#storage.shape;
    const slots: number[] = [];
    for (let slot = block * blockSize; slot < (block + 1) * blockSize; slot++) {
      if (this.#isFilled[slot] === 1) slots.push(slot);
    }
    return slots;
  }

  async #read(
    option: keyof PageSummaryOptions,
    name: string,
    block: number,
    kvHead: number,
    empty: number,
  ): Promise<Float32Array> {
    if (this.#options[option] !== true) {
      throw new ArgumentError({ argument: option, expected: 'a summary that is kept', actual: 'not kept' });
    }
    await this.refresh();
    const row = await this.#programs.readRow(name, block * this.#storage.shape.numKvHeads + kvHead);
    return this.#counts[block] === 0 ? row.fill(empty) : row;
  }
}
