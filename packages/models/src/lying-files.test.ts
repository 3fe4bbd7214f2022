/** Files with false claims are rejected with a `FormatError` before anything large is allocated. */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { FormatError, tensorBytes, type DType, type Shape } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { Fields } from './file/fields.js';
import { describeModel } from './registry.js';

function storeOf(shapes: readonly (readonly [string, Shape, DType?])[]): TensorStore & { readonly reads: string[] } {
  const reads: string[] = [];
  const tensors = new Map<string, StoredTensor>();
  for (const [name, shape, dtype = 'f32'] of shapes) {
    const sizeBytes = tensorBytes(dtype, shape);
    const read = async (target: Uint8Array): Promise<void> => {
      reads.push(name);
      target.fill(0);
    };
    tensors.set(name, { name, dtype, shape, sizeBytes, read });
  }
  return { name: 'file', tensors, close: async () => undefined, reads };
}

const hubShapes: [string, Shape, DType?][] = [
  ['model.embed_tokens.weight', [10, 8]],
  ['model.norm.weight', [8]],
  ['lm_head.weight', [10, 8]],
  ['model.layers.0.input_layernorm.weight', [8]],
  ['model.layers.0.post_attention_layernorm.weight', [8]],
  ['model.layers.0.self_attn.q_proj.weight', [8, 8]],
  ['model.layers.0.self_attn.k_proj.weight', [4, 8]],
  ['model.layers.0.self_attn.v_proj.weight', [4, 8]],
  ['model.layers.0.self_attn.o_proj.weight', [8, 8]],
  ['model.layers.0.mlp.gate_proj.weight', [12, 8]],
  ['model.layers.0.mlp.up_proj.weight', [12, 8]],
  ['model.layers.0.mlp.down_proj.weight', [8, 12]],
];
const hubSettings = {
  model_type: 'llama',
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 10,
  rms_norm_eps: 1e-5,
  max_position_embeddings: 64,
};

const describeHub = (changes: object, shapes = hubShapes) =>
  describeModel({
    format: 'safetensors',
    fields: Fields.ofJson('config.json', { ...hubSettings, ...changes }),
    store: storeOf(shapes),
  });

test('config.json: the unchanged file is a model', async () => {
  expect((await describeHub({})).weights.size).toBe(hubShapes.length);
});

test.each([
  [{ num_hidden_layers: 2 }, /model\.layers\.1\.input_layernorm\.weight: the model needs this tensor/],
  [{ num_hidden_layers: 1e9 }, /layers: expected at most 12, the number of tensors, got 1000000000/],
  [{ num_hidden_layers: 2 ** 53 - 1 }, /layers: expected at most 12/],
  [{ num_hidden_layers: 2 ** 53 }, /num_hidden_layers: expected a non-negative integer/],
  [{ num_hidden_layers: 0 }, /num_hidden_layers: expected a positive integer, got 0/],
  [{ vocab_size: 1e12 }, /vocab_size: expected 10 embedding rows, got 1000000000000/],
  [{ hidden_size: 16 }, /embed_tokens\.weight: expected shape \[10, 16\], got \[10, 8\]/],
  [{ hidden_size: 1e12 }, /hidden size: expected at most 664, the number of weights, got 1000000000000/],
  [{ intermediate_size: 13 }, /mlp\.gate_proj\.weight: expected shape/],
  [{ intermediate_size: 2 ** 52 }, /FFN size: expected at most 664/],
  [{ head_dim: 0 }, /head_dim: expected a positive integer, got 0/],
  [{ head_dim: 4 }, /self_attn\.q_proj\.weight: expected shape/],
  [{ head_dim: 2 ** 52 }, /attention size: expected at most 664/],
  [{ head_dim: -2 }, /head_dim: expected a non-negative integer, got -2/],
  [{ num_attention_heads: 0 }, /num_attention_heads: expected a positive integer, got 0/],
  [{ num_key_value_heads: 0 }, /num_key_value_heads: expected a positive integer, got 0/],
  [{ hidden_act: 'constructor' }, /hidden_act: expected silu, swish, .*, got "constructor"/],
  [{ rms_norm_eps: -1e-5 }, /norm epsilon: expected a positive number/],
  [{ rms_norm_eps: 0 }, /norm epsilon: expected a positive number/],
  [{ rms_norm_eps: 1e300 }, /norm epsilon: expected a positive number that f32 can hold/],
  [{ rope_theta: 0 }, /rope: rope base: expected a positive number, got 0/],
  [{ rope_theta: -10000 }, /rope: rope base: expected a positive number/],
  [{ rope_scaling: { type: 'linear', factor: 0 } }, /rope: rope scaling factor: expected a positive number, got 0/],
  [{ rope_scaling: { type: 'linear', factor: -4 } }, /rope: rope scaling factor/],
  [{ rope_scaling: { type: 'linear', factor: '4' } }, /factor: expected a finite number, got "4"/],
  [{ rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 0 } }, /expected a positive integer/],
  [
    {
      rope_scaling: {
        rope_type: 'llama3',
        factor: 8,
        low_freq_factor: 4,
        high_freq_factor: 3,
        original_max_position_embeddings: 64,
      },
    },
    /rope: rope high_freq_factor: expected at least low_freq_factor 4, got 3/,
  ],
  [{ rope_scaling: [] }, /expected a JSON object, got an array of 0/],
  [{ sliding_window: 1e12, model_type: 'mistral' }, undefined],
  [{ quantization_config: { quant_method: 'gptq', bits: 4 } }, /quantization_config: expected unquantized weights/],
])('config.json: %o', async (changes, message) => {
  const described = describeHub(changes);
  if (message === undefined) {
    const capacities = { maxTokens: 4, maxSequences: 1, maxOutputRows: 1, topK: 1 };
    const cache = {
      numBlocks: 1,
      blockSize: 4,
      maxBlocksPerSequence: 1,
      dtype: { keys: 'f32', values: 'f32' } as const,
    };
    (await described).buildProgram({ ...capacities, cache }); // a window larger than any context has no effect
    return;
  }
  await expect(described).rejects.toThrow(message);
  await expect(described).rejects.toThrow(FormatError);
});

test('config.json: an embedding table without rows', async () => {
  const shapes = hubShapes.map(([name, shape]): [string, Shape] => [name, shape[0] === 10 ? [0, 8] : shape]);
  await expect(describeHub({ vocab_size: 0 }, shapes)).rejects.toThrow(/embedding table: expected at least one row/);
});

test.each(['q8_1', 'q8_K', 'i32'] as const)(
  'config.json: a matrix of %s, which is not a weight dtype',
  async (dtype) => {
    const wide = 256;
    const shapes = hubShapes.map(([name, shape]): [string, Shape, DType?] =>
      name === 'model.layers.0.mlp.down_proj.weight'
        ? [name, [8, wide], dtype]
        : [name, shape.map((dim) => (dim === 12 ? wide : dim))],
    );
    const described = describeHub({ intermediate_size: wide }, shapes);
    await expect(described).rejects.toThrow(/down_proj\.weight: expected .*, got/);
    await expect(described).rejects.toThrow(FormatError);
  },
);

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
const ggufShapes = hubShapes.map(([name, shape]): [string, Shape, DType?] => [
  names.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), name),
  shape,
]);
const settings: Readonly<Record<string, unknown>> = {
  'general.architecture': 'llama',
  'llama.embedding_length': 8,
  'llama.block_count': 1,
  'llama.feed_forward_length': 12,
  'llama.context_length': 64,
  'llama.attention.head_count': 4,
  'llama.attention.head_count_kv': 2,
  'llama.attention.layer_norm_rms_epsilon': 1e-5,
};
const open = (changes: object, extra: readonly [string, Shape, DType?][] = []) => {
  const store = storeOf([...ggufShapes, ...extra]);
  const fields = Fields.ofJson('m.gguf', { ...settings, ...changes });
  return { store, described: describeModel({ format: 'gguf', fields, store }) };
};

test('GGUF: the unchanged file is a model; plain counts, counts per layer and 64-bit counts are equivalent', async () => {
  const plain = await open({}).described;
  const perLayer = await open({ 'llama.attention.head_count': [4], 'llama.feed_forward_length': Int32Array.of(12) })
    .described;
  expect(perLayer.config).toEqual(plain.config);
});

test.each([
  [{ 'llama.block_count': 2 }, /blk\.1\.attn_norm\.weight: the model needs this tensor/],
  [{ 'llama.block_count': 2 ** 32 - 1 }, /layers: expected at most 12/],
  [{ 'llama.block_count': 2n ** 63n }, /block_count: expected a non-negative integer, got 9223372036854775808/],
  [{ 'llama.attention.key_length': 0 }, /key_length: expected a positive integer/],
  [{ 'llama.attention.key_length': 4, 'llama.attention.value_length': 4 }, /attn_q\.weight: expected shape \[16, 8\]/],
  [{ 'llama.attention.value_length': 4 }, /value_length: expected the key length 2, got 4/],
  [{ 'llama.attention.head_count': [] }, /head_count: expected the same number for every layer, got an array of 0/],
  [{ 'llama.rope.freq_base': 0 }, /rope: rope base: expected a positive number, got 0/],
  [{ 'llama.rope.freq_base': NaN }, /freq_base: expected a finite number, got NaN/],
  [{ 'llama.rope.scaling.factor': -1 }, /rope: rope scaling factor/],
  [{ 'llama.attention.layer_norm_rms_epsilon': Infinity }, /epsilon: expected a finite number/],
  [{ 'llama.attention.causal': false }, /attention\.causal: expected true/],
  [{ 'llama.expert_count': 8 }, /expert_used_count: expected a non-negative integer, got nothing/],
])('GGUF: %o', async (changes, message) => {
  const { described } = open(changes);
  await expect(described).rejects.toThrow(message);
  await expect(described).rejects.toThrow(FormatError);
});

test.each([
  ['more factors than pairs of dims', [1000], 'f32', /rope_freqs\.weight: expected shape \[1\], got \[1000\]/],
  ['factors that are no floats', [1], 'i8', /rope_freqs\.weight: expected f32, f16, bf16 or f64 weights, got i8/],
] as const)('GGUF: %s: refused before they are read', async (_name, shape, dtype, message) => {
  const { described, store } = open({}, [['rope_freqs.weight', shape, dtype]]);
  await expect(described).rejects.toThrow(message);
  await expect(described).rejects.toThrow(FormatError);
  expect(store.reads).toEqual([]);
});

test('GGUF: factors of zero', async () => {
  const { described } = open({}, [['rope_freqs.weight', [1]]]);
  await expect(described).rejects.toThrow(/rope: rope factor 0: expected a positive number, got 0/);
  await expect(described).rejects.toThrow(FormatError);
});
