/**
 * Attention over pages that are not in the pool. Pages are read in chunks; each chunk gives partial softmax states,
 * which are merged. The next chunk is read while one is computed. Memory: two chunks, independent of the context.
 */
import { createStates, mergeState, type PartialStates } from '@winnow/ops';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { DetachedPage } from '../blocks/sequence-state.js';
import { PageError } from '../pages/error.js';
import type { PageStore } from '../pages/store.js';
import { AttentionPrograms, type AttendOptions } from './programs.js';
import { resolveKvShape } from './shape.js';
import { KvStorage, kvStorageNames, type KvStorageOptions } from './storage.js';

export interface StreamedAttentionOptions extends KvStorageOptions {
  /** Its pages hold `kvPageBytes` bytes in the layout of `KvStorage.readPage`. */
  readonly store: PageStore;
  /** Pages per chunk. Default 8. */
  readonly chunkPages?: number;
}

const streamedNames: OptionNames<StreamedAttentionOptions> = { ...kvStorageNames, store: true, chunkPages: true };

/** Memory for one chunk of pages, and the programs that attend to it. */
class Chunk {
  readonly storage: KvStorage;
  readonly #programs: AttentionPrograms;
  readonly #pages: readonly Uint8Array[];
  readonly #blocks: Int32Array;

  constructor(storage: KvStorage) {
    const { numBlocks, pageBytes } = storage.shape;
    this.storage = storage;
    this.#programs = new AttentionPrograms(storage, numBlocks);
    this.#pages = Array.from({ length: numBlocks }, () => new Uint8Array(pageBytes));
    this.#blocks = Int32Array.from({ length: numBlocks }, (_, block) => block);
  }

  get sizeBytes(): number {
    return this.storage.sizeBytes + this.#pages.length * this.storage.shape.pageBytes;
  }

  /** Reads pages into the blocks of the chunk. @throws {PageError} for all pages that could not be read */
  async load(store: PageStore, pages: readonly DetachedPage[]): Promise<void> {
    const results = await Promise.allSettled(pages.map(({ pageId }, i) => store.read(pageId, this.#pages[i])));
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (errors.length > 0) throw combine(errors);
    for (const [block, { positions }] of pages.entries()) {
      await this.storage.writePage(block, this.#pages[block], positions);
    }
  }

  attend(
    q: Float32Array,
    numPages: number,
    states: PartialStates,
    position: number,
    options: AttendOptions,
  ): Promise<void> {
    const numSlots = numPages * this.storage.shape.blockSize;
    return this.#programs.mergePartial({ q, blocks: this.#blocks, numSlots, position, options }, states);
  }

  async close(): Promise<void> {
    await this.#programs.close();
    await this.storage.close();
  }
}

export class StreamedAttention {
  readonly #store: PageStore;
  readonly #chunks: readonly [Chunk, Chunk];

  private constructor(store: PageStore, chunks: readonly [Chunk, Chunk]) {
    this.#store = store;
    this.#chunks = chunks;
  }

  /** @throws {ArgumentError} when the store's pages have another size */
  static async create(options: StreamedAttentionOptions): Promise<StreamedAttention> {
    checkOptions(options, streamedNames);
    const { store, chunkPages = 8, ...storageOptions } = options;
    const blocks = { numBlocks: chunkPages, blockSize: store.blockSize };
    const { pageBytes } = resolveKvShape(storageOptions, blocks);
    if (pageBytes !== store.pageBytes) {
      const expected = `pages of ${pageBytes} bytes`;
      throw new ArgumentError({ argument: 'store', expected, actual: String(store.pageBytes) });
    }
    const createChunk = async (): Promise<Chunk> => new Chunk(await KvStorage.create(storageOptions, blocks));
    return new StreamedAttention(store, [await createChunk(), await createChunk()]);
  }

  /** Memory of the two chunks. */
  get sizeBytes(): number {
    return this.#chunks[0].sizeBytes + this.#chunks[1].sizeBytes;
  }

  /**
   * Merges attention of one token's queries `[N, H]` over pages into `states`. One call at a time.
   * @param options as for `KvCache.attend`; the default position is the largest one of the pages
   * @throws {PageError} naming the positions of every page of the chunk that could not be read; `states` are unchanged
   */
  async attend(
    q: Float32Array,
    pages: readonly DetachedPage[],
    states: PartialStates,
    options: AttendOptions = {},
  ): Promise<void> {
    const { headDim, valueDim, numBlocks: chunkPages } = this.#chunks[0].storage.shape;
    const merged = createStates(q.length / headDim, valueDim);
    const position = options.position ?? lastPosition(pages);
    const numChunks = Math.ceil(pages.length / chunkPages);
    const pagesOf = (index: number): readonly DetachedPage[] =>
      pages.slice(index * chunkPages, (index + 1) * chunkPages);
    const load = (index: number): Promise<void> => {
      const promise = this.#chunks[index % 2].load(this.#store, pagesOf(index));
      promise.catch(() => undefined); // thrown when it is awaited, after the previous chunk was computed
      return promise;
    };
    let loading = load(0);
    try {
      for (let index = 0; index < numChunks; index++) {
        await loading;
        options.signal?.throwIfAborted();
        if (index + 1 < numChunks) loading = load(index + 1);
        await this.#chunks[index % 2].attend(q, pagesOf(index).length, merged, position, options);
      }
    } finally {
      await loading.catch(() => undefined); // both chunks must be free when this call ends
    }
    for (let head = 0; head < merged.m.length; head++) mergeState(states, head, merged, head, valueDim);
  }

  async close(): Promise<void> {
    for (const chunk of this.#chunks) await chunk.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function lastPosition(pages: readonly DetachedPage[]): number {
  let last = -1;
  for (const { positions } of pages) for (const position of positions) last = Math.max(last, position);
  return last;
}

/** One error for the pages of a chunk; errors that are not about pages come first. */
function combine(errors: readonly unknown[]): unknown {
  const pageErrors = errors.filter((error) => PageError.isInstance(error));
  if (pageErrors.length < errors.length || pageErrors.length === 1) {
    return errors.find((error) => !PageError.isInstance(error)) ?? errors[0];
  }
  const [first] = pageErrors;
  return new PageError(
    {
      source: first.source,
      ...(first.byteOffset === undefined ? {} : { byteOffset: first.byteOffset }),
      pageIds: pageErrors.flatMap(({ pageIds }) => pageIds),
      positions: pageErrors.flatMap(({ positions }) => positions),
      message: first.message,
    },
    { cause: first },
  );
}
