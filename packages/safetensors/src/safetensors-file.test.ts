import { readFile } from 'node:fs/promises';
import { memorySource, memorySink, readBytes } from '@winnow/bytes';
import { fileSource } from '@winnow/bytes/node';
import { ArgumentError, DTypeError, IoError, ReleasedError } from '@winnow/tensor';
import { sharedDataPath } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { openSafetensors, writeSafetensors, type SafetensorsFile } from './index.js';

const fixture = (name: string): Promise<Buffer> =>
  readFile(new URL(`__fixtures__/${name}.safetensors`, import.meta.url));
const open = async (name: string): Promise<SafetensorsFile> => openSafetensors(memorySource(await fixture(name), name));

async function bytesOf(file: SafetensorsFile, name: string): Promise<Uint8Array> {
  const tensor = file.tensor(name);
  const target = new Uint8Array(tensor.sizeBytes);
  await tensor.read(target);
  return target;
}

describe('a file written by upstream', () => {
  it('has its dtypes, shapes, values and metadata', async () => {
    const file = await open('upstream-all-dtypes');
    expect(
      Object.fromEntries([...file.tensors].map(([name, { dtype, shape }]) => [name, `${dtype} ${shape}`])),
    ).toEqual({
      f64: 'f64 3',
      f32: 'f32 2,3',
      f16: 'f16 2,2,1',
      bf16: 'bf16 5',
      i64: 'i64 2',
      i32: 'i32 ',
      i16: 'i16 3,1',
      i8: 'i8 7',
      empty: 'f32 0,4',
      'empty.huge': 'f32 4,0,123456789',
      'name "quoted" \\ \n tab\t': 'f32 1',
      'größe/層.weight \u{1f40d}': 'i8 1',
      '': 'i8 2',
      b: 'f32 1',
      B: 'f32 1',
      z10: 'f32 1',
      z2: 'f32 1',
      '\uff41': 'i8 1',
      '\u{10400}': 'i8 1',
    });
    expect(file.unsupported.size).toBe(0);
    const { buffer } = await bytesOf(file, 'f32');
    expect([...new Float32Array(buffer as ArrayBuffer)]).toEqual([1, -2, 3.5, 0, Infinity, Math.fround(1e-40)]);
    const wide = new BigInt64Array((await bytesOf(file, 'i64')).buffer as ArrayBuffer);
    expect([...wide]).toEqual([-(2n ** 63n), 2n ** 63n - 1n]);
    expect((await bytesOf(file, 'empty')).length).toBe(0);
    expect([...(await bytesOf(file, 'i8'))]).toEqual(Array.from({ length: 7 }, (_, i) => (2 * 37 + i * 11) % 251));
    expect(Object.fromEntries(file.metadata)).toEqual({ 'größe "x"': 'line\nbreak \\ \u0001 \u2028' });
  });

  it('lists tensors of unsupported dtypes, and rejects access to them', async () => {
    const file = await open('upstream-unsupported');
    expect([...file.tensors.keys()]).toEqual(['weight']);
    expect(Object.fromEntries([...file.unsupported].map(([name, { fileDType }]) => [name, fileDType]))).toEqual({
      bool: 'BOOL',
      u8: 'U8',
      u16: 'U16',
      u32: 'U32',
      u64: 'U64',
      f8_e4m3: 'F8_E4M3',
      f8_e5m2: 'F8_E5M2',
    });
    expect(file.unsupported.get('u16')).toMatchObject({ shape: [2], sizeBytes: 4 });
    expect(() => file.tensor('f8_e4m3')).toThrow(DTypeError);
    expect(() => file.tensor('f8_e4m3')).toThrow(/F8_E4M3/);
    expect(() => file.tensor('nope')).toThrow(ArgumentError);
  });
});

describe('copies of upstream files', () => {
  it.each(['upstream-all-dtypes', 'upstream-no-metadata', 'upstream-empty'])(
    '%s is rewritten byte for byte',
    async (name) => {
      const file = await open(name);
      for (const tensors of [[...file.tensors.values()], [...file.tensors.values()].reverse()]) {
        const sink = memorySink();
        const { sizeBytes } = await writeSafetensors(sink, { tensors, metadata: file.metadata });
        const original = await fixture(name);
        expect(sizeBytes).toBe(original.length);
        expect(Buffer.from(sink.toBytes()).equals(original)).toBe(true);
      }
    },
  );
});

describe('reading a tensor', () => {
  it('reads any range within it and nothing outside', async () => {
    const file = await open('upstream-all-dtypes');
    const tensor = file.tensor('i8');
    const whole = await bytesOf(file, 'i8');
    for (let begin = 0; begin <= 7; begin++) {
      for (let end = begin; end <= 7; end++) {
        const target = new Uint8Array(end - begin);
        await tensor.read(target, { byteOffset: begin });
        expect(target).toEqual(whole.subarray(begin, end));
      }
    }
    for (const [byteOffset, length] of [
      [7, 1],
      [0, 8],
      [-1, 1],
      [0.5, 1],
      [NaN, 1],
      [2 ** 53, 0],
    ] as const) {
      await expect(tensor.read(new Uint8Array(length), { byteOffset })).rejects.toThrow(IoError);
    }
  });

  it('passes the signal on, and fails once the file is closed', async () => {
    const file = await open('upstream-all-dtypes');
    const target = new Uint8Array(7);
    await expect(file.tensor('i8').read(target, { signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
    await file.close();
    await file.close();
    await expect(file.tensor('i8').read(target)).rejects.toThrow(ReleasedError);
  });

  it('closes the source when opening fails', async () => {
    const source = memorySource(new Uint8Array(4));
    await expect(openSafetensors(source)).rejects.toThrow(/header length/);
    await expect(readBytes(source, 0, 1)).rejects.toThrow(ReleasedError);
  });
});

const models = ['stories260K', 'babyllama-tok105', 'babyllama-tok361'] as const;
const architectures = ['llama', 'gpt2', 'qwen35moe', 'bert-mean'] as const;
const realFiles = [
  ...models.map((name) => [name, ['data', 'models', name, 'hf', 'model.safetensors']] as const),
  ...architectures.map((name) => [name, ['data', 'goldens', 'arch', name, 'hf', 'model.safetensors']] as const),
];

describe.each(realFiles)('%s', (name, parts) => {
  const path = sharedDataPath(...parts);
  it.skipIf(path === undefined)(
    `opens from a file and is rewritten byte for byte (needs shared/${parts.join('/')})`,
    async () => {
      const file = await openSafetensors(await fileSource(path as string));
      expect(file.metadata.get('format')).toBe('pt');
      const sink = memorySink(name);
      await writeSafetensors(sink, { tensors: file.tensors.values(), metadata: file.metadata });
      expect(Buffer.from(sink.toBytes()).equals(await readFile(path as string))).toBe(true);
      await file.close();
    },
  );
});

describe('a real file with truncated data', () => {
  const path = sharedDataPath('data', 'tokenizers', 'minilm-tokenizer', 'model.truncated.safetensors');
  it.skipIf(path === undefined)(
    'is rejected as truncated (needs shared/data/tokenizers/minilm-tokenizer)',
    async () => {
      await expect(openSafetensors(await fileSource(path as string))).rejects.toMatchObject({
        name: 'FormatError',
        field: 'embeddings.word_embeddings.weight.data_offsets',
        byteOffset: expect.any(Number),
        message: expect.stringMatching(/truncated: \d+ bytes are missing/),
      });
    },
  );
});

it('an empty tensor may be listed after another that starts at the same offset', async () => {
  const header = JSON.stringify({
    whole: { dtype: 'F32', shape: [1], data_offsets: [0, 4] },
    empty: { dtype: 'F32', shape: [0], data_offsets: [0, 0] },
  });
  const text = new TextEncoder().encode(header.padEnd(Math.ceil(header.length / 8) * 8));
  const bytes = new Uint8Array(8 + text.length + 4);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 8);
  const file = await openSafetensors(memorySource(bytes));
  expect([...file.tensors.keys()]).toEqual(['empty', 'whole']);
});
