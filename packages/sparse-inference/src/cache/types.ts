/** What the neuron cache works with: items (neurons or whole experts) in slots of backend memory, in RAM and in files. */
import type { ByteSource } from '@winnow/bytes';
import type { DType } from '@winnow/tensor';

/** One part of every item of a layer: the row of one matrix for a neuron, the whole matrix for an expert. */
export interface NeuronPiece {
  /** For messages: `gate`, `up`, `down`. */
  readonly name: string;
  readonly dtype: DType;
  /** Values per item. An item takes `sizeOf(dtype, valuesPerItem)` bytes. */
  readonly valuesPerItem: number;
  /** Where the items are: number `i` at `byteOffset + i * strideBytes`. The cache reads it and leaves it open. */
  readonly source: ByteSource;
  readonly byteOffset: number;
  /** Default: the bytes of an item. Larger where the pieces of an item are side by side: then they are read together. */
  readonly strideBytes?: number;
}

/** One layer: its items, its slots and what is in which tier at first. */
export interface NeuronLayer {
  readonly numItems: number;
  readonly pieces: readonly NeuronPiece[];
  /** Items that fit into the slot memory of this layer. */
  readonly slots: number;
  /** Items that are loaded at creation and never leave their slots. */
  readonly hot?: ArrayLike<number>;
  /** Items that fit into the warm tier of this layer. Default 0. */
  readonly warmSlots?: number;
  /** Items that are loaded into the warm tier at creation. */
  readonly warm?: ArrayLike<number>;
  /** Share of the tokens for which each item is active, from calibration. Default: all 0, then what is observed. */
  readonly frequencies?: ArrayLike<number>;
}

/** The memory of the slots of one piece: slot `s` is at `s * (bytes of an item)`. */
export interface SlotMemory {
  /** The memory if this program can reach it; asked anew for each load. It always can, or it never can. */
  view(): Uint8Array | undefined;
  /** Used where there is no view. `bytes` may change once the promise is settled. */
  write(byteOffset: number, bytes: Uint8Array): Promise<void>;
}

/** How the warm tier keeps items: wide rows (f32, f16, bf16) in 8 bit, or all as they are. */
export type WarmEncoding = 'q8_0' | 'same';
/** Where the cold tier is: in the file, or as a copy of 4 bit in memory, so that the file is not read again. */
export type ColdEncoding = 'file' | 'q4_0';

export interface NeuronCacheOptions {
  readonly layers: readonly NeuronLayer[];
  readonly slotMemory: (layer: number, piece: number) => SlotMemory;
  /** Default `q8_0`. With `same` and `coldEncoding: 'file'` a slot always holds the very bytes of the source. */
  readonly warmEncoding?: WarmEncoding;
  /** Default `file`. With `q4_0` the warm tier keeps the items of its list and takes no others. */
  readonly coldEncoding?: ColdEncoding;
  /** Reads under way at a time. Default: 8, fewer for items of more than 1 MiB. */
  readonly maxReads?: number;
  /** Longest read; rounded up to one item. Default 256 KiB. Memory for reads: at most `maxReads` times this. */
  readonly readBytes?: number;
  /** Neighbors with at most so many bytes between them are read together. Default 32 KiB. */
  readonly maxGapBytes?: number;
  /** Called for each piece read from a source; `false` makes it a damaged one. `bytes` is valid during the call. */
  readonly verify?: (layer: number, piece: number, item: number, bytes: Uint8Array) => boolean;
  /** Name of an item in messages. Default `neuron`. */
  readonly itemName?: string;
  /** Aborts the loading at creation. */
  readonly signal?: AbortSignal;
  /** Progress of the loading at creation. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
}

/** Counters of one layer since creation. An id that occurs twice in one `ensure` counts once. */
export interface NeuronLayerStatistics {
  /** Items asked for by `ensure`: `hits + misses`. */
  readonly requests: number;
  /** In a slot, or on the way into one. */
  readonly hits: number;
  /** Hits that a prefetch brought and that were not requested before. */
  readonly prefetchHits: number;
  /** `warmHits + coldReads`. */
  readonly misses: number;
  readonly warmHits: number;
  readonly coldReads: number;
  /** Items evicted from a slot, and from the warm tier. */
  readonly evictions: number;
  readonly warmEvictions: number;
  /** Items that `prefetch` began to load, could not for lack of slots, and dropped before they arrived. */
  readonly prefetches: number;
  readonly prefetchesRefused: number;
  readonly prefetchesDropped: number;
}

export interface NeuronCacheStatistics extends NeuronLayerStatistics {
  readonly layers: readonly NeuronLayerStatistics[];
  /** Reads of the sources, and their bytes: all, and those of items that were wanted (the others lay in gaps). */
  readonly numReads: number;
  readonly bytesRead: number;
  readonly usefulBytesRead: number;
  readonly failedReads: number;
  /** Memory in bytes: slots, warm tier, 4-bit copy, and the most that was in use for reads. */
  readonly bytes: { readonly hot: number; readonly warm: number; readonly cold: number; readonly staging: number };
}

export interface NeuronCache {
  /**
   * Makes `ids[0 ... count)` resident and writes their slots to `rowsOut[0 ... count)`. The items keep their slots until
   * the next `ensure` or `release` of this layer. One call per layer at a time; ids may repeat and have any order.
   * After a failure the cache is usable and holds none of the ids; what arrived stays.
   * @throws {CapacityError} when the ids need more slots than there are; nothing has changed then (see `fit`)
   * @throws {NeuronLoadError} when items cannot be read or are damaged
   * @throws {ArgumentError} when an id, a count or the layer is out of range, or the layer is being ensured
   * @throws {ReleasedError} when the cache is or gets closed
   * @throws the reason of `signal` when it fires
   */
  ensure(layer: number, ids: Int32Array, count: number, rowsOut: Int32Array, signal?: AbortSignal): Promise<void>;
  /** How many of `ids[begin ... end)`, from the first on, one `ensure` can take. */
  fit(layer: number, ids: Int32Array, begin: number, end: number): number;
  /** Releases the items that the last `ensure` of the layer held. */
  release(layer: number): void;
  /**
   * Starts to load items that will be needed, as far as there are slots that no `ensure` holds. It reports no failure: an
   * item that could not be loaded is read again when it is needed, and fails then. The signal drops what no `ensure` has
   * asked for by then.
   * @throws {ArgumentError} when an id, the count or the layer is out of range
   * @throws {ReleasedError} when the cache is closed
   */
  prefetch(layer: number, ids: Int32Array, count?: number, options?: { readonly signal?: AbortSignal }): void;
  /** Drops what is being prefetched, for one layer or all, but for items that an `ensure` waits for. */
  cancelPrefetch(layer?: number): void;
  /** The fastest tier that has an item now. */
  tierOf(layer: number, id: number): 'hot' | 'warm' | 'cold';
  statistics(): NeuronCacheStatistics;
  /** Checks the bookkeeping. @throws when it contradicts itself, which is a bug */
  checkIntegrity(): void;
  /** Ends what is under way and frees the memory of the tiers. The sources stay open. */
  close(): Promise<void>;
}
