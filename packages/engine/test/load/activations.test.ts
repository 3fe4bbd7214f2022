/** f32 and int8 activations of a model with quantized weights. */
import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { writeGguf, type GgufTensorInput, type GgufValueInput } from '@winnow/gguf';
import { createReferenceBackend } from '@winnow/ops';
import { ArgumentError, createRng, encode, sizeOf } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel, type LoadOptions } from '../../src/index.js';

/** A Llama of one layer whose matrices are stored as q8_0, without a tokenizer. */
async function quantizedModel(): Promise<ByteSource> {
  const rng = createRng(5);
  const matrix = (name: string, shape: [number, number]): GgufTensorInput => {
    const values = Float32Array.from({ length: shape[0] * shape[1] }, () => rng.nextGaussian() / 4);
    const data = new Uint8Array(sizeOf('q8_0', values.length));
    encode('q8_0', values, data);
    return { name: `${name}.weight`, dtype: 'q8_0', shape, data };
  };
  const norm = (name: string): GgufTensorInput => {
    return {
      name: `${name}.weight`,
      dtype: 'f32',
      shape: [32],
      data: new Uint8Array(new Float32Array(32).fill(1).buffer),
    };
  };
  const uint32 = (value: number): GgufValueInput => ({ type: 'uint32', value });
  const sink = memorySink();
  await writeGguf(sink, {
    metadata: {
      'general.architecture': 'llama',
      'llama.vocab_size': uint32(64),
      'llama.context_length': uint32(64),
      'llama.embedding_length': uint32(32),
      'llama.block_count': uint32(1),
      'llama.feed_forward_length': uint32(64),
      'llama.attention.head_count': uint32(2),
      'llama.attention.layer_norm_rms_epsilon': { type: 'float32', value: 1e-5 },
    },
    tensors: [
      matrix('token_embd', [64, 32]),
      norm('output_norm'),
      norm('blk.0.attn_norm'),
      norm('blk.0.ffn_norm'),
      ...['attn_q', 'attn_k', 'attn_v', 'attn_output'].map((name) => matrix(`blk.0.${name}`, [32, 32])),
      matrix('blk.0.ffn_gate', [64, 32]),
      matrix('blk.0.ffn_up', [64, 32]),
      matrix('blk.0.ffn_down', [32, 64]),
    ],
  });
  return memorySource(sink.toBytes());
}

async function logprobs(options: LoadOptions): Promise<Float32Array> {
  await using model = await loadModel(await quantizedModel(), options);
  const [last] = await model.logprobs([3, 1, 4, 1, 5]);
  return last as Float32Array;
}

function distance(a: Float32Array, b: Float32Array): number {
  return Math.max(...a.map((value, index) => Math.abs(value - (b[index] as number))));
}

test('f32 activations agree with the reference, int8 activations (the default) approximately', async () => {
  const exact = await logprobs({ backend: createReferenceBackend() });
  const chosen = await logprobs({ activations: 'f32' });
  const rounded = await logprobs({ activations: 'int8' });
  // f32 rounding through one layer; half a quantization step of 1/127 per product
  expect(distance(chosen, exact)).toBeLessThan(1e-4);
  expect(distance(rounded, exact)).toBeGreaterThan(1e-4);
  expect(distance(rounded, exact)).toBeLessThan(0.3);
  expect(await logprobs({})).toEqual(rounded);
});

test('unknown values are rejected', async () => {
  await expect(logprobs({ activations: 'int4' as 'int8' })).rejects.toThrow(ArgumentError);
});
