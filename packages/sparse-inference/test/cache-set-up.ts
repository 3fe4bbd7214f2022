/** A neuron cache of one layer over a source whose reads a test can observe, delay and fail. */
import { IoError } from '@winnow/tensor';
import { expect } from 'vitest';
import { createNeuronCache, NeuronLoadError, type NeuronCache, type NeuronCacheOptions } from '../src/index.js';
import type { NeuronLayer } from '../src/cache/item-layout.js';
import { testMemory, testPieces, type TestMemory, type TestSource } from './cache-parts.js';

export const shapes = [
  { dtype: 'f16', valuesPerItem: 32 },
  { dtype: 'f16', valuesPerItem: 32 },
  { dtype: 'f16', valuesPerItem: 32 },
] as const;
/** Bytes of one item of one piece. */
export const itemBytes = 64;
export const numItems = 100;

export interface Setup {
  readonly cache: NeuronCache;
  readonly source: TestSource;
  readonly memories: TestMemory[];
  readonly item: (piece: number, item: number) => Uint8Array;
  readonly slot: (piece: number, slot: number) => Uint8Array;
  readonly ensure: (ids: readonly number[], signal?: AbortSignal) => Promise<Int32Array>;
}

/** A cache of one layer, and the reads since its creation. */
export async function setUp(
  layer: Partial<NeuronLayer> = {},
  options: Partial<NeuronCacheOptions> & { readonly isBundle?: boolean; readonly hasView?: boolean } = {},
): Promise<Setup> {
  const { isBundle = false, hasView = true, ...rest } = options;
  const { pieces, source, item } = testPieces(shapes, numItems, isBundle);
  const slots = layer.slots ?? 20;
  const memories = shapes.map(() => testMemory(slots * itemBytes, hasView));
  const cache = await createNeuronCache({
    layers: [{ numItems, pieces, slots, ...layer }],
    slotMemory: (_, piece) => memories[piece],
    reads: { maxGapBytes: 0 },
    ...rest,
  });
  source.reads.length = 0;
  return {
    cache,
    source,
    memories,
    item,
    slot: (piece, at) => memories[piece].bytes.subarray(at * itemBytes, (at + 1) * itemBytes),
    async ensure(ids, signal) {
      const rows = new Int32Array(ids.length);
      await cache.ensure(0, Int32Array.from(ids), ids.length, rows, signal);
      return rows;
    },
  };
}

export const range = (begin: number, end: number, step = 1): number[] =>
  Array.from({ length: Math.ceil((end - begin) / step) }, (_, at) => begin + at * step);
export const failure = async (promise: Promise<unknown>): Promise<NeuronLoadError> => {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(NeuronLoadError.isInstance(error)).toBe(true);
  expect(error).toBeInstanceOf(IoError);
  return error as NeuronLoadError;
};
export const ticks = async (count: number): Promise<void> => {
  for (let tick = 0; tick < count; tick++) await undefined;
};
/** A promise that the test resolves. */
export const gate = (): { readonly wait: Promise<void>; readonly open: () => void } => {
  let open = (): void => undefined;
  const wait = new Promise<void>((resolve) => (open = resolve));
  return { wait, open };
};
