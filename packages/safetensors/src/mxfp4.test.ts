import { memorySource } from '@winnow/bytes';
import { createRng, decoder } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { openSafetensors, openShardedSafetensors, type SafetensorsFile } from './index.js';

// the negative zero becomes zero
const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6];
const [numMatrices, numRows, numBlocks] = [2, 3, 4];

function fileOf(tensors: Readonly<Record<string, readonly [shape: readonly number[], bytes: Uint8Array]>>): Uint8Array {
  const header: Record<string, unknown> = {};
  const data: number[] = [];
  for (const [name, [shape, bytes]] of Object.entries(tensors)) {
    header[name] = { dtype: 'U8', shape, data_offsets: [data.length, data.length + bytes.length] };
    data.push(...bytes);
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + text.length + data.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  file.set(data, 8 + text.length);
  return file;
}

const open = (bytes: Uint8Array): Promise<SafetensorsFile> => openSafetensors(memorySource(bytes));

const rng = createRng(7);
const random = (count: number, limit: number): Uint8Array =>
  Uint8Array.from({ length: count }, () => rng.nextInt(limit));
const blocks = random(numMatrices * numRows * numBlocks * 16, 256);
const scales = random(numMatrices * numRows * numBlocks, 20).map((value) => value + 117);

test('blocks and scales are one tensor, whose values are those of transformers', async () => {
  const file = await open(
    fileOf({
      w_blocks: [[numMatrices, numRows, numBlocks, 16], blocks],
      w_scales: [[numMatrices, numRows, numBlocks], scales],
    }),
  );
  expect([...file.tensors.keys()]).toEqual(['w']);
  expect(file.unsupported.size).toBe(0);
  const tensor = file.tensor('w');
  expect([tensor.dtype, tensor.shape]).toEqual(['mxfp4', [numMatrices, numRows, numBlocks * 32]]);
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes);
  const values = new Float32Array(scales.length * 32);
  decoder('mxfp4')(bytes, 0, values, 0, values.length);
  const expected = values.map((_, i) => {
    const [block, at] = [i >> 5, i & 31];
    const code = ((blocks[block * 16 + (at >> 1)] as number) >> (4 * (at % 2))) & 15;
    return (e2m1[code] as number) * 2 ** ((scales[block] as number) - 127);
  });
  expect(values).toEqual(expected);
});

test('any range of bytes reads the same', async () => {
  const file = await open(
    fileOf({ w_blocks: [[4, 16], blocks.subarray(0, 64)], w_scales: [[4], scales.subarray(0, 4)] }),
  );
  const tensor = file.tensor('w');
  const whole = new Uint8Array(tensor.sizeBytes);
  await tensor.read(whole);
  for (const [begin, length] of [
    [0, 1],
    [16, 2],
    [17, 17],
    [5, 40],
    [33, 35],
  ] as const) {
    const part = new Uint8Array(length);
    await tensor.read(part, { byteOffset: begin });
    expect(part).toEqual(whole.subarray(begin, begin + length));
  }
});

test.each([
  ['without scales', { w_blocks: [[4, 16], blocks.subarray(0, 64)] }],
  ['of other shapes', { w_blocks: [[4, 16], blocks.subarray(0, 64)], w_scales: [[2], scales.subarray(0, 2)] }],
] as const)('blocks %s stay unsupported', async (_, tensors) => {
  const file = await open(fileOf(tensors));
  expect(file.tensors.size).toBe(0);
  expect([...file.unsupported.keys()]).toEqual(Object.keys(tensors));
});

test('of two shards', async () => {
  const shards: Record<string, Uint8Array> = {
    a: fileOf({ w_blocks: [[4, 16], blocks.subarray(0, 64)] }),
    b: fileOf({ w_scales: [[4], scales.subarray(0, 4)] }),
  };
  const index = JSON.stringify({ metadata: { total_size: 68 }, weight_map: { w_blocks: 'a', w_scales: 'b' } });
  const store = await openShardedSafetensors(index, async (name) => memorySource(shards[name] as Uint8Array, name));
  expect(store.tensor('w')).toMatchObject({ dtype: 'mxfp4', shape: [128] });
  expect(store.unsupported.size).toBe(0);
});
