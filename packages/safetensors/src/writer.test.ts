import { memorySink, memorySource, type ByteSink, type StoredTensor } from '@winnow/bytes';
import { ArgumentError, DTypeError, IoError, ReleasedError, ShapeError, sizeOf, type DType } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openSafetensors, writeSafetensors, type TensorToWrite } from './index.js';

const dtypes: readonly DType[] = ['f32', 'f16', 'bf16', 'f64', 'i8', 'i16', 'i32', 'i64'];

const tensor = fc
  .record({
    name: fc.string({ unit: 'grapheme', maxLength: 20 }).filter((name) => name !== '__metadata__'),
    dtype: fc.constantFrom(...dtypes),
    shape: fc.array(fc.nat(5), { maxLength: 4 }),
    seed: fc.nat(255),
  })
  .map(({ name, dtype, shape, seed }) => {
    const sizeBytes = sizeOf(
      dtype,
      shape.reduce((product, dim) => product * dim, 1),
    );
    return { name, dtype, shape, data: Uint8Array.from({ length: sizeBytes }, (_, i) => seed + i * 7) };
  });
const metadata = fc.dictionary(fc.string({ unit: 'grapheme', maxLength: 8 }), fc.string({ unit: 'grapheme' }));

const zeros = (name: string, dtype: DType, shape: readonly number[], length: number): TensorToWrite => ({
  name,
  dtype,
  shape,
  data: new Uint8Array(length),
});

describe('writeSafetensors', () => {
  it('writes larger dtypes first, and names of one dtype in byte order', async () => {
    const sink = memorySink();
    const tensors = [
      zeros('b', 'f16', [1], 2),
      zeros('é', 'f32', [1], 4),
      zeros('a', 'f16', [1], 2),
      zeros('z', 'f32', [1], 4),
    ];
    await writeSafetensors(sink, { tensors });
    expect([...(await openSafetensors(memorySource(sink.toBytes()))).tensors.keys()]).toEqual(['z', 'é', 'a', 'b']);
  });

  it('round trip: the reader reads every written file', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(tensor, { selector: ({ name }) => name, maxLength: 12 }),
        metadata,
        async (tensors, pairs) => {
          const sink = memorySink();
          await writeSafetensors(sink, { tensors, metadata: pairs });
          const bytes = sink.toBytes();
          expect(Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true)) % 8).toBe(0);
          const file = await openSafetensors(memorySource(bytes));
          expect(file.tensors.size).toBe(tensors.length);
          expect(new Map(file.metadata)).toEqual(new Map(Object.entries(pairs)));
          for (const { name, dtype, shape, data } of tensors) {
            const stored = file.tensor(name);
            expect([stored.dtype, stored.shape, stored.sizeBytes]).toEqual([dtype, shape, data.length]);
            const read = new Uint8Array(stored.sizeBytes);
            await stored.read(read);
            expect(read).toEqual(data);
          }
        },
      ),
      { numRuns: 300, seed: 3 },
    );
  });

  it('aligns each tensor to its element size', async () => {
    const sink = memorySink();
    await writeSafetensors(sink, { tensors: dtypes.map((dtype) => zeros(dtype, dtype, [3], sizeOf(dtype, 3))) });
    const bytes = Buffer.from(sink.toBytes());
    const headerBytes = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<
      string,
      { data_offsets: [number, number] }
    >;
    for (const dtype of dtypes) {
      expect((8 + headerBytes + (header[dtype]?.data_offsets[0] as number)) % sizeOf(dtype, 1)).toBe(0);
    }
  });
});

describe('stored tensors and errors', () => {
  it('copies a stored tensor in pieces', async () => {
    const sizeBytes = 10_000_001;
    let largest = 0;
    const stored: StoredTensor = {
      name: 'big',
      dtype: 'i8',
      shape: [sizeBytes],
      sizeBytes,
      async read(target, options) {
        largest = Math.max(largest, target.length);
        for (let i = 0; i < target.length; i++) target[i] = ((options?.byteOffset ?? 0) + i) % 251;
      },
    };
    const sink = memorySink();
    await writeSafetensors(sink, { tensors: [stored] });
    const copy = new Uint8Array(sizeBytes);
    await (await openSafetensors(memorySource(sink.toBytes()))).tensor('big').read(copy);
    expect(copy.every((value, i) => value === i % 251)).toBe(true);
    expect(largest).toBeLessThan(sizeBytes / 2);
  });

  it.each([
    ['a quantized dtype', [zeros('a', 'q4_0', [32], 18)], DTypeError],
    ['bytes that are too few', [zeros('a', 'f32', [2], 7)], ShapeError],
    ['a negative dimension', [zeros('a', 'f32', [-1], 4)], ShapeError],
    ['a product that overflows', [zeros('a', 'f32', [2 ** 40, 2 ** 40], 4)], ShapeError],
    [
      '65 dimensions',
      [
        zeros(
          'a',
          'i8',
          Array.from({ length: 65 }, () => 1),
          1,
        ),
      ],
      ShapeError,
    ],
    ['a name twice', [zeros('a', 'i8', [1], 1), zeros('a', 'i8', [1], 1)], ArgumentError],
    ['the reserved name', [zeros('__metadata__', 'i8', [1], 1)], ArgumentError],
    ['an unpaired surrogate', [zeros('\ud800', 'i8', [1], 1)], ArgumentError],
  ])('rejects %s before it writes anything', async (_, tensors, error) => {
    const sink = memorySink();
    await expect(writeSafetensors(sink, { tensors })).rejects.toThrow(error);
    expect(() => sink.toBytes()).toThrow(ReleasedError);
  });
});

describe('failures', () => {
  it('abort the sink: reading or writing fails, or the signal aborts', async () => {
    const broken: StoredTensor = {
      name: 'a',
      dtype: 'i8',
      shape: [1],
      sizeBytes: 1,
      read: () => Promise.reject(new IoError({ source: 'a', message: 'gone' })),
    };
    const sink = memorySink();
    await expect(writeSafetensors(sink, { tensors: [broken] })).rejects.toThrow(/gone/);
    expect(() => sink.toBytes()).toThrow(ReleasedError);

    let isAborted = false;
    const full: ByteSink = {
      name: 'full',
      sizeBytes: 0,
      write: () => Promise.reject(new IoError({ source: 'full', message: 'no space left' })),
      close: () => Promise.reject(new Error('closed')),
      async abort() {
        isAborted = true;
      },
    };
    await expect(writeSafetensors(full, { tensors: [] })).rejects.toThrow(/no space/);
    expect(isAborted).toBe(true);

    const other = memorySink();
    const tensors = [zeros('a', 'i8', [1], 1)];
    await expect(writeSafetensors(other, { tensors, signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
    expect(() => other.toBytes()).toThrow(ReleasedError);
  });
});
