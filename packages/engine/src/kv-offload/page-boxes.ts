/** The boxes of pages: minima and maxima of their keys, of blocks in the pool and of offloaded ones. */
import type { KvBuffer } from '../memory/kv-memory.js';
import type { OffloadBuffers } from './buffers.js';
import type { BoxTable, PageList } from './page-choice.js';
import type { TierStore } from './store.js';

/** The buffers of a layer's boxes. */
export type BoxBuffers = Readonly<Record<'boxCounts' | 'keyMin' | 'keyMax', KvBuffer>>;

/** Rows of a buffer by block. */
type RowsByBlock = (block: number) => Float32Array;

export interface BoxReaderOptions {
  readonly buffers: OffloadBuffers;
  readonly store: TierStore;
  readonly boxes: BoxBuffers;
  readonly numKvHeads: number;
  readonly headDim: number;
}

export class BoxReader {
  readonly #options: BoxReaderOptions;

  constructor(options: BoxReaderOptions) {
    this.#options = options;
  }

  /** The boxes of all pages of a list. */
  async read({ count, blocks, pageIds, parts }: PageList): Promise<BoxTable> {
    const { store, boxes, numKvHeads, headDim } = this.#options;
    const inPool = new Set(blocks.filter((block) => block >= 0));
    const countRows = await this.#rowsOf(boxes.boxCounts, inPool);
    const minRows = await this.#rowsOf(boxes.keyMin, inPool);
    const maxRows = await this.#rowsOf(boxes.keyMax, inPool);
    const counts: Int32Array[] = [];
    const minima: Float32Array[] = [];
    const maxima: Float32Array[] = [];
    const countBegins = new Int32Array(count);
    const minBegins = new Int32Array(count);
    const maxBegins = new Int32Array(count);
    for (let page = 0; page < count; page++) {
      const block = blocks[page] as number;
      const ofPart = (parts[page] as number) * numKvHeads;
      if (block >= 0) {
        counts.push(asIntegers(countRows(block)));
        minima.push(minRows(block));
        maxima.push(maxRows(block));
        countBegins[page] = ofPart;
        minBegins[page] = maxBegins[page] = ofPart * headDim;
      } else {
        const resident = store.resident(pageIds[page] as number);
        counts.push(asIntegers(resident));
        minima.push(resident);
        maxima.push(resident);
        countBegins[page] = store.residentOffset(boxes.boxCounts) + ofPart;
        minBegins[page] = store.residentOffset(boxes.keyMin) + ofPart * headDim;
        maxBegins[page] = store.residentOffset(boxes.keyMax) + ofPart * headDim;
      }
    }
    return { counts, countBegins, minima, maxima, minBegins, maxBegins };
  }

  /** All rows where the host can see the buffer, otherwise copies of those that are asked for. */
  async #rowsOf({ name, rowBytes }: KvBuffer, blocks: ReadonlySet<number>): Promise<RowsByBlock> {
    const { buffers } = this.#options;
    const length = rowBytes / 4;
    const view = buffers.view(name);
    if (view !== undefined) {
      return (block) => new Float32Array(view.buffer, view.byteOffset + block * rowBytes, length);
    }
    const rows = new Map<number, Float32Array>();
    for (const block of blocks) rows.set(block, await buffers.readFloats(name, block * rowBytes, length));
    return (block) => rows.get(block) as Float32Array;
  }
}

function asIntegers({ buffer, byteOffset, length }: Float32Array): Int32Array {
  return new Int32Array(buffer, byteOffset, length);
}
