/**
 * Summaries of blocks in the layout that sparse attention ops read: means, bounds, transposed keys. Changes are
 * recorded as slots are written, emptied and copied; `refresh` updates the affected blocks with the ops
 * `block-mean-append`, `block-box-append` and `key-columns-append` of @winnow/ops. Summaries are of the values as
 * stored: rounded, and rotated if keys are.
 */
import type { BufferHandle } from '@winnow/ops';
import { ArgumentError, invariant } from '@winnow/tensor';
import type { BlockCopy } from '../blocks/slot-writer.js';
import { Limiter } from '../limiter.js';
import type { KvStorage } from './storage.js';
import { SummaryPrograms } from './summary-programs.js';

export interface PageSummaryOptions {
  /** Means of keys and values, and their counts. */
  readonly landmarks?: boolean;
  /** Minimum and maximum of each component of the keys, and the maximum norm of the values. */
  readonly bounds?: boolean;
  /** Keys component by component: `[H, S]` per head, in f32. */
  readonly transposedKeys?: boolean;
}

/** The bounds of an empty block. */
const emptyBounds: ReadonlyMap<string, number> = new Map([
  ['keyMin', Infinity],
  ['keyMax', -Infinity],
]);

export class PageSummaries {
  readonly #storage: KvStorage;
  readonly #programs: SummaryPrograms;
  readonly #turns = new Limiter(1);
  readonly #isFilled: Uint8Array;
  readonly #counts: Int32Array;
  /** Blocks whose means and bounds lack added slots. */
  readonly #staleBlocks = new Set<number>();
  /** Blocks whose means and bounds include removed slots. */
  readonly #lostBlocks: Set<number>;
  /** Slots whose keys are to be transposed. */
  readonly #newSlots = new Set<number>();

  constructor(storage: KvStorage, options: PageSummaryOptions) {
    const { numBlocks, blockSize } = storage.shape;
    this.#storage = storage;
    this.#programs = new SummaryPrograms(storage, options);
    this.#isFilled = new Uint8Array(numBlocks * blockSize);
    this.#counts = new Int32Array(numBlocks);
    this.#lostBlocks = new Set(this.#counts.keys());
  }

  /**
   * Buffers by the names of op inputs: `meanCounts`, `keyMeans`, `valueMeans`; `boxCounts`, `keyMin`, `keyMax`,
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

  /**
   * The contents of a tensor for a block and KV head: `keyMeans` and `keyMin` are `[H]`, `valueMeans` is `[D]`,
   * `columns` is `[H, S]`; one number for the rest. `valueNorms` is at most `2^-17` above the largest norm. For an
   * empty block, all means, norms and columns are 0, its `keyMin` is `Infinity` and its `keyMax` is `-Infinity`.
   * @throws {ArgumentError} for a tensor of a summary that is not enabled
   */
  async read(name: string, block: number, kvHead: number): Promise<Float32Array> {
    if (!this.buffers.has(name)) {
      throw new ArgumentError({ argument: 'name', expected: [...this.buffers.keys()].join(' | '), actual: name });
    }
    await this.refresh();
    const { numKvHeads, blockSize } = this.#storage.shape;
    const row = await this.#programs.readRow(name, block * numKvHeads + kvHead);
    if (this.#counts[block] === 0) return row.fill(emptyBounds.get(name) ?? 0);
    if (name !== 'columns') return row;
    return row.map((value, i) => (this.#isFilled[block * blockSize + (i % blockSize)] === 1 ? value : 0));
  }

  /**
   * Called before a slot is written. If it counts as filled, a sequence was truncated there: it and the slots after it
   * in the block are removed.
   */
  prepare(slot: number): void {
    if (this.#isFilled[slot] === 0) return;
    const end = (this.#blockOf(slot) + 1) * this.#storage.shape.blockSize;
    for (let lost = slot; lost < end; lost++) this.remove(lost);
  }

  /** Called after a slot was written. */
  add(slot: number): void {
    invariant(this.#isFilled[slot] === 0, `slot ${slot} was not prepared`);
    const block = this.#blockOf(slot);
    this.#isFilled[slot] = 1;
    this.#counts[block]++;
    this.#newSlots.add(slot);
    this.#staleBlocks.add(block);
  }

  /** Called after a slot was emptied. */
  remove(slot: number): void {
    if (this.#isFilled[slot] === 0) return;
    const block = this.#blockOf(slot);
    this.#isFilled[slot] = 0;
    this.#counts[block]--;
    this.#newSlots.delete(slot);
    this.#lostBlocks.add(block);
    this.#staleBlocks.add(block);
  }

  /** Marks a block as empty. */
  reset(block: number): void {
    for (const slot of this.#slotsOf(block)) this.remove(slot);
    this.#lostBlocks.add(block);
  }

  /** Called after the storage copied the first slots of a block to another one. */
  copy({ from, to, numSlots }: BlockCopy): void {
    this.reset(to);
    const { blockSize } = this.#storage.shape;
    for (let i = 0; i < numSlots; i++) {
      if (this.#isFilled[from * blockSize + i] === 1) this.add(to * blockSize + i);
    }
  }

  /** Called after a page was written to a block. @param positions of its slots, -1 for empty ones */
  reload(block: number, positions: Int32Array): void {
    this.reset(block);
    const { blockSize } = this.#storage.shape;
    for (let i = 0; i < blockSize; i++) if (positions[i] >= 0) this.add(block * blockSize + i);
  }

  /** Updates all summaries. Reading does so automatically. */
  refresh(): Promise<void> {
    return this.#turns.run(async () => {
      // taken before the first await: later writes belong to the next refresh
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
          this.#lostBlocks.add(block); // the ops extend only blocks without holes
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
}
