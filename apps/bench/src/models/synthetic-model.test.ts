import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspectModel, openTokenizer } from '@winnow/engine';
import { openGgufFile } from '@winnow/gguf/node';
import { decode, dtypeInfo, numElements, sizeOf } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { modelNames, modelShape } from './model-shapes.js';
import { randomWeights } from './random-weights.js';
import { syntheticModel } from './synthetic-model.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-bench-models-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('synthetic models', () => {
  const shape = modelShape('winnow-tiny');

  test.each(['f16', 'q8_0', 'q4_0', 'q4_K'] as const)('%s: the engine reads the sizes of the shape', async (dtype) => {
    const path = await syntheticModel(shape, dtype, folder, () => undefined);
    const { config, tensors } = await inspectModel(path);
    expect(config).toMatchObject({
      vocabSize: shape.vocabSize,
      hiddenDim: shape.hiddenDim,
      numLayers: shape.numLayers,
      numHeads: shape.numHeads,
      numKvHeads: shape.numKvHeads,
      headDim: shape.headDim,
      ffnDim: shape.ffnDim,
      isTied: true,
    });
    const stored = Object.fromEntries(tensors.map((tensor) => [tensor.name, tensor.dtype]));
    // rows of 192 and 576 are no whole blocks of 256
    const fallback = dtype === 'q4_K' ? 'q5_0' : dtype;
    expect(stored['blk.0.ffn_down.weight']).toBe(fallback);
    expect(stored['token_embd.weight']).toBe(dtype === 'q4_0' || dtype === 'q4_K' ? 'q8_0' : dtype);
  });

  test('weights have unit gain, and rows of the embedding differ', async () => {
    const path = await syntheticModel(shape, 'q8_0', folder, () => undefined);
    const file = await openGgufFile(path);
    const tensor = file.tensors.get('token_embd.weight')!;
    const bytes = new Uint8Array(tensor.sizeBytes);
    await tensor.read(bytes);
    const values = new Float32Array(numElements(tensor.shape));
    decode(tensor.dtype, bytes, values);
    await file.close();
    const squares = values.reduce((sum, value) => sum + value * value, 0);
    // a mean square of n = 393216 values has the relative standard deviation sqrt(2 / n) = 0.23 %; pieces repeat: below 3 %
    expect(Math.abs((squares / values.length) * shape.hiddenDim - 1)).toBeLessThan(0.03);
    const { hiddenDim, vocabSize } = shape;
    const rows = Array.from({ length: vocabSize }, (_, row) =>
      values.subarray(row * hiddenDim, (row + 1) * hiddenDim).join(),
    );
    expect(new Set(rows).size).toBe(vocabSize);
  });

  test('the vocabulary encodes and decodes text', async () => {
    const path = await syntheticModel(shape, 'q8_0', folder, () => undefined);
    const { tokenizer } = await openTokenizer(path);
    const text = 'Hello, world! \u00e9\u4e16';
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(`<s>${text}`);
  });

  test('known names', () => {
    for (const name of modelNames) expect(modelShape(name).name).toBe(name);
    expect(() => modelShape('gpt-9')).toThrow('gpt-9');
  });
});

describe('random weights', () => {
  test('equal seeds give equal bytes, another seed gives others', () => {
    const bytes = (seed: number): string => {
      const target = new Uint8Array(34 * 100);
      randomWeights('q8_0', 1, seed).fill(target);
      return Buffer.from(target).toString('hex');
    };
    expect(bytes(1)).toBe(bytes(1));
    expect(bytes(1)).not.toBe(bytes(2));
  });

  test.each(['q8_0', 'q4_K', 'q6_K'] as const)('%s: blocks are whole across parts', async (dtype) => {
    const { blockSize, blockBytes } = dtypeInfo(dtype);
    const numValues = Math.ceil((4.5 * 2 ** 20) / blockBytes) * blockSize; // two parts
    const bytes = new Uint8Array(sizeOf(dtype, numValues));
    let begin = 0;
    let numParts = 0;
    for await (const part of randomWeights(dtype, 1, 5).parts(bytes.length)) {
      bytes.set(part, begin);
      begin += part.length;
      numParts += 1;
    }
    expect(begin).toBe(bytes.length);
    expect(numParts).toBeGreaterThan(1);
    const values = new Float32Array(numValues);
    decode(dtype, bytes, values);
    // 2^20 normal values stay below 5.5 deviations but once in 25 pools; a scale from wrong bytes would give thousands or NaN
    expect(values.every((value) => Math.abs(value) < 7)).toBe(true);
  });

  test('a dtype without an encoder is rejected', () => {
    expect(() => randomWeights('iq1_s', 1, 1)).toThrow('iq1_s');
  });
});
