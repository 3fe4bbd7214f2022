/** Sources, slot memories and items for tests of the neuron cache. */
import type { ByteSource } from '@winnow/bytes';
import { createRng, decode, encode, IoError, sizeOf, type DType, type Rng } from '@winnow/tensor';
import type { NeuronPiece } from '../src/cache/item-layout.js';
import type { SlotMemory } from '../src/cache/slot-loads.js';

export interface TestSource extends ByteSource {
  readonly bytes: Uint8Array;
  /** Offsets and sizes of the reads that started. */
  readonly reads: (readonly [number, number])[];
  /** Awaited before each read ends; may throw. */
  before: ((byteOffset: number, sizeBytes: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
  numRunning: number;
  peakRunning: number;
}

export function testSource(bytes: Uint8Array, name = 'weights'): TestSource {
  const source: TestSource = {
    name,
    sizeBytes: bytes.length,
    bytes,
    reads: [],
    before: undefined,
    numRunning: 0,
    peakRunning: 0,
    async read(byteOffset, target, options) {
      source.reads.push([byteOffset, target.length]);
      source.numRunning++;
      source.peakRunning = Math.max(source.peakRunning, source.numRunning);
      try {
        await source.before?.(byteOffset, target.length, options?.signal);
        options?.signal?.throwIfAborted();
        if (byteOffset + target.length > bytes.length) {
          throw new IoError({ source: name, byteOffset, message: 'unexpected end; it was truncated while open' });
        }
        target.set(bytes.subarray(byteOffset, byteOffset + target.length));
      } finally {
        source.numRunning--;
      }
    },
    async close() {},
  };
  return source;
}

/** The items of a matrix with normally distributed values. */
export function randomItems(dtype: DType, valuesPerItem: number, numItems: number, rng: Rng): Uint8Array {
  const values = Float32Array.from({ length: valuesPerItem * numItems }, () => rng.nextGaussian());
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  return bytes;
}

/** The bytes of an item after a stay in a tier of that format. */
export function through(format: DType, dtype: DType, item: Uint8Array, numValues: number): Uint8Array {
  const values = new Float32Array(numValues);
  decode(dtype, item, values);
  const copy = new Uint8Array(sizeOf(format, numValues));
  encode(format, values, copy);
  decode(format, copy, values);
  const out = new Uint8Array(item.length);
  encode(dtype, values, out);
  return out;
}

export interface TestMemory extends SlotMemory {
  readonly bytes: Uint8Array;
  /** Awaited before each write ends; may throw. Only without a view. */
  before: (() => Promise<void>) | undefined;
}

export function testMemory(sizeBytes: number, hasView: boolean): TestMemory {
  const memory: TestMemory = {
    bytes: new Uint8Array(sizeBytes).fill(0xaa),
    before: undefined,
    view: () => (hasView ? memory.bytes : undefined),
    async write(byteOffset, bytes) {
      // by contract the writer may read the bytes until its promise settles
      await memory.before?.();
      memory.bytes.set(bytes, byteOffset);
    },
  };
  return memory;
}

export interface PieceShape {
  readonly dtype: DType;
  readonly valuesPerItem: number;
}

/** Pieces in a source each, or interleaved per item in one source. */
export function testPieces(
  shapes: readonly PieceShape[],
  numItems: number,
  isBundle: boolean,
  seed = 1,
): {
  readonly pieces: NeuronPiece[];
  readonly source: TestSource;
  readonly item: (piece: number, item: number) => Uint8Array;
} {
  const rng = createRng(seed);
  const matrices = shapes.map(({ dtype, valuesPerItem }) => randomItems(dtype, valuesPerItem, numItems, rng));
  const sizes = shapes.map(({ dtype, valuesPerItem }) => sizeOf(dtype, valuesPerItem));
  const stride = sizes.reduce((sum, size) => sum + size, 0);
  const headBytes = 13;
  const source = testSource(new Uint8Array(headBytes + stride * numItems + 5));
  const starts = sizes.map((_, index) => sizes.slice(0, index).reduce((sum, size) => sum + size, 0));
  const at = (piece: number): { byteOffset: number; strideBytes: number } =>
    isBundle
      ? { byteOffset: headBytes + starts[piece], strideBytes: stride }
      : { byteOffset: headBytes + starts[piece] * numItems, strideBytes: sizes[piece] };
  const item = (piece: number, index: number): Uint8Array =>
    matrices[piece].subarray(index * sizes[piece], (index + 1) * sizes[piece]);
  for (const piece of shapes.keys()) {
    const { byteOffset, strideBytes } = at(piece);
    for (let index = 0; index < numItems; index++) {
      source.bytes.set(item(piece, index), byteOffset + index * strideBytes);
    }
  }
  const pieces = shapes.map((shape, index): NeuronPiece => ({
    name: `piece ${index}`,
    ...shape,
    source,
    ...at(index),
  }));
  return { pieces, source, item };
}
