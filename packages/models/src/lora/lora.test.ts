import type { StoredTensor } from '@winnow/bytes';
import { FormatError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { Fields } from '../file/fields.js';
import { readLora, type Lora } from './lora.js';

function factor(name: string, shape: readonly number[]): [string, StoredTensor] {
  const sizeBytes = 4 * shape.reduce((product, dim) => product * dim, 1);
  return [name, { name, dtype: 'f32', shape, sizeBytes, read: async (target) => void target.fill(0) }];
}

function read(a: readonly number[], b: readonly number[]): Promise<Lora> {
  const tensors = new Map([factor('blk.0.attn_q.weight.lora_a', a), factor('blk.0.attn_q.weight.lora_b', b)]);
  const fields = Fields.ofJson('f', { 'general.type': 'adapter', 'adapter.type': 'lora' });
  return readLora({ format: 'gguf', fields, store: { name: 'f', tensors, close: async () => {} } });
}

test('matching factors form one adapter part', async () => {
  const { parts } = await read([2, 8], [6, 2]);
  expect(parts.get('blk.0.attn_q')).toMatchObject({ rank: 2, numInputs: 8, numOutputs: 6 });
});

test.each([
  [
    [2, 8],
    [6, 3],
  ],
  [
    [0, 8],
    [6, 0],
  ],
  [
    [2, 8, 1],
    [6, 2],
  ],
  [[2, 8], [12]],
])('factors of %j and %j are rejected', async (a, b) => {
  await expect(read(a, b)).rejects.toThrow(FormatError);
  await expect(read(a, b)).rejects.toThrow('expected A [rank, inputs] and B [outputs, rank]');
});
