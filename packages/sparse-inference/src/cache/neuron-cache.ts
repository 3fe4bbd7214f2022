/** The neuron cache: three tiers for the items of many layers, filled by one queue of reads. */
import { ArgumentError, CapacityError, checkOptions, type OptionNames, ReleasedError } from '@winnow/tensor';
import { bulkRead, type BulkReadOptions } from './bulk-read.js';
import { ColdCopy } from './copy-tiers.js';
import {
  itemLayout,
  type ItemLayout,
  type PieceLayout,
  type NeuronLayer,
  type WarmEncoding,
  type ColdEncoding,
} from './item-layout.js';
import { sumOf, type NeuronLayerStatistics } from './layer/counters.js';
import { LayerTiers } from './layer/tiers.js';
import { ReadQueue } from './read-queue.js';
import {
  defaultMaxGapBytes,
  defaultMaxReads,
  defaultReadBytes,
  neuronReadNames,
  type NeuronReadOptions,
} from './staging.js';
import type { SlotMemory } from './slot-loads.js';

export interface NeuronCacheOptions {
  readonly layers: readonly NeuronLayer[];
  readonly slotMemory: (layer: number, piece: number) => SlotMemory;
  /** Default: those of `NeuronReadOptions`. */
  readonly reads?: NeuronReadOptions;
  /** Default `q8_0`. With `same` and `coldEncoding: 'file'`, slots hold exactly the bytes of the source. */
  readonly warmEncoding?: WarmEncoding;
  /** Default `file`. With `q4_0` the warm tier is fixed to the items of its list. */
  readonly coldEncoding?: ColdEncoding;
  /** Called for each piece read from a source; `false` marks it as damaged. `bytes` is valid during the call. */
  readonly verify?: (layer: number, piece: number, item: number, bytes: Uint8Array) => boolean;
  /** Name of an item in messages. Default `neuron`. */
  readonly itemName?: string;
  /** Aborts the loading at creation. */
  readonly signal?: AbortSignal;
  /** Progress of the loading at creation. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
}

const neuronCacheNames: OptionNames<NeuronCacheOptions> = {
  reads: neuronReadNames,
  layers: true,
  slotMemory: true,
  warmEncoding: true,
  coldEncoding: true,
  verify: true,
  itemName: true,
  signal: true,
  onProgress: true,
};

export interface NeuronCacheStatistics extends NeuronLayerStatistics {
  readonly layers: readonly NeuronLayerStatistics[];
  /** Reads of the sources, and their bytes: in total, and of requested items (the rest lies in gaps). */
  readonly numReads: number;
  readonly bytesRead: number;
  readonly usefulBytesRead: number;
  readonly failedReads: number;
  /** Memory in bytes: slots, warm tier, 4-bit copy, and the peak of read buffers. */
  readonly bytes: { readonly hot: number; readonly warm: number; readonly cold: number; readonly staging: number };
}

export interface NeuronCache {
  /**
   * Makes `ids[0 ... count)` resident and writes their slots to `rowsOut[0 ... count)`. The items keep their slots
   * until the next `ensure` or `release` of this layer. One call per layer at a time; ids may repeat, in any order.
   * After a failure the cache remains usable and holds none of the ids; items that arrived stay.
   * @throws {CapacityError} when the ids need more slots than there are; then nothing changes (see `fit`)
   * @throws {NeuronLoadError} when items cannot be read or are damaged
   * @throws {ArgumentError} when an id, a count or the layer is out of range, or the layer has a pending `ensure`
   * @throws {ReleasedError} when the cache is closed, also during the call
   * @throws the reason of `signal` when it fires
   */
  ensure(layer: number, ids: Int32Array, count: number, rowsOut: Int32Array, signal?: AbortSignal): Promise<void>;
  /** The number of leading ids of `ids[begin ... end)` that one `ensure` can take. */
  fit(layer: number, ids: Int32Array, begin: number, end: number): number;
  /** Releases the items that the last `ensure` of the layer held. */
  release(layer: number): void;
  /**
   * Starts to load items that will be needed, into slots that no `ensure` holds. It reports no failures: an item that
   * could not be loaded is read again when it is needed. The signal drops items that no `ensure` has requested by then.
   * @throws {ArgumentError} when an id, the count or the layer is out of range
   * @throws {ReleasedError} when the cache is closed
   */
  prefetch(layer: number, ids: Int32Array, count?: number, options?: { readonly signal?: AbortSignal }): void;
  /** Drops pending prefetches of one layer or all, except items that an `ensure` waits for. */
  cancelPrefetch(layer?: number): void;
  /** The fastest tier that currently has an item. */
  tierOf(layer: number, id: number): 'hot' | 'warm' | 'cold';
  statistics(): NeuronCacheStatistics;
  /** Checks the bookkeeping. @throws when it is inconsistent, which is a bug */
  checkIntegrity(): void;
  /** Ends pending operations and frees the memory of the tiers. The sources stay open. */
  close(): Promise<void>;
}

const damaged = 'is damaged: its bytes differ from the expected ones';

/**
 * Creates the tiers and loads hot items, warm items, and the 4-bit copy if there is one.
 * @throws {CapacityError} when a layer has fewer slots than hot items and one more, fewer warm places than warm items,
 *   or there is no memory for the copies
 * @throws {ArgumentError} for invalid options
 * @throws {ShapeError} when an item is not whole blocks of its dtype
 * @throws {FormatError} when a source is too short for the items
 * @throws {NeuronLoadError} when items cannot be read or are damaged
 */
export async function createNeuronCache(options: NeuronCacheOptions): Promise<NeuronCache> {
  checkOptions(options, neuronCacheNames);
  const { layers, slotMemory, warmEncoding = 'q8_0', coldEncoding = 'file', itemName = 'neuron', signal } = options;
  const { readBytes = defaultReadBytes, maxGapBytes = defaultMaxGapBytes } = options.reads ?? {};
  countOf('reads.readBytes', readBytes, 1);
  countOf('reads.maxGapBytes', maxGapBytes, 0);
  const starts = layers.map((layer, index) => startOf(layer, index, itemName));
  const layouts = layers.map((layer, index) => itemLayout(index, layer, warmEncoding, coldEncoding));
  const spans = layouts.flatMap(({ groups }) => groups.map(({ spanBytes }) => spanBytes));
  const bufferBytes = Math.max(readBytes, ...spans);
  const maxReads = countOf('reads.maxReads', options.reads?.maxReads ?? defaultMaxReads(bufferBytes), 1);
  const queue = new ReadQueue(maxReads, bufferBytes);
  const shared = { queue, reads: { readBytes, maxGapBytes }, itemName };
  const checkOf =
    (layer: number) =>
    (piece: number, item: number, bytes: Uint8Array): boolean =>
      options.verify?.(layer, piece, item, bytes) !== false;
  const tiers = layers.map((layer, index) => {
    const layout = layouts[index];
    const memories = layout.pieces.map((piece) => slotMemory(index, piece.index));
    const verify = options.verify === undefined ? undefined : checkOf(index);
    return new LayerTiers({ ...shared, index, layer, layout, memories, verify });
  });
  reportProgress(queue, layouts, starts, coldEncoding === 'q4_0', options.onProgress);
  try {
    for (const [index, layer] of tiers.entries()) {
      const { hot, warm, cold } = starts[index];
      await layer.pin(hot, signal);
      const bulk = { ...shared, layer: index, layout: layer.layout, signal };
      const isIntact = checkOf(index);
      await fillWarm(layer, warm, bulk, isIntact, coldEncoding === 'q4_0');
      if (coldEncoding !== 'q4_0') continue;
      const copy = new ColdCopy(cold, layer.numItems, layer.layout);
      await bulkRead(cold, {
        ...bulk,
        accept: (item, piece, bytes) => {
          if (!isIntact(piece.index, item, bytes)) return damaged;
          return copy.encode(item, piece.index, bytes) ? undefined : 'has non-finite values';
        },
      });
      layer.cold = copy;
    }
  } catch (error) {
    await Promise.all(tiers.map((layer) => layer.close()));
    await queue.idle();
    throw error;
  }
  queue.onRead = undefined;
  return new TieredNeuronCache(layers, tiers, queue);
}

type BulkContext = Omit<BulkReadOptions, 'accept'>;

/** Fills the warm tier with the items of its list. Those that cannot be encoded stay in the cold tier. */
async function fillWarm(
  layer: LayerTiers,
  items: Int32Array,
  bulk: BulkContext,
  isIntact: (piece: number, item: number, bytes: Uint8Array) => boolean,
  isFixed: boolean,
): Promise<void> {
  layer.warm.reserve(items);
  const accept = (item: number, { index }: PieceLayout, bytes: Uint8Array): string | undefined => {
    if (!isIntact(index, item, bytes)) return damaged;
    const place = layer.warm.reservedPlace(item);
    if (place < 0 || layer.warm.encode(place, index, bytes)) return undefined;
    if (isFixed) return 'has non-finite values';
    layer.warm.abandon(place);
    return undefined;
  };
  await bulkRead(items, { ...bulk, accept });
  layer.warm.finishReserved(items);
  if (isFixed) layer.warm.fix();
}

function reportProgress(
  queue: ReadQueue,
  layouts: readonly ItemLayout[],
  starts: readonly LayerStart[],
  isCopied: boolean,
  onProgress: NeuronCacheOptions['onProgress'],
): void {
  if (onProgress === undefined) return;
  let totalBytes = 0;
  for (const [index, { hot, warm, cold }] of starts.entries()) {
    totalBytes += (hot.length + warm.length + (isCopied ? cold.length : 0)) * layouts[index].itemBytes;
  }
  // gaps are read as well: the progress must not exceed the total
  queue.onRead = () => onProgress(Math.min(queue.statistics().bytesRead, totalBytes), totalBytes);
}

class TieredNeuronCache implements NeuronCache {
  readonly #layers: readonly NeuronLayer[];
  readonly #tiers: readonly LayerTiers[];
  readonly #queue: ReadQueue;
  #closing: Promise<void> | undefined;

  constructor(layers: readonly NeuronLayer[], tiers: readonly LayerTiers[], queue: ReadQueue) {
    this.#layers = layers;
    this.#tiers = tiers;
    this.#queue = queue;
  }

  // not async: the promise of a layer is passed on unchanged
  ensure(
    layer: number,
    ids: Int32Array,
    count: number,
    rowsOut: Int32Array,
    signal?: AbortSignal,
  ): ReturnType<NeuronCache['ensure']> {
    try {
      return this.#at(layer).ensure(ids, count, rowsOut, signal);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  fit(layer: number, ids: Int32Array, begin: number, end: number): number {
    return this.#at(layer).fit(ids, begin, end);
  }

  release(layer: number): void {
    this.#at(layer).release();
  }

  prefetch(layer: number, ids: Int32Array, count: number = ids.length, options: { signal?: AbortSignal } = {}): void {
    this.#at(layer).prefetch(ids, count, options.signal);
  }

  cancelPrefetch(layer?: number): void {
    if (layer === undefined) for (const each of this.#tiers) each.cancelPrefetch();
    else this.#at(layer).cancelPrefetch();
  }

  tierOf(layer: number, id: number): ReturnType<NeuronCache['tierOf']> {
    return this.#at(layer).tierOf(id);
  }

  statistics(): NeuronCacheStatistics {
    const ofLayers = this.#tiers.map((layer) => layer.statistics());
    const { numReads, bytesRead, failedReads, bufferBytes } = this.#queue.statistics();
    const total = (bytesOf: (layer: LayerTiers, index: number) => number): number =>
      this.#tiers.reduce((sum, layer, index) => sum + bytesOf(layer, index), 0);
    return {
      ...sumOf(ofLayers),
      layers: ofLayers,
      numReads,
      bytesRead,
      failedReads,
      usefulBytesRead: total(({ usefulBytes }) => usefulBytes),
      bytes: {
        hot: total(({ layout }, index) => this.#layers[index].slots * layout.itemBytes),
        warm: total(({ warm }) => warm.sizeBytes),
        cold: total(({ cold }) => cold?.sizeBytes ?? 0),
        staging: bufferBytes,
      },
    };
  }

  checkIntegrity(): void {
    for (const layer of this.#tiers) layer.checkIntegrity();
  }

  async close(): Promise<void> {
    this.#closing ??= Promise.all(this.#tiers.map((layer) => layer.close())).then(async () => {
      await this.#queue.idle();
      this.#queue.drop();
    });
    await this.#closing;
  }

  #at(layer: number): LayerTiers {
    if (this.#closing !== undefined) throw new ReleasedError('neuron cache');
    const found = this.#tiers[layer];
    if (found !== undefined) return found;
    throw new ArgumentError({ argument: 'layer', expected: `0 to ${this.#tiers.length - 1}`, actual: String(layer) });
  }
}

/** Initial items of each tier, in ascending order. */
interface LayerStart {
  readonly hot: Int32Array;
  readonly warm: Int32Array;
  /** The other items. */
  readonly cold: Int32Array;
}

function startOf(layer: NeuronLayer, index: number, itemName: string): LayerStart {
  const { numItems, slots, hot = [], warmSlots = 0, warm = [], frequencies } = layer;
  const name = `layers[${index}]`;
  countOf(`${name}.numItems`, numItems, 0);
  countOf(`${name}.slots`, slots, 0);
  countOf(`${name}.warmSlots`, warmSlots, 0);
  if (frequencies !== undefined && frequencies.length !== numItems) {
    throw new ArgumentError({
      argument: `${name}.frequencies`,
      expected: `${numItems}, one per ${itemName}`,
      actual: String(frequencies.length),
    });
  }
  const tierOf = new Uint8Array(numItems);
  const take = (ids: ArrayLike<number>, tier: number, argument: string): Int32Array => {
    const taken = Int32Array.from(ids).sort();
    for (const id of taken) {
      if (id < 0 || id >= numItems || tierOf[id] !== 0) {
        const expected = `distinct ${itemName}s from 0 to ${numItems - 1}, each in one tier`;
        throw new ArgumentError({ argument: `${name}.${argument}`, expected, actual: String(id) });
      }
      tierOf[id] = tier;
    }
    return taken;
  };
  const start = { hot: take(hot, 1, 'hot'), warm: take(warm, 2, 'warm') };
  // items that are not pinned need at least one slot
  const neededSlots = start.hot.length < numItems ? start.hot.length + 1 : numItems;
  if (slots < neededSlots) {
    const hint = `one for each hot ${itemName} and one for the others`;
    const resource = `neuron cache: slots of layer ${index}`;
    throw new CapacityError({ resource, needed: neededSlots, available: slots, unit: 'slots', hint });
  }
  if (start.warm.length > warmSlots) {
    const resource = `neuron cache: warm places of layer ${index}`;
    throw new CapacityError({ resource, needed: start.warm.length, available: warmSlots, unit: 'places' });
  }
  const cold = Int32Array.from(tierOf.keys()).filter((id) => tierOf[id] === 0);
  return { ...start, cold };
}

function countOf(argument: string, value: number, least: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new ArgumentError({ argument, expected: `an integer from ${least} on`, actual: String(value) });
}
