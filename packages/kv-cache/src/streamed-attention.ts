/**
 * Attention over pages that are not in the pool: they come in chunks, each chunk gives a partial state, the states merge.
 * While one chunk is computed the next one is being read. Memory: two chunks, whatever the context.
 */
import type { PartialStates } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { attendPartial, type AttendOptions, type SlotReader } from './attend.js';
import type { DetachedPage } from './block-types.js';
import { createKvStorage, type KvStorage } from './kv-storage.js';
import type { KvSizes } from './memory.js';
import { PageError } from './page-error.js';
import type { PageStore } from './page-store.js';
import { createStates, mergeStates } from './partial-states.js';

export interface StreamedAttentionOptions extends KvSizes {
  /** Its pages hold `kvPageBytes` bytes as `KvStorage.readPage` gives them. */
  readonly store: PageStore;
  readonly rotateKeys?: boolean;
  /** Pages per chunk. Default 8. */
  readonly chunkPages?: number;
}

export interface StreamedAttention {
  /** Memory of the two chunks. */
  readonly sizeBytes: number;
  /**
   * Merges attention of one token's queries `[N, H]` over pages into `states`. One call at a time.
   * @param options as for `attendPartial`, without masses
   * @throws {PageError} naming the positions of every page of the chunk that could not be read; `states` are unchanged
   */
  attend(
    q: Float32Array,
    pages: readonly DetachedPage[],
    states: PartialStates,
    options?: Omit<AttendOptions, 'masses'> & { readonly signal?: AbortSignal },
  ): Promise<void>;
}

interface Chunk {
  readonly storage: KvStorage;
  readonly buffers: readonly Uint8Array[];
}

/** @throws {ArgumentError} when the store's pages are of another size */
export function createStreamedAttention(options: StreamedAttentionOptions): StreamedAttention {
  const { store, chunkPages = 8 } = options;
  const { blockSize } = store;
  const createChunk = (): Chunk => ({
    storage: createKvStorage({ ...options, numBlocks: chunkPages, blockSize }),
    buffers: Array.from({ length: chunkPages }, () => new Uint8Array(store.pageBytes)),
  });
  const chunks = [createChunk(), createChunk()];
  const { pageBytes, valueDim, headDim, sizeBytes } = chunks[0].storage;
  if (pageBytes !== store.pageBytes) {
    const expected = `pages of ${pageBytes} bytes`;
    throw new ArgumentError({ argument: 'store', expected, actual: String(store.pageBytes) });
  }

  async function load({ storage, buffers }: Chunk, pages: readonly DetachedPage[]): Promise<void> {
    const results = await Promise.allSettled(pages.map(({ pageId }, index) => store.read(pageId, buffers[index])));
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (errors.length > 0) throw combine(errors);
    storage.slotPositions.fill(-1);
    pages.forEach(({ positions }, index) => storage.writePage(index, buffers[index], positions));
  }

  return {
    sizeBytes: 2 * (sizeBytes + chunkPages * store.pageBytes),
    async attend(q, pages, states, { signal, ...attendOptions } = {}) {
      const merged = createStates(q.length / headDim, valueDim);
      const chunkOf = (index: number): readonly DetachedPage[] =>
        pages.slice(index * chunkPages, (index + 1) * chunkPages);
      const numChunks = Math.ceil(pages.length / chunkPages);
      let loading = load(chunks[0], chunkOf(0));
      try {
        for (let index = 0; index < numChunks; index++) {
          await loading;
          signal?.throwIfAborted();
          if (index + 1 < numChunks) loading = load(chunks[(index + 1) % 2], chunkOf(index + 1));
          attendPartial(
            readerOf(chunks[index % 2].storage, chunkOf(index).length * blockSize),
            q,
            merged,
            attendOptions,
          );
        }
      } finally {
        await loading.catch(() => undefined); // the chunks are free again when this call ends
      }
      for (let head = 0; head < merged.m.length; head++) mergeStates(states, head, merged, head, valueDim);
    },
  };
}

function readerOf(storage: KvStorage, numSlots: number): SlotReader {
  const { numKvHeads, headDim, valueDim, rotateKeys, slotPositions, readKey, readValue } = storage;
  const position = (slot: number): number => slotPositions[slot];
  return { numKvHeads, headDim, valueDim, rotateKeys, numSlots, position, readKey, readValue };
}

/** One error for the pages of a chunk; what is not about pages comes first. */
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
