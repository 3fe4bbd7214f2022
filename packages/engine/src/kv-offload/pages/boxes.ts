/** The key boxes of pages (minima and maxima per dimension), for blocks in the pool and offloaded ones. */
import type { PageBox } from '@winnow/ops';
import type { KvBuffer } from '../../memory/kv-memory.js';
import type { OffloadBuffers } from '../buffers.js';
import type { PageList } from './list.js';
import type { OffloadStore } from '../store.js';

/** The buffers of a layer's boxes. */
export type BoxBuffers = Readonly<Record<'boxCounts' | 'keyMin' | 'keyMax', KvBuffer>>;

/** The box of a page for a KV head. */
export type BoxTable = (page: number, kvHead: number) => PageBox;

/** Rows of a buffer by block. */
type RowsByBlock = (block: number) => Float32Array;

export interface BoxReaderOptions {
  readonly buffers: OffloadBuffers;
  readonly store: OffloadStore;
  readonly boxes: BoxBuffers;
  readonly numKvHeads: number;
  readonly headDim: number;
}

export class BoxReader {
  readonly #options: BoxReaderOptions;

  constructor(options: BoxReaderOptions) {
    this.#options = options;
  }

  /** Reads the boxes of all pages of a list. */
  async read({ blocks, pageIds, parts }: PageList): Promise<BoxTable> {
    const { store, boxes, numKvHeads, headDim } = this.#options;
    const inPool = new Set(blocks.filter((block) => block >= 0));
    const countRows = await this.#rowsOf(boxes.boxCounts, inPool);
    const minRows = await this.#rowsOf(boxes.keyMin, inPool);
    const maxRows = await this.#rowsOf(boxes.keyMax, inPool);
    const countBegin = store.residentOffset(boxes.boxCounts);
    const minBegin = store.residentOffset(boxes.keyMin);
    const maxBegin = store.residentOffset(boxes.keyMax);
    return (page, kvHead) => {
      const block = blocks[page] as number;
      const row = (parts[page] as number) * numKvHeads + kvHead;
      const at = row * headDim;
      if (block >= 0) {
        const count = asIntegers(countRows(block))[row] as number;
        return { count, keyMin: minRows(block), minBegin: at, keyMax: maxRows(block), maxBegin: at };
      }
      const resident = store.resident(pageIds[page] as number);
      const count = asIntegers(resident)[countBegin + row] as number;
      return { count, keyMin: resident, minBegin: minBegin + at, keyMax: resident, maxBegin: maxBegin + at };
    };
  }

  /** All rows if the host can access the buffer, else copies of the requested ones. */
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
