/** In-memory models, counting and virtual sources, and generators of metadata and tensors. */
import fc from 'fast-check';
import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { dtypeInfo, dtypes, tensorBytes } from '@winnow/tensor';
import { characterAt, lastCharacter } from '@winnow/test-utils';
import {
  writeGguf,
  type GgufArray,
  type GgufTensorInput,
  type GgufTypedValue,
  type WriteGgufOptions,
} from '../src/index.js';

/** Writes a file in memory. */
export async function ggufBytes(options: Partial<WriteGgufOptions> = {}): Promise<Uint8Array<ArrayBuffer>> {
  const sink = memorySink();
  await writeGguf(sink, { metadata: {}, tensors: [], ...options });
  return sink.toBytes().slice();
}

/** Bytes that differ between tensors. */
export function filler(sizeBytes: number, seed: number): Uint8Array {
  return Uint8Array.from({ length: sizeBytes }, (_, index) => (index * 13 + seed * 101 + (index >> 8)) & 255);
}

/** A small model with a value of every type. */
export function sampleModel(): { metadata: Record<string, GgufTypedValue>; tensors: GgufTensorInput[] } {
  return {
    metadata: {
      'general.architecture': { type: 'string', value: 'llama' },
      'a.bool': { type: 'bool', value: true },
      'a.uint8': { type: 'uint8', value: 255 },
      'a.int64': { type: 'int64', value: -(2n ** 60n) },
      'a.uint64': { type: 'uint64', value: 7 },
      'a.float32': { type: 'float32', value: 0.5 },
      'a.float64': { type: 'float64', value: Math.PI },
      'a.strings': { type: 'array', elementType: 'string', value: ['a', '', 'ünï', '\u{1f600}'] },
      'a.floats': { type: 'array', elementType: 'float32', value: Float32Array.of(1, -2, 0.25) },
      'a.bools': { type: 'array', elementType: 'bool', value: [true, false] },
      'a.longs': { type: 'array', elementType: 'uint64', value: [1, 2n ** 64n - 1n] },
      'a.nested': {
        type: 'array',
        elementType: 'array',
        value: [
          { type: 'array', elementType: 'int16', value: Int16Array.of(-1, 2) },
          { type: 'array', elementType: 'string', value: ['x'] },
        ],
      },
    },
    tensors: [
      { name: 'one', dtype: 'f32', shape: [3, 2], data: filler(24, 1) },
      { name: 'two', dtype: 'q8_0', shape: [2, 32], data: filler(68, 2) },
      { name: 'scalar', dtype: 'f16', shape: [], data: filler(2, 3) },
    ],
  };
}

/** A source that records its reads. */
export function counted(source: ByteSource): ByteSource & { numReads: number; readBytes: number; numCloses: number } {
  const self = {
    name: source.name,
    sizeBytes: source.sizeBytes,
    numReads: 0,
    readBytes: 0,
    numCloses: 0,
    read(byteOffset: number, target: Uint8Array, options?: { signal?: AbortSignal }): Promise<void> {
      self.numReads++;
      self.readBytes += target.byteLength;
      return source.read(byteOffset, target, options);
    },
    close(): Promise<void> {
      self.numCloses++;
      return source.close();
    },
  };
  return self;
}

/** A source of any size that starts with `head`, followed by zeros, so that claimed sizes fit the file. */
export function padded(head: Uint8Array, sizeBytes: number): ByteSource {
  const source = memorySource(head);
  return {
    name: 'padded',
    sizeBytes,
    async read(byteOffset, target) {
      target.fill(0);
      const numBytes = Math.min(target.byteLength, Math.max(0, head.byteLength - byteOffset));
      if (numBytes > 0) await source.read(byteOffset, target.subarray(0, numBytes));
    },
    close: () => source.close(),
  };
}

const text = fc.string({ unit: fc.nat(lastCharacter).map(characterAt), maxLength: 12 });
const integers = {
  uint8: fc.integer({ min: 0, max: 0xff }),
  int8: fc.integer({ min: -0x80, max: 0x7f }),
  uint16: fc.integer({ min: 0, max: 0xffff }),
  int16: fc.integer({ min: -0x8000, max: 0x7fff }),
  uint32: fc.integer({ min: 0, max: 0xffff_ffff }),
  int32: fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff }),
};
const exact = (value: bigint): number | bigint => (Number.isSafeInteger(Number(value)) ? Number(value) : value);
const scalars = {
  ...integers,
  float32: fc.float(),
  float64: fc.double(),
  uint64: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(exact),
  int64: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(exact),
  bool: fc.boolean(),
  string: text,
};

function arrayOf(depth: number): fc.Arbitrary<GgufArray> {
  const flat = Object.entries(scalars).map(([elementType, element]) =>
    fc
      .array(element as fc.Arbitrary<unknown>, { maxLength: 5 })
      .map((value) => ({ type: 'array', elementType, value }) as GgufArray),
  );
  if (depth === 1) return fc.oneof(...flat);
  const nested = fc
    .array(arrayOf(depth - 1), { maxLength: 3 })
    .map((value): GgufArray => ({ type: 'array', elementType: 'array', value }));
  return fc.oneof(...flat, nested);
}

const anyValue: fc.Arbitrary<GgufTypedValue> = fc.oneof(
  ...Object.entries(scalars).map(([type, value]) =>
    (value as fc.Arbitrary<unknown>).map((one) => ({ type, value: one }) as GgufTypedValue),
  ),
  arrayOf(4),
);

/** Any metadata except keys that describe the file itself. */
export const anyMetadata: fc.Arbitrary<[string, GgufTypedValue][]> = fc.uniqueArray(
  fc.tuple(
    text.filter((key) => key !== '' && !/^(general\.alignment|split\.)/.test(key)),
    anyValue,
  ),
  { selector: ([key]) => key, maxLength: 8 },
);

const anyTensor: fc.Arbitrary<Omit<GgufTensorInput, 'data'>> = fc
  .record({
    name: text.filter((name) => name !== '' && new TextEncoder().encode(name).byteLength <= 63),
    dtype: fc.constantFrom(...dtypes),
    outer: fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }),
    numBlocks: fc.integer({ min: 0, max: 3 }),
  })
  .map(({ name, dtype, outer, numBlocks }) => ({
    name,
    dtype,
    shape: [...outer, numBlocks * dtypeInfo(dtype).blockSize],
  }));

/** Any tensors, with data in each of the three forms. */
export const anyTensors: fc.Arbitrary<GgufTensorInput[]> = fc
  .uniqueArray(fc.tuple(anyTensor, fc.integer({ min: 0, max: 2 })), { selector: ([{ name }]) => name, maxLength: 5 })
  .map((tensors) =>
    tensors.map(([tensor, form], index) => {
      const bytes = filler(tensorBytes(tensor.dtype, tensor.shape), index);
      const half = bytes.byteLength >> 1;
      const forms = [
        bytes,
        () => Promise.resolve(bytes),
        (async function* () {
          yield bytes.subarray(0, half);
          yield bytes.subarray(half);
        })(),
      ] as const;
      return { ...tensor, data: forms[form] as GgufTensorInput['data'] };
    }),
  );

/** Values as plain arrays, so that typed arrays compare equal. */
export function plain(value: GgufTypedValue | undefined): unknown {
  if (value?.type !== 'array') return value;
  if (value.elementType === 'array') return { ...value, value: value.value.map(plain) };
  return { ...value, value: [...value.value] };
}
