import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { validateProgram } from '@winnow/ops';
import { FormatError, tensorBytes, type DType, type Shape } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { Fields } from '../file/fields.js';
import { loadWeight } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import { describeModel } from '../registry.js';

const config = {
  model_type: 'llama',
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 10,
  rms_norm_eps: 1e-5,
  max_position_embeddings: 64,
};

function stored(name: string, shape: Shape, dtype: DType = 'f32', bytes?: Uint8Array): StoredTensor {
  const data = bytes ?? new Uint8Array(tensorBytes(dtype, shape));
  return {
    name,
    dtype,
    shape,
    sizeBytes: data.length,
    read: async (target, { byteOffset = 0 } = {}) => target.set(data.subarray(byteOffset, byteOffset + target.length)),
  };
}

/** All tensors of the model above. */
function tensorsOf(): Map<string, StoredTensor> {
  const shapes: [string, number[]][] = [
    ['model.embed_tokens.weight', [10, 8]],
    ['model.norm.weight', [8]],
    ['lm_head.weight', [10, 8]],
  ];
  for (const layer of [0, 1]) {
    const at = `model.layers.${layer}`;
    shapes.push([`${at}.input_layernorm.weight`, [8]], [`${at}.post_attention_layernorm.weight`, [8]]);
    shapes.push([`${at}.self_attn.q_proj.weight`, [8, 8]], [`${at}.self_attn.o_proj.weight`, [8, 8]]);
    shapes.push([`${at}.self_attn.k_proj.weight`, [4, 8]], [`${at}.self_attn.v_proj.weight`, [4, 8]]);
    shapes.push([`${at}.mlp.gate_proj.weight`, [12, 8]], [`${at}.mlp.up_proj.weight`, [12, 8]]);
    shapes.push([`${at}.mlp.down_proj.weight`, [8, 12]]);
  }
  return new Map(shapes.map(([name, shape]) => [name, stored(name, shape)]));
}

function fileOf(settings: object, tensors: Map<string, StoredTensor>): ModelFile {
  const store: TensorStore = { name: 'model.safetensors', tensors, close: async () => undefined };
  return { format: 'safetensors', fields: Fields.ofJson('config.json', settings), store };
}

const cache = {
  numBlocks: 2,
  blockSize: 4,
  maxBlocksPerSequence: 2,
  dtype: { keys: 'f32', values: 'f32' } as const,
};
const capacities = { maxTokens: 8, maxSequences: 2, maxOutputRows: 3, cache, topK: 5 };

describe('description', () => {
  test('programs for one and for many tokens pass the validator', async () => {
    const description = await describeModel(fileOf(config, tensorsOf()));
    for (const maxTokens of [1, 8]) {
      const program = description.buildProgram({ ...capacities, maxTokens });
      expect(() => validateProgram(program)).not.toThrow();
      expect([...program.outputs.keys()]).toEqual(['logits', 'argMax', 'logSumExp', 'topValues', 'topIndices']);
    }
  });

  test('biases are used if the file has them', async () => {
    const tensors = tensorsOf();
    const name = 'model.layers.0.self_attn.q_proj.bias';
    tensors.set(name, stored(name, [8]));
    const program = (await describeModel(fileOf(config, tensors))).buildProgram(capacities);
    const biased = program.records.filter(({ op, inputs }) => op === 'matmul' && inputs['bias'] !== undefined);
    expect(biased).toHaveLength(1);
  });

  test('a tied model needs no output matrix and ignores a duplicate', async () => {
    const tied = { ...config, tie_word_embeddings: true };
    const repeated = await describeModel(fileOf(tied, tensorsOf()));
    const tensors = tensorsOf();
    tensors.delete('lm_head.weight');
    const plain = await describeModel(fileOf(tied, tensors));
    expect([...plain.weights.keys()]).toEqual([...repeated.weights.keys()]);
    expect(plain.weights.has('output.weight')).toBe(false);
  });

  test('activations by config', async () => {
    const relu = await describeModel(fileOf({ ...config, hidden_act: 'relu' }, tensorsOf()));
    expect(relu.config.activation).toBe('relu');
    await expect(describeModel(fileOf({ ...config, hidden_act: 'mish' }, tensorsOf()))).rejects.toThrow(
      /hidden_act: expected silu, .*, got "mish"/,
    );
  });

  test('the sliding window applies to mistral', async () => {
    const file = (model_type: string) => fileOf({ ...config, model_type, sliding_window: 16 }, tensorsOf());
    expect((await describeModel(file('mistral'))).config.slidingWindow).toBe(16);
    expect((await describeModel(file('llama'))).config.slidingWindow).toBe(0);
  });
});

describe('errors', () => {
  const refuse = async (settings: object, change: (tensors: Map<string, StoredTensor>) => void, message: RegExp) => {
    const tensors = tensorsOf();
    change(tensors);
    const description = describeModel(fileOf(settings, tensors));
    await expect(description).rejects.toThrow(FormatError);
    await expect(description).rejects.toThrow(message);
  };
  const same = (): void => undefined;

  test('a missing tensor', () =>
    refuse(
      config,
      (tensors) => tensors.delete('model.layers.1.mlp.up_proj.weight'),
      /layers\.1\.mlp\.up_proj\.weight: the model needs/,
    ));
  test('a missing output matrix of an untied model', () =>
    refuse(config, (tensors) => tensors.delete('lm_head.weight'), /lm_head\.weight: the model needs/));
  test('a wrong shape', () =>
    refuse(
      config,
      (tensors) => tensors.set('model.norm.weight', stored('model.norm.weight', [9])),
      /expected shape \[8\], got \[9\]/,
    ));
  test('tensors of another architecture', () =>
    refuse(
      config,
      (tensors) => tensors.set('model.layers.0.mlp.experts', stored('model.layers.0.mlp.experts', [2])),
      /1 tensors are not part of this architecture: model\.layers\.0\.mlp\.experts/,
    ));
  test('a bias that the config declares and the file lacks', () =>
    refuse({ ...config, mlp_bias: true }, same, /mlp\.gate_proj\.bias: the model needs/));
  test('integer weights', () =>
    refuse(
      config,
      (tensors) => tensors.set('lm_head.weight', stored('lm_head.weight', [10, 8], 'i8')),
      /expected a float or block type weights, got i8/,
    ));
  test('a number of heads that is not a multiple of the KV heads', () =>
    refuse({ ...config, num_key_value_heads: 3 }, same, /KV heads: expected a divisor of 4 heads, got 3/));
  test('a vocabulary size that contradicts the embedding', () =>
    refuse({ ...config, vocab_size: 11 }, same, /vocab_size: expected 10 embedding rows, got 11/));
  test('an unknown architecture', () =>
    refuse(
      { ...config, model_type: 'xlstm' },
      same,
      /"xlstm" is not supported: it needs a description of its layers; .* expected one of llama, mistral/,
    ));
  test('settings of the wrong type', () =>
    refuse({ ...config, hidden_size: '8' }, same, /hidden_size: expected a non-negative integer, got "8"/));
  test('an unknown head size', () =>
    refuse(
      { ...config, num_attention_heads: 3, num_key_value_heads: 3 },
      same,
      /head_dim: expected a non-negative integer, got nothing/,
    ));
});

test('GGUF counts per layer must agree', async () => {
  const settings: Record<string, unknown> = {
    'general.architecture': 'llama',
    'llama.embedding_length': 8,
    'llama.block_count': 2,
    'llama.feed_forward_length': 12,
    'llama.context_length': 64,
    'llama.attention.head_count': 4,
    'llama.attention.head_count_kv': Int32Array.of(2, 2),
    'llama.attention.layer_norm_rms_epsilon': 1e-5,
  };
  const names: [RegExp, string][] = [
    [/^model\.embed_tokens/, 'token_embd'],
    [/^model\.norm/, 'output_norm'],
    [/^lm_head/, 'output'],
    [/^model\.layers\.(\d)\./, 'blk.$1.'],
    [/input_layernorm/, 'attn_norm'],
    [/post_attention_layernorm/, 'ffn_norm'],
    [/self_attn\.o_proj/, 'attn_output'],
    [/self_attn\.(.)_proj/, 'attn_$1'],
    [/mlp\.(\w+)_proj/, 'ffn_$1'],
  ];
  const tensors = new Map(
    [...tensorsOf().values()].map((tensor) => {
      const name = names.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), tensor.name);
      return [name, { ...tensor, name }];
    }),
  );
  const file = (): ModelFile => ({ ...fileOf(settings, tensors), format: 'gguf' });
  expect((await describeModel(file())).config).toMatchObject({ numKvHeads: 2, rope: { layout: 'neighbors' } });
  settings['llama.attention.head_count_kv'] = Int32Array.of(2, 4);
  await expect(describeModel(file())).rejects.toThrow(
    /head_count_kv: expected the same number for every layer, got an array of 2/,
  );
});

test('vectors are decoded to f32 while loading, matrices keep their dtype', async () => {
  const tensors = tensorsOf();
  const halves = Uint8Array.of(0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44, 0, 0xbc, 0, 0, 0, 0x38, 0, 0x3e); // 1 2 3 4 -1 0 .5 1.5
  tensors.set('model.norm.weight', stored('model.norm.weight', [8], 'f16', halves));
  tensors.set('lm_head.weight', stored('lm_head.weight', [10, 8], 'bf16'));
  const { weights } = await describeModel(fileOf(config, tensors));
  const norm = weights.get('output_norm.weight')!;
  expect([norm.dtype, weights.get('output.weight')!.dtype]).toEqual(['f32', 'bf16']);
  const target = new Uint8Array(norm.sizeBytes);
  let numBytes = 0;
  await loadWeight(norm, target, { onBytes: (count) => (numBytes += count) });
  expect([...new Float32Array(target.buffer)]).toEqual([1, 2, 3, 4, -1, 0, 0.5, 1.5]);
  expect(numBytes).toBe(16);
});
