import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { memorySink, memorySource, type ByteSink } from '@winnow/bytes';
import { fileSink } from '@winnow/bytes/node';
import { ArgumentError, IoError, ReleasedError, ShapeError, tensorBytes, type DType } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { anyMetadata, anyTensors, filler, ggufBytes, plain, sampleModel } from '../test/support.js';
import { openGguf, writeGguf, type GgufTypedValue, type WriteGgufOptions } from './index.js';
import { openGgufFile } from './index.node.js';

async function* pieces(...sizes: number[]): AsyncIterable<Uint8Array> {
  for (const size of sizes) yield filler(size, 0);
}

const tensor = { name: 'x', dtype: 'f32' as DType, shape: [2], data: new Uint8Array(8) };

const refused: readonly [string, Partial<WriteGgufOptions>, typeof ArgumentError | typeof ShapeError, RegExp][] = [
  ['an empty key', { metadata: { '': 'x' } }, ArgumentError, /expected a name/],
  [
    'a key twice',
    {
      metadata: [
        ['a', 'x'],
        ['a', 'y'],
      ],
    },
    ArgumentError,
    /expected each key once, got a/,
  ],
  ['a lone surrogate', { metadata: { a: '\ud800' } }, ArgumentError, /well-formed text/],
  ['a lone surrogate in a list', { metadata: { a: ['\udc00'] } }, ArgumentError, /well-formed text/],
  ['a value out of range', { metadata: { a: { type: 'uint8', value: 256 } } }, ArgumentError, /type uint8, got 256/],
  ['a negative count', { metadata: { a: { type: 'uint64', value: -1 } } }, ArgumentError, /type uint64, got -1/],
  ['a fraction', { metadata: { a: { type: 'int32', value: 0.5 } } }, ArgumentError, /type int32, got 0.5/],
  ['a bigint as a float', { metadata: { a: { type: 'float32', value: 1n as never } } }, ArgumentError, /type float32/],
  ['a number as a boolean', { metadata: { a: { type: 'bool', value: 1 as never } } }, ArgumentError, /type bool/],
  [
    'a number out of range in a list',
    { metadata: { a: { type: 'array', elementType: 'int8', value: [1, 128] } } },
    ArgumentError,
    /type int8, got 128/,
  ],
  ['an unknown type', { metadata: { a: { type: 'int128' as never, value: 1 } } }, ArgumentError, /got int128/],
  ['an alignment of 24', { alignment: 24 }, ArgumentError, /a power of two, got 24/],
  ['an alignment of 0', { alignment: 0 }, ArgumentError, /a power of two/],
  [
    'two alignments',
    { alignment: 64, metadata: { 'general.alignment': { type: 'uint32', value: 32 } } },
    ArgumentError,
    /the same as/,
  ],
  [
    'an alignment of another type',
    { metadata: { 'general.alignment': { type: 'uint64', value: 32 } } },
    ArgumentError,
    /type uint32/,
  ],
  ['another version', { version: 4 as never }, ArgumentError, /2 or 3, got 4/],
  ['an empty tensor name', { tensors: [{ ...tensor, name: '' }] }, ArgumentError, /1 to 63 bytes/],
  [
    'a long tensor name',
    { tensors: [{ ...tensor, name: 'ü'.repeat(32) }] },
    ArgumentError,
    /1 to 63 bytes, got .* \(64\)/,
  ],
  ['a tensor twice', { tensors: [tensor, tensor] }, ArgumentError, /each name once, got x/],
  ['an unknown dtype', { tensors: [{ ...tensor, dtype: 'f8' as DType }] }, ArgumentError, /got f8/],
  ['five dimensions', { tensors: [{ ...tensor, shape: [1, 1, 1, 1, 2] }] }, ShapeError, /at most 4, got 5/],
  ['a broken block', { tensors: [{ ...tensor, dtype: 'q8_0', shape: [33] }] }, ShapeError, /multiple of 32/],
  ['a negative dimension', { tensors: [{ ...tensor, shape: [-1] }] }, ShapeError, /multiple of 1, got -1/],
  [
    'too little data',
    { tensors: [{ ...tensor, data: new Uint8Array(7) }] },
    ArgumentError,
    /data of x: expected 8 bytes, got 7/,
  ],
  [
    'too much data',
    { tensors: [{ ...tensor, data: pieces(4, 5, 100) }] },
    ArgumentError,
    /data of x: expected 8 bytes, got 9 or more/,
  ],
];

describe('writeGguf', () => {
  it('round trip: openGguf reads any metadata and tensors', async () => {
    await fc.assert(
      fc.asyncProperty(
        anyMetadata,
        anyTensors,
        fc.constantFrom(undefined, 1, 8, 32, 256),
        fc.constantFrom(2 as const, 3 as const),
        async (metadata, tensors, alignment, version) => {
          const bytes = await ggufBytes({
            metadata,
            tensors,
            version,
            ...(alignment === undefined ? {} : { alignment }),
          });
          const file = await openGguf(memorySource(bytes));
          expect(file.version).toBe(version);
          expect(file.alignment).toBe(alignment ?? 32);
          const stored = [...file.metadata].filter(([key]) => key !== 'general.alignment');
          expect(stored.map(([key, value]) => [key, plain(value)])).toEqual(metadata);
          expect([...file.tensors.keys()]).toEqual(tensors.map(({ name }) => name));
          for (const [index, { name, dtype, shape }] of tensors.entries()) {
            const tensor = file.tensors.get(name)!;
            expect([tensor.dtype, tensor.shape]).toEqual([dtype, shape]);
            expect(tensor.byteOffset % file.alignment).toBe(0);
            const data = new Uint8Array(tensor.sizeBytes);
            await tensor.read(data);
            expect(data).toEqual(filler(tensorBytes(dtype, shape), index));
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it('copies a model: rewriting the metadata and tensors of a file gives the same bytes', async () => {
    const model = sampleModel();
    const bytes = await ggufBytes(model);
    const file = await openGguf(memorySource(bytes));
    const copy = await ggufBytes({
      metadata: file.metadata,
      tensors: [...file.tensors.values()].map((tensor) => ({
        name: tensor.name,
        dtype: tensor.dtype,
        shape: tensor.shape,
        data: async () => {
          const data = new Uint8Array(tensor.sizeBytes);
          await tensor.read(data);
          return data;
        },
      })),
    });
    expect(copy).toEqual(bytes);
  });
});

describe('contents of written files', () => {
  it('include texts, booleans and lists of texts', async () => {
    const file = await openGguf(memorySource(await ggufBytes({ metadata: { a: 'x', b: false, c: ['y', ''] } })));
    expect(file.metadata.getString('a')).toBe('x');
    expect(file.metadata.getBoolean('b')).toBe(false);
    expect(file.metadata.getStrings('c')).toEqual(['y', '']);
  });

  it('include an alignment other than 32, requested or stored', async () => {
    const alignment = { 'general.alignment': { type: 'uint32', value: 64 } } as const;
    const model = sampleModel();
    const asked = await openGguf(memorySource(await ggufBytes({ ...model, alignment: 64 })));
    const stored = await openGguf(memorySource(await ggufBytes({ ...model, metadata: alignment })));
    for (const file of [asked, stored]) {
      expect(file.metadata.getInteger('general.alignment')).toBe(64);
      expect(file.dataOffset % 64).toBe(0);
      expect([...file.tensors.values()].map(({ byteOffset }) => byteOffset - file.dataOffset)).toEqual([0, 64, 192]);
    }
  });
});

describe('large files', () => {
  it('are written with one piece of data in memory', async () => {
    let numWaiting = 0;
    let most = 0;
    const sink: ByteSink = {
      name: 'counted',
      sizeBytes: 0,
      close: async () => undefined,
      abort: async () => undefined,
      async write() {
        numWaiting = 0;
      },
    };
    const data = async function* (): AsyncIterable<Uint8Array> {
      for (let index = 0; index < 100; index++) {
        most = Math.max(most, ++numWaiting);
        yield new Uint8Array(400);
      }
    };
    await writeGguf(sink, { metadata: {}, tensors: [{ name: 'x', dtype: 'f32', shape: [100, 100], data: data() }] });
    expect(most).toBe(1);
  });

  it('have headers of any size: thousands of pairs, tensors and elements of every width', async () => {
    for (const extra of [0, 1, 2, 3, 4, 5, 6, 7]) {
      const metadata: Record<string, GgufTypedValue> = { pad: { type: 'string', value: 'x'.repeat(extra) } };
      for (let index = 0; index < 1500; index++) metadata[`k${index}`] = { type: 'uint32', value: index };
      for (const elementType of ['uint8', 'int16', 'float32', 'float64'] as const) {
        const value = Array.from({ length: 1500 }, (_, index) => index & 127);
        metadata[elementType] = { type: 'array', elementType, value };
      }
      const tensors = Array.from({ length: 1500 }, (_, index) => ({
        name: `t${index}`,
        dtype: 'i8' as const,
        shape: [index % 5],
        data: filler(index % 5, index),
      }));
      const file = await openGguf(memorySource(await ggufBytes({ metadata, tensors })));
      expect([...file.metadata].map(([key, value]) => [key, plain(value)])).toEqual(Object.entries(metadata));
      expect([...file.tensors.values()].map(({ name, shape }) => [name, shape])).toEqual(
        tensors.map(({ name, shape }) => [name, shape]),
      );
    }
  });

  it('are described by the size and the offset of the data', async () => {
    const sink = memorySink();
    const result = await writeGguf(sink, sampleModel());
    const file = await openGguf(memorySource(sink.toBytes()));
    expect(result).toEqual({ sizeBytes: sink.sizeBytes, dataOffset: file.dataOffset });
  });
});

describe('errors of writeGguf', () => {
  it.each(refused)('%s aborts the sink', async (_, options, family, message) => {
    const sink = memorySink();
    const writing = writeGguf(sink, { metadata: {}, tensors: [], ...options });
    await expect(writing).rejects.toThrow(family);
    await expect(writing).rejects.toThrow(message);
    expect(() => sink.toBytes()).toThrow(ReleasedError);
  });

  it('leave no file when reading the data fails', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'winnow-gguf-'));
    const path = join(folder, 'model.gguf');
    const data = (): Promise<Uint8Array> => Promise.reject(new IoError({ source: 'elsewhere', message: 'gone' }));
    const broken = { metadata: {}, tensors: [{ ...tensor, data }] };
    await expect(writeGguf(await fileSink(path), broken)).rejects.toThrow('elsewhere: gone');
    expect(await readdir(folder)).toEqual([]);
    await writeGguf(await fileSink(path), sampleModel());
    expect(await readdir(folder)).toEqual(['model.gguf']);
    const file = await openGgufFile(path);
    expect(file.tensors.size).toBe(3);
    await file.close();
    await rm(folder, { recursive: true });
  });

  it('include an aborted signal', async () => {
    const sink = memorySink();
    const signal = AbortSignal.abort(new Error('stop'));
    await expect(writeGguf(sink, { metadata: {}, tensors: [tensor], signal })).rejects.toThrow('stop');
    expect(() => sink.toBytes()).toThrow(ReleasedError);
  });
});
