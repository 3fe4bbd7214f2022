/**
 * The neuron cache against the plainest of models: a slot that `ensure` names holds the bytes of the source, or those that
 * a stay in a narrower tier leaves, and keeps them until the next `ensure` or `release`.
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
  /** Of reads and of writes. */
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
  /** What the last `ensure` held, and where. */
  held: Map<number, number>;
}

export interface CacheModel {
  readonly cache: NeuronCache;
  readonly layers: readonly ModelLayer[];
  readonly counts: { failed: number; aborted: number; refused: number };
  runCommand(): Promise<void>;
}

export async function createCacheModel(options: ModelOptions, seed: number): Promise<CacheModel> {
  const { numItems, slots, shapes, hasView = true, isBundle = false, failureRate = 0 } = options;
  const rng = createRng(seed);
  const counts = { failed: 0, aborted: 0, refused: 0 };
  let isOpen = false;
  const layers = Array.from({ length: numLayers }, (_, layer): ModelLayer => {
    const { pieces, source, item } = testPieces(shapes, numItems, isBundle, seed * 10 + layer);
    const ids = shuffled(numItems, rng);
    const memories = pieces.map((_piece, piece) => testMemory(slots * item(piece, 0).length, hasView));
    const stumble = async (): Promise<void> => {
      await ticks(rng.nextInt(12));
      if (isOpen && rng.nextFloat() < failureRate) throw new IoError({ source: 'weights', message: 'EIO' });
    };
    source.before = stumble;
    for (const memory of memories) memory.before = stumble;
    return { source, memories, item, hot: ids.slice(0, options.numHot), held: new Map() };
  });
  const cacheLayers = layers.map(({ hot }, layer): NeuronCacheOptions['layers'][number] => {
    const { pieces } = testPieces(shapes, numItems, isBundle, seed * 10 + layer);
    const isHot = new Set(hot);
    return {
      numItems,
      pieces: pieces.map((piece) => ({ ...piece, source: layers[layer].source })),
      slots,
      hot,
      warmSlots: options.warmSlots,
      warm: shuffled(numItems, rng)
        .filter((id) => !isHot.has(id))
        .slice(0, options.numWarm),
      frequencies: Float32Array.from({ length: numItems }, () => rng.nextFloat() * 0.3),
    };
  });
  const { warmEncoding = 'q8_0', coldEncoding = 'file', readBytes = 600, maxGapBytes = 70, maxReads = 3 } = options;
  const cache = await createNeuronCache({
    layers: cacheLayers,
    slotMemory: (layer, piece) => layers[layer].memories[piece],
    warmEncoding,
    coldEncoding,
    readBytes,
    maxGapBytes,
    maxReads,
  });
  isOpen = true;
  /** All bytes that a piece of an item may have in a slot. */
  const expected = (layer: number, piece: number, item: number): Uint8Array[] => {
    const { dtype, valuesPerItem } = shapes[piece];
    const bytes = layers[layer].item(piece, item);
    const isWide = ['f32', 'f16', 'bf16'].includes(dtype) && valuesPerItem % 32 === 0;
    const found = [bytes];
    if (isWide && warmEncoding === 'q8_0' && options.warmSlots > 0)
      found.push(through('q8_0', dtype, bytes, valuesPerItem));
    const isWiderThan4Bit = valuesPerItem % 32 === 0 && dtype !== 'q4_0';
    if (isWiderThan4Bit && coldEncoding === 'q4_0') found.push(through('q4_0', dtype, bytes, valuesPerItem));
    return found;
  };
  const checkSlot = (layer: number, item: number, slot: number): void => {
    for (const [piece, { bytes }] of layers[layer].memories.entries()) {
      const size = layers[layer].item(piece, 0).length;
      const actual = Buffer.from(bytes.buffer, slot * size, size);
      if (expected(layer, piece, item).some((each) => actual.equals(each))) continue;
      expect.fail(`layer ${layer}, item ${item}, piece ${piece}: slot ${slot} has other bytes`);
    }
  };
  const checkHeld = (): void => {
    for (const [layer, { held }] of layers.entries()) for (const [item, slot] of held) checkSlot(layer, item, slot);
  };
  const randomIds = (most: number): Int32Array => {
    const count = rng.nextInt(most + 1);
    const start = rng.nextInt(numItems);
    const isNear = rng.nextInt(2) === 0;
    return Int32Array.from({ length: count }, (_, at) =>
      isNear ? (start + at * 2) % numItems : rng.nextInt(numItems),
    );
  };
  const ensure = async (layer: number, ids: Int32Array, signal?: AbortSignal): Promise<void> => {
    const state = layers[layer];
    const rows = new Int32Array(ids.length + 1).fill(-7);
    const fitting = cache.fit(layer, ids, 0, ids.length);
    const before = state.held;
    const running = cache.ensure(layer, ids, ids.length, rows, signal);
    if (fitting === ids.length) state.held = new Map();
    try {
      await running;
    } catch (error) {
      if (error instanceof NeuronLoadError) {
        expect(error.layer).toBe(layer);
        for (const item of error.items) expect(ids).toContain(item);
        expect(error.items.length).toBeGreaterThan(0);
        counts.failed++;
      } else if (signal?.aborted === true) {
        expect(error).toBe(signal.reason);
        counts.aborted++;
        if (fitting === ids.length) state.held = new Map();
      } else {
        expect(fitting).toBeLessThan(ids.length);
        expect(error).toMatchObject({ code: 'capacity', available: slots - options.numHot });
        expect(state.held).toBe(before);
        counts.refused++;
      }
      return;
    }
    expect(fitting).toBe(ids.length);
    expect(rows[ids.length]).toBe(-7);
    const held = new Map<number, number>();
    for (const [at, item] of ids.entries()) held.set(item, rows[at]);
    for (const [at, item] of ids.entries()) expect(held.get(item)).toBe(rows[at]);
    expect(new Set(held.values()).size).toBe(held.size);
    for (const item of held.keys()) expect(cache.tierOf(layer, item)).toBe('hot');
    state.held = held;
  };
  return {
    cache,
    layers,
    counts,
    async runCommand() {
      const layer = rng.nextInt(numLayers);
      const other = 1 - layer;
      switch (rng.nextInt(10)) {
        case 0:
          cache.release(layer);
          layers[layer].held = new Map();
          break;
        case 1:
          cache.cancelPrefetch(rng.nextInt(2) === 0 ? layer : undefined);
          break;
        case 2: {
          const stop = new AbortController();
          cache.prefetch(layer, randomIds(slots), undefined, { signal: stop.signal });
          await ticks(rng.nextInt(30));
          cache.checkIntegrity();
          stop.abort();
          break;
        }
        case 3:
        case 4:
          cache.prefetch(layer, randomIds(slots));
          await ticks(rng.nextInt(20));
          break;
        case 5: {
          const stop = new AbortController();
          const running = ensure(layer, randomIds(slots - options.numHot), stop.signal);
          await ticks(rng.nextInt(40));
          cache.checkIntegrity();
          stop.abort(new Error('enough'));
          await running;
          break;
        }
        case 6: {
          const both = [ensure(layer, randomIds(slots)), ensure(other, randomIds(slots))];
          await ticks(rng.nextInt(20));
          cache.checkIntegrity();
          cache.prefetch(layer, randomIds(slots));
          await Promise.all(both);
          break;
        }
        default:
          await ensure(layer, randomIds(rng.nextInt(8) === 0 ? slots * 2 : slots - options.numHot));
      }
      cache.checkIntegrity();
      checkHeld();
      for (const [index, { hot }] of layers.entries()) {
        for (const item of hot) expect(cache.tierOf(index, item)).toBe('hot');
      }
    },
  };
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
