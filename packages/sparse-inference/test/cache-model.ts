/**
 * A naive model of the neuron cache: a slot that `ensure` returns holds the bytes of the source, or those after a stay in a
 * narrower tier, and keeps them until the next `ensure` or `release`.
 */
import { createRng, IoError, type Rng } from '@winnow/tensor';
import { expect } from 'vitest';
import { createNeuronCache, NeuronLoadError, type NeuronCache, type NeuronCacheOptions } from '../src/index.js';
import { testMemory, testPieces, through, type PieceShape, type TestMemory, type TestSource } from './cache-parts.js';

export interface ModelOptions {
  readonly numItems: number;
  readonly slots: number;
  readonly numHot: number;
  readonly warmSlots: number;
  readonly numWarm: number;
  readonly shapes: readonly PieceShape[];
  readonly isBundle?: boolean;
  readonly hasView?: boolean;
  readonly warmEncoding?: 'q8_0' | 'same';
  readonly coldEncoding?: 'file' | 'q4_0';
  /** Failure rate of reads and writes. */
  readonly failureRate?: number;
  readonly readBytes?: number;
  readonly maxGapBytes?: number;
  readonly maxReads?: number;
}

const numLayers = 2;

interface ModelLayer {
  readonly source: TestSource;
  readonly memories: TestMemory[];
  readonly item: (piece: number, item: number) => Uint8Array;
  readonly hot: number[];
  /** The items of the last `ensure` and their slots. */
  held: Map<number, number>;
}

/** Layers with their sources and memories; once `isOpen`, reads and writes take time and fail at random. */
function createLayers(options: ModelOptions, seed: number, rng: Rng, state: { isOpen: boolean }): ModelLayer[] {
  const { numItems, slots, shapes, numHot, hasView = true, isBundle = false, failureRate = 0 } = options;
  return Array.from({ length: numLayers }, (_, layer): ModelLayer => {
    const { pieces, source, item } = testPieces(shapes, numItems, isBundle, seed * 10 + layer);
    const ids = shuffled(numItems, rng);
    const memories = pieces.map((_piece, piece) => testMemory(slots * item(piece, 0).length, hasView));
    const stumble = async (): Promise<void> => {
      await ticks(rng.nextInt(12));
      if (state.isOpen && rng.nextFloat() < failureRate) throw new IoError({ source: 'weights', message: 'EIO' });
    };
    source.before = stumble;
    for (const memory of memories) memory.before = stumble;
    return { source, memories, item, hot: ids.slice(0, numHot), held: new Map() };
  });
}

function cacheLayers(
  { numItems, slots, shapes, warmSlots, numWarm, isBundle = false }: ModelOptions,
  layers: readonly ModelLayer[],
  seed: number,
  rng: Rng,
): NeuronCacheOptions['layers'] {
  return layers.map(({ hot, source }, layer) => {
    const { pieces } = testPieces(shapes, numItems, isBundle, seed * 10 + layer);
    const isHot = new Set(hot);
    const others = shuffled(numItems, rng).filter((id) => !isHot.has(id));
    return {
      numItems,
      pieces: pieces.map((piece) => ({ ...piece, source })),
      slots,
      hot,
      warmSlots,
      warm: others.slice(0, numWarm),
      frequencies: Float32Array.from({ length: numItems }, () => rng.nextFloat() * 0.3),
    };
  });
}

/** The possible bytes of a piece of an item in a slot, in order of likelihood. */
function* possibleBytes(options: ModelOptions, piece: number, bytes: Uint8Array): Generator<Uint8Array> {
  const { shapes, warmSlots, warmEncoding = 'q8_0', coldEncoding = 'file' } = options;
  const { dtype, valuesPerItem } = shapes[piece];
  const isWide = ['f32', 'f16', 'bf16'].includes(dtype) && valuesPerItem % 32 === 0;
  yield bytes;
  if (isWide && warmEncoding === 'q8_0' && warmSlots > 0) yield through('q8_0', dtype, bytes, valuesPerItem);
  const isWiderThan4Bit = valuesPerItem % 32 === 0 && dtype !== 'q4_0';
  if (isWiderThan4Bit && coldEncoding === 'q4_0') yield through('q4_0', dtype, bytes, valuesPerItem);
}

export class CacheModel {
  readonly cache: NeuronCache;
  readonly layers: readonly ModelLayer[];
  readonly counts: { failed: number; aborted: number; refused: number } = { failed: 0, aborted: 0, refused: 0 };
  readonly #options: ModelOptions;
  readonly #rng: Rng;

  private constructor(cache: NeuronCache, layers: readonly ModelLayer[], options: ModelOptions, rng: Rng) {
    this.cache = cache;
    this.layers = layers;
    this.#options = options;
    this.#rng = rng;
  }

  static async create(options: ModelOptions, seed: number): Promise<CacheModel> {
    const { warmEncoding = 'q8_0', coldEncoding = 'file', readBytes = 600, maxGapBytes = 70, maxReads = 3 } = options;
    const rng = createRng(seed);
    const state = { isOpen: false };
    const layers = createLayers(options, seed, rng, state);
    const cache = await createNeuronCache({
      layers: cacheLayers(options, layers, seed, rng),
      slotMemory: (layer, piece) => layers[layer].memories[piece],
      ...{ warmEncoding, coldEncoding, reads: { readBytes, maxGapBytes, maxReads } },
    });
    state.isOpen = true;
    return new CacheModel(cache, layers, options, rng);
  }

  /** Runs a random command, then checks the bookkeeping and the held slots. */
  async runCommand(): Promise<void> {
    const layer = this.#rng.nextInt(numLayers);
    const kind = this.#rng.nextInt(10);
    if (kind === 0) this.#release(layer);
    else if (kind === 1) this.cache.cancelPrefetch(this.#rng.nextInt(2) === 0 ? layer : undefined);
    else if (kind === 2) await this.#abortPrefetch(layer);
    else if (kind <= 4) await this.#prefetch(layer);
    else if (kind === 5) await this.#abortEnsure(layer);
    else if (kind === 6) await this.#ensureBoth(layer);
    else await this.#ensure(layer, this.#randomIds(this.#rng.nextInt(8) === 0 ? this.#slots * 2 : this.#freeSlots));
    this.cache.checkIntegrity();
    for (const [index, { held }] of this.layers.entries()) {
      for (const [item, slot] of held) this.#checkSlot(index, item, slot);
    }
    for (const [index, { hot }] of this.layers.entries()) this.#checkHot(index, hot);
  }

  get #slots(): number {
    return this.#options.slots;
  }

  /** Number of slots not taken by hot items. */
  get #freeSlots(): number {
    return this.#options.slots - this.#options.numHot;
  }

  #release(layer: number): void {
    this.cache.release(layer);
    this.layers[layer].held = new Map();
  }

  async #abortPrefetch(layer: number): Promise<void> {
    const stop = new AbortController();
    this.cache.prefetch(layer, this.#randomIds(this.#slots), undefined, { signal: stop.signal });
    await ticks(this.#rng.nextInt(30));
    this.cache.checkIntegrity();
    stop.abort();
  }

  async #prefetch(layer: number): Promise<void> {
    this.cache.prefetch(layer, this.#randomIds(this.#slots));
    await ticks(this.#rng.nextInt(20));
  }

  async #abortEnsure(layer: number): Promise<void> {
    const stop = new AbortController();
    const running = this.#ensure(layer, this.#randomIds(this.#freeSlots), stop.signal);
    await ticks(this.#rng.nextInt(40));
    this.cache.checkIntegrity();
    stop.abort(new Error('enough'));
    await running;
  }

  async #ensureBoth(layer: number): Promise<void> {
    const both = [layer, 1 - layer].map((each) => this.#ensure(each, this.#randomIds(this.#slots)));
    await ticks(this.#rng.nextInt(20));
    this.cache.checkIntegrity();
    this.cache.prefetch(layer, this.#randomIds(this.#slots));
    await Promise.all(both);
  }

  async #ensure(layer: number, ids: Int32Array, signal?: AbortSignal): Promise<void> {
    const state = this.layers[layer];
    const rows = new Int32Array(ids.length + 1).fill(-7);
    const fits = this.cache.fit(layer, ids, 0, ids.length) === ids.length;
    const before = state.held;
    const running = this.cache.ensure(layer, ids, ids.length, rows, signal);
    if (fits) state.held = new Map();
    try {
      await running;
    } catch (error) {
      this.#checkFailure(error, layer, ids, signal, fits, before);
      return;
    }
    expect(fits).toBe(true);
    expect(rows[ids.length]).toBe(-7);
    const held = new Map<number, number>();
    for (const [at, item] of ids.entries()) held.set(item, rows[at]);
    expect(Int32Array.from(ids, (item) => held.get(item) as number)).toEqual(rows.subarray(0, ids.length));
    expect(new Set(held.values()).size).toBe(held.size);
    this.#checkHot(layer, held.keys());
    state.held = held;
  }

  #checkFailure(
    error: unknown,
    layer: number,
    ids: Int32Array,
    signal: AbortSignal | undefined,
    fits: boolean,
    before: ModelLayer['held'],
  ): void {
    const state = this.layers[layer];
    if (error instanceof NeuronLoadError) {
      expect(error.layer).toBe(layer);
      for (const item of error.items) expect(ids).toContain(item);
      expect(error.items.length).toBeGreaterThan(0);
      this.counts.failed++;
    } else if (signal?.aborted === true) {
      expect(error).toBe(signal.reason);
      this.counts.aborted++;
      if (fits) state.held = new Map();
    } else {
      expect(fits).toBe(false);
      expect(error).toMatchObject({ code: 'capacity', available: this.#freeSlots });
      expect(state.held).toBe(before);
      this.counts.refused++;
    }
  }

  #checkHot(layer: number, items: Iterable<number>): void {
    for (const item of items) {
      const tier = this.cache.tierOf(layer, item);
      if (tier !== 'hot') expect.fail(`layer ${layer}, item ${item}: ${tier}`);
    }
  }

  #checkSlot(layer: number, item: number, slot: number): void {
    for (const [piece, { bytes }] of this.layers[layer].memories.entries()) {
      const source = this.layers[layer].item(piece, item);
      const actual = Buffer.from(bytes.buffer, slot * source.length, source.length);
      let isPossible = false;
      for (const each of possibleBytes(this.#options, piece, source)) if ((isPossible ||= actual.equals(each))) break;
      if (!isPossible) expect.fail(`layer ${layer}, item ${item}, piece ${piece}: slot ${slot} has other bytes`);
    }
  }

  #randomIds(maxCount: number): Int32Array {
    const { numItems } = this.#options;
    const count = this.#rng.nextInt(maxCount + 1);
    const start = this.#rng.nextInt(numItems);
    const isNear = this.#rng.nextInt(2) === 0;
    return Int32Array.from({ length: count }, (_, at) =>
      isNear ? (start + at * 2) % numItems : this.#rng.nextInt(numItems),
    );
  }
}

async function ticks(count: number): Promise<void> {
  for (let tick = 0; tick < count; tick++) await undefined;
}

function shuffled(count: number, rng: Rng): number[] {
  const ids = Array.from({ length: count }, (_, id) => id);
  for (let last = count - 1; last > 0; last--) {
    const at = rng.nextInt(last + 1);
    [ids[last], ids[at]] = [ids[at], ids[last]];
  }
  return ids;
}
