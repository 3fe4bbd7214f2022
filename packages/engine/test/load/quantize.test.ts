/** Weights quantized while loading, against a file that is already quantized. */
import { memorySink, memorySource } from '@winnow/bytes';
import { openGguf, writeGguf } from '@winnow/gguf';
import { openGgufFile } from '@winnow/gguf/node';
import { quantizedDType } from '@winnow/models';
import { createReferenceBackend } from '@winnow/ops';
import { ArgumentError, decode, encode, numElements, sizeOf, type DType } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { inspectModel, loadModel } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { tinyFolder } from '../support/tiny-model.js';

const path = archPath('llama', 'model.gguf');
/** Experts with biases, learned sinks, and rows that are not whole blocks. */
const gptOss = archPath('gpt-oss', 'model.gguf');
const tokens = [5, 9, 200, 31, 7, 64];

/** The file with every matrix encoded in one piece. */
async function quantizedFile(path: string, dtype: DType): Promise<Uint8Array> {
  const file = await openGgufFile(path);
  const isTied = !file.tensors.has('output.weight');
  const tensors = await Promise.all(
    [...file.tensors.values()].map(async (tensor) => {
      const data = new Uint8Array(tensor.sizeBytes);
      await tensor.read(data);
      const { name, shape } = tensor;
      const bias = name.endsWith('.bias') ? { isFloat: true as const } : {};
      const type = quantizedDType({ name, shape, dtype: tensor.dtype, ...bias }, { dtype, isTied, numLayers: 1 }).dtype;
      const values = new Float32Array(numElements(shape));
      decode(tensor.dtype, data, values);
      const encoded = new Uint8Array(sizeOf(type, values.length));
      encode(type, values, encoded);
      return { name, shape, dtype: type, data: encoded };
    }),
  );
  const sink = memorySink();
  await writeGguf(sink, { metadata: file.metadata, tensors });
  await file.close();
  return sink.toBytes();
}

const needs = path === undefined ? ' (needs ../shared/data/goldens)' : '';
const others = [
  'granitemoe',
  'glm4moe',
  'deepseek2',
  'llama4',
  'olmo3',
  'phi3-lengths',
  'gemma3n',
  'gemma4',
  'gemma4-moe',
  'mamba2-groups',
  'qwen3next',
] as const;
const cases = [
  ...(['q8_0', 'q4_0', 'q5_1', 'f16', 'bf16'] as const).map((dtype) => ['llama', dtype, path] as const),
  ['gpt-oss', 'q8_0', gptOss] as const,
  ...others.map((name) => [name, 'q8_0', archPath(name, 'model.gguf')] as const),
];
test.skipIf(path === undefined).each(cases)(
  `%s, quantize: %s gives what the quantized file gives${needs}`,
  async (_, dtype, location) => {
    const bytes = await quantizedFile(location as string, dtype);
    const types = [...(await openGguf(memorySource(bytes))).tensors.values()].map((tensor) => tensor.dtype);
    expect(types).toContain(dtype);
    const backend = createReferenceBackend();
    const onLoad = await loadModel(location as string, { backend, quantize: dtype, maxSessions: 1 });
    const converted = await loadModel(memorySource(bytes), { backend, maxSessions: 1 });
    expect(onLoad.plan.weightsBytes).toBe(converted.plan.weightsBytes);
    const positions = tokens.map((_, index) => index);
    const expected = await converted.logprobs(tokens, { positions });
    expect(await onLoad.logprobs(tokens, { positions })).toEqual(expected);
    await onLoad.dispose();
    await converted.dispose();
    await backend.dispose();
  },
);

test('matrices that cannot be quantized keep their dtype and are named', async () => {
  const model = await loadModel(await tinyFolder(), { backend: createReferenceBackend(), quantize: 'q8_0' });
  expect(model.notices).toEqual([
    'not stored as q8_0: token_embd.weight and 7 more: rows of 8 values are not whole blocks of 32',
    'not stored as q8_0: blk.0.ffn_down.weight: rows of 12 values are not whole blocks of 32',
  ]);
  await model.dispose();
});

test('the plan counts the quantized weights', async () => {
  const [plain, small] = await Promise.all([
    inspectModel(path as string),
    inspectModel(path as string, { quantize: 'q8_0' }),
  ]);
  expect(small.plan.weightsBytes).toBeLessThan(0.4 * plain.plan.weightsBytes);
});

test('dtypes without an encoder are rejected', async () => {
  await expect(loadModel(await tinyFolder(), { quantize: 'iq2_xs' })).rejects.toThrow(ArgumentError);
});
