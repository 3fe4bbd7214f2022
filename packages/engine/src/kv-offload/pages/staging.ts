/** Copies selected pages, in the pool or offloaded, into the staging buffers of a layer's program, and runs it. */
import { createScalarBlock, type Executable, type ScalarBlock } from '@winnow/ops';
import type { KvBuffer } from '../../memory/kv-memory.js';
import { settleAll, type OffloadBuffers } from '../buffers.js';
import type { PageList } from './list.js';
import type { ChosenProgram } from '../plan.js';
import type { TierBuffers } from '../program.js';
import type { OffloadStore } from '../store.js';

/** The pages of one query and KV head that are attended to together. */
export interface PageItem {
  readonly tokenRow: number;
  readonly position: number;
  readonly kvHead: number;
  readonly list: PageList;
  readonly pages: Int32Array;
}

/** Where a page of an item goes: its index in the staging buffers, and its part of the block. */
interface Place {
  readonly staged: number;
  readonly kvHead: number;
  readonly part: number;
}

interface Placement {
  readonly byBlock: ReadonlyMap<number, Place[]>;
  readonly byPage: ReadonlyMap<number, Place[]>;
  readonly positions: Int32Array; // [stagedPages, pageSize]
}

export interface PageStagingOptions {
  readonly buffers: OffloadBuffers;
  readonly names: TierBuffers;
  readonly store: OffloadStore;
  readonly executable: Executable;
  readonly chosen: ChosenProgram;
  readonly keys: KvBuffer;
  readonly values: KvBuffer;
  readonly numKvHeads: number;
  readonly blockSize: number;
  readonly pageSize: number;
}

export class PageStaging {
  readonly #options: PageStagingOptions;
  readonly #scalars: ScalarBlock;

  constructor(options: PageStagingOptions) {
    const { scalars, symbols } = options.executable.program;
    this.#options = options;
    this.#scalars = createScalarBlock(scalars, symbols);
  }

  /** Maximum number of pages per item that are staged at once. */
  pagesPerItem(numItems: number): number {
    const { stagedPages, maxPages } = this.#options.chosen;
    return Math.min(maxPages, Math.floor(stagedPages / numItems));
  }

  /** Copies the pages of items into one half of the staging buffers. */
  async load(items: readonly PageItem[], half: number): Promise<void> {
    const { buffers, names, keys, values, chosen, pageSize } = this.#options;
    const placement = this.#place(items);
    const positionBytes = chosen.stagedPages * pageSize * 4;
    await settleAll([
      this.#stage(names.chosenKeys, keys, placement, half),
      this.#stage(names.chosenValues, values, placement, half),
      buffers.fill(names.chosenPositions, half * positionBytes, positionBytes, (target) =>
        target.set(new Uint8Array(placement.positions.buffer)),
      ),
    ]);
  }

  /** Merges the attention of the items over the pages in one half of the staging buffers into their states. */
  async run(items: readonly PageItem[], half: number, signal: AbortSignal | undefined): Promise<void> {
    const { numKvHeads, pageSize, executable, chosen } = this.#options;
    const { stagedPages, maxPages } = chosen;
    const perItem = this.pagesPerItem(items.length);
    const [rows, positions] = [this.#scalars.slot('rows'), this.#scalars.slot('positions')];
    const [sequences, lengths] = [this.#scalars.slot('sequences'), this.#scalars.slot('contextLengths')];
    const table = this.#scalars.slot('blockTable');
    for (const [index, { tokenRow, kvHead, position, pages }] of items.entries()) {
      rows[index] = tokenRow * numKvHeads + kvHead;
      positions[index] = position;
      sequences[index] = index;
      lengths[index] = pages.length * pageSize;
      for (let at = 0; at < pages.length; at++) {
        table[index * maxPages + at] = half * stagedPages + index * perItem + at;
      }
    }
    this.#scalars.bind('T', items.length);
    await executable.run(this.#scalars.words, signal === undefined ? {} : { signal });
  }

  /** Assigns an index to each page; pages of one block share a read. */
  #place(items: readonly PageItem[]): Placement {
    const { chosen, pageSize } = this.#options;
    const byBlock = new Map<number, Place[]>();
    const byPage = new Map<number, Place[]>();
    const positions = new Int32Array(chosen.stagedPages * pageSize);
    const perItem = this.pagesPerItem(items.length);
    for (const [index, { kvHead, list, pages }] of items.entries()) {
      for (const [at, page] of pages.entries()) {
        const staged = index * perItem + at;
        positions.fill(-1, staged * pageSize, (staged + 1) * pageSize);
        positions.set(list.positions[page] as Int32Array, staged * pageSize);
        const block = list.blocks[page] as number;
        const [places, id] = block >= 0 ? [byBlock, block] : [byPage, list.pageIds[page] as number];
        const place = { staged, kvHead, part: list.parts[page] as number };
        const others = places.get(id);
        if (others === undefined) places.set(id, [place]);
        else others.push(place);
      }
    }
    return { byBlock, byPage, positions };
  }

  /** Copies the pages of a cache buffer to their indices in a staging buffer. */
  #stage(name: string, buffer: KvBuffer, { byBlock, byPage }: Placement, half: number): Promise<void> {
    const { buffers, numKvHeads, blockSize, pageSize, chosen } = this.#options;
    const slotBytes = buffer.rowBytes / (numKvHeads * blockSize);
    const pageBytes = pageSize * slotBytes;
    const sizeBytes = chosen.stagedPages * pageBytes;
    return buffers.fill(name, half * sizeBytes, sizeBytes, async (target) => {
      const take = (row: Uint8Array, places: readonly Place[]): void => {
        for (const { staged, kvHead, part } of places) {
          const from = (kvHead * blockSize + part * pageSize) * slotBytes;
          target.set(row.subarray(from, from + pageBytes), staged * pageBytes);
        }
      };
      const fromStore = [...byPage].map(async ([pageId, places]) => take(await this.#readPage(pageId, buffer), places));
      const fromPool = [...byBlock].map(async ([block, places]) =>
        take(await buffers.read(buffer.name, block * buffer.rowBytes, buffer.rowBytes), places),
      );
      await settleAll([...fromStore, ...fromPool]);
    });
  }

  /** The row of an offloaded page. */
  async #readPage(pageId: number, buffer: KvBuffer): Promise<Uint8Array> {
    const { store } = this.#options;
    const { runId, index } = store.locate(pageId);
    let run = store.peekRun(runId, buffer);
    if (run === undefined) {
      run = new Uint8Array(store.runBlocks * buffer.rowBytes);
      await store.readRun(runId, buffer, run, true);
    }
    return run.subarray(index * buffer.rowBytes, (index + 1) * buffer.rowBytes);
  }
}
